"""Switching where memory is short, where loading fails or is interrupted, and what is set free."""

from __future__ import annotations

import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from dflash_cli import loading
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from dflash_cli.errors import DFlashError
from dflash_cli.loading import estimated_bytes, load, shares_target
from dflash_cli.memory_fit import NotEnoughMemory
from dflash_cli.slash_talk import context_rows
from dflash_cli.switching import change, is_shortage
from dflash_cli.toolbar import status_of
from tests.tiny import write_pair

if TYPE_CHECKING:
    from dflash_cli.chat import Chat
    from dflash_cli.model import Model

Start = Callable[[], Conversation]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    a, b = (write_pair(tmp_path_factory.mktemp(name), seed=seed)[0] for name, seed in (("a", 0), ("b", 7)))
    return str(a), str(b)


@pytest.fixture
def start(models: tuple[str, str]) -> Start:
    def begin() -> Conversation:
        conversation = Conversation(load(Config(model=models[0], device="cpu", dtype="float32", max_new_tokens=8)))
        conversation.ask("one")
        return conversation

    return begin


class Memory:
    """Free memory that follows what is alive: `size` bytes, of which each living target takes `each`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int, each: int) -> None:
        self.size, self.each = size, each
        self.targets: list[weakref.ref[Any]] = []
        self.loads = 0
        self._load = loading.load_target
        monkeypatch.setattr("dflash_cli.loading.load_target", self.load)
        monkeypatch.setattr("dflash_cli.loading.free_memory", lambda _device: self.free)

    @property
    def alive(self) -> int:
        return sum(ref() is not None for ref in self.targets)

    @property
    def free(self) -> int:
        return self.size - self.each * self.alive

    def load(self, *args: Any) -> Any:
        self.loads += 1
        target = self._load(*args)
        self.targets.append(weakref.ref(target))
        return target


@pytest.fixture
def room_for_one(start: Start, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Memory that holds one of the pairs and not two."""
    conversation = start()
    needed = estimated_bytes(conversation.model, Config(model=models[1], device="cpu", dtype="float32"))
    return Memory(monkeypatch, needed * 3 // 2, needed)


def test_the_old_one_goes_first_where_there_is_no_room_for_both(
    room_for_one: Memory, start: Start, models: tuple[str, str]
) -> None:
    conversation, told = start(), list[str]()
    change(conversation, {"model": models[1]}, told.append)
    assert told[0].startswith("not enough memory on cpu: ")
    assert told[0].endswith("free. So the old one is let go before the new one is loaded")
    assert conversation.model.pair.target == models[1]
    assert room_for_one.alive == 1
    assert len(conversation.turns) == 1
    conversation.ask("two")


def test_the_old_one_comes_back_where_the_new_one_fails(
    room_for_one: Memory, start: Start, models: tuple[str, str]
) -> None:
    conversation, told = start(), list[str]()
    expected = conversation.ask("two").stats.ids
    conversation.undo()
    real, room_for_one._load = room_for_one._load, broken_once(room_for_one._load)
    with pytest.raises(ValueError, match="broken weights"):
        change(conversation, {"model": models[1]}, told.append)
    room_for_one._load = real
    assert told[-1] == "going back to the old one"
    assert conversation.model.pair.target == models[0]
    assert room_for_one.alive == 1
    assert not conversation.changed
    assert conversation.ask("two").stats.ids == expected


def broken_once(real: Callable[..., Any], error: BaseException | None = None) -> Callable[..., Any]:
    """Fails at its first call, with a target half made."""
    calls: list[Any] = []

    def load_target(*args: Any) -> Any:
        calls.append(args)
        target = real(*args)
        if len(calls) == 1:
            raise error or ValueError("broken weights")
        return target

    return load_target


def test_an_interrupt_brings_the_old_one_back(room_for_one: Memory, start: Start, models: tuple[str, str]) -> None:
    conversation = start()
    room_for_one._load = broken_once(room_for_one._load, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        change(conversation, {"model": models[1]}, lambda _: None)
    assert conversation.model.pair.target == models[0]
    assert conversation.ask("two").stats.ids


def on_tidying(monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Ctrl-C while memory is given back for the n-th time, which is outside of any load."""
    calls: list[None] = []

    def collect() -> None:
        calls.append(None)
        if len(calls) == nth:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("dflash_cli.switching.gc", SimpleNamespace(collect=collect))


def test_an_interrupt_between_letting_go_and_loading_brings_the_old_one_back(
    room_for_one: Memory, start: Start, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = start()
    on_tidying(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        change(conversation, {"model": models[1]}, lambda _: None)
    assert conversation.model.pair.target == models[0]
    assert not conversation.changed
    assert room_for_one.alive == 1
    assert conversation.ask("two").stats.ids


def test_a_second_interrupt_does_not_keep_the_old_one_from_coming_back(
    room_for_one: Memory, start: Start, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = start()
    room_for_one._load = broken_once(room_for_one._load, KeyboardInterrupt())
    on_tidying(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        change(conversation, {"model": models[1]}, lambda _: None)
    assert conversation.model.pair.target == models[0]
    assert conversation.ask("two").stats.ids


def test_an_interrupt_after_the_switch_is_too_late(
    start: Start, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = start()
    on_tidying(monkeypatch, 1)
    change(conversation, {"model": models[1]}, lambda _: None)
    assert conversation.model.pair.target == models[1]
    assert conversation.changed == {"model"}


def test_an_interrupt_while_a_setting_is_taken_up_leaves_all_as_it_was(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = start()
    real = Conversation.adopt

    def adopt(self: Conversation, model: Model) -> None:
        signal.raise_signal(signal.SIGINT)
        real(self, model)

    monkeypatch.setattr(Conversation, "adopt", adopt)
    with pytest.raises(KeyboardInterrupt):
        change(conversation, {"temperature": 0.5}, lambda _: None)
    assert conversation.model.config.temperature is None
    assert not conversation.changed


def test_weights_that_are_left_are_not_loaded_twice(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the old cache could be made again, the weights are still there."""
    conversation = start()
    target = conversation.model.target
    conversation.release(keep_weights=True)
    memory = Memory(monkeypatch, 1 << 40, 0)
    change(conversation, {"context": 64}, lambda _: None)
    assert conversation.model.target is target
    assert memory.loads == 0


def test_where_neither_can_be_loaded_another_one_can(
    room_for_one: Memory, start: Start, models: tuple[str, str]
) -> None:
    conversation = start()
    real, chat = room_for_one._load, SimpleNamespace(conversation=conversation, last_turn=None, log=None)
    chat.overlay = SimpleNamespace(mode="off")

    def fail(*_: Any) -> None:
        raise ValueError("broken disk")

    room_for_one._load = fail
    with pytest.raises(DFlashError, match="broken disk; and the old one cannot be loaded any more: broken disk"):
        change(conversation, {"model": models[1]}, lambda _: None)
    assert conversation.is_released
    assert status_of(cast("Chat", chat)).model == "no model"
    assert dict(context_rows(conversation))["for more"] == "/undo and /clear make room"
    with pytest.raises(DFlashError, match="no model is loaded; /model NAME loads one"):
        conversation.ask("two")
    room_for_one._load = real
    change(conversation, {"model": models[1]}, lambda _: None)
    assert len(conversation.turns) == 1
    conversation.ask("two")


def test_nothing_is_let_go_for_what_cannot_fit_at_all(
    start: Start, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = start()
    memory = Memory(monkeypatch, 1000, 0)
    monkeypatch.setattr("dflash_cli.switching._freed", lambda _model, _config: 1000)
    model, decoder = conversation.model, conversation.decoder
    with pytest.raises(NotEnoughMemory):
        change(conversation, {"model": models[1]}, lambda _: None)
    assert (conversation.model, conversation.decoder) == (model, decoder)
    assert memory.loads == 0


def test_a_larger_cache_keeps_the_weights_even_where_the_old_cache_must_go(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = start()
    change(conversation, {"context": 64}, lambda _: None)
    target = conversation.model.target
    memory = Memory(monkeypatch, 0, 0)
    told: list[str] = []
    # The first look finds no room, the one after the old cache is gone does.
    looks = iter([0, 1 << 40])
    monkeypatch.setattr("dflash_cli.loading.free_memory", lambda _device: next(looks))
    monkeypatch.setattr("dflash_cli.switching._freed", lambda _model, _config: 1 << 40)
    change(conversation, {"context": 512}, told.append)
    assert conversation.model.target is target
    assert memory.loads == 0
    assert conversation.max_len == 512


def test_what_is_shared(start: Start, models: tuple[str, str]) -> None:
    model = start().model
    base = {"model": models[0], "device": "cpu", "dtype": "float32"}
    assert shares_target(model, Config(**base))
    assert not shares_target(model, Config(**base | {"dtype": "bfloat16"}))
    assert not shares_target(model, Config(**base | {"model": models[1]}))
    whole, rest = (estimated_bytes(model, Config(**base | {"dtype": name})) for name in ("bfloat16", "float32"))
    assert whole - rest == sum(p.numel() * 4 for p in model.target.parameters())


def test_the_default_model_stays_the_one_it_was(
    start: Start, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is picked where none is named depends on the free memory, which the model itself takes."""
    conversation = start()
    picked: list[str] = []
    monkeypatch.setattr("dflash_cli.loading._default_model", lambda _device: picked.append("x") or models[1])
    conversation.model = conversation.model.with_config()
    object.__setattr__(conversation.model, "config", Config(device="cpu", dtype="float32"))
    change(conversation, {"context": 100}, lambda _: None)
    assert conversation.model.pair.target == models[0]
    assert not picked


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (NotEnoughMemory("x", 2, 1), True),
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shapes do not fit"), False),
    ],
)
def test_shortage(error: BaseException, short: bool) -> None:
    assert is_shortage(error) is short


def test_settings_that_need_no_loading_load_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = start()

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("dflash_cli.loading.load", fail)
    change(conversation, {"temperature": 0.5, "system": "Be brief."}, lambda _: None)
    assert conversation.changed == {"temperature", "system"}


def test_a_template_is_taken_without_a_prefill(start: Start, tmp_path: Path) -> None:
    template = tmp_path / "plain.jinja"
    template.write_text("{% for message in messages %}{{ message.content + ';' }}{% endfor %}")
    conversation = start()
    backend = conversation.decoder.backend
    change(conversation, {"chat_template": str(template)}, lambda _: None)
    assert conversation.decoder.backend is backend
    assert conversation.model.codec.decode(conversation.encode("x")).startswith("one;")
