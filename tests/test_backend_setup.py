"""How a backend is made ready: the cache that goes over to it, its warm-up and the comparison with eager."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import backends
from backends import Choice, choose_backend, eager
from backends.base import BackendUnavailable
from backends.engine import Engine
from dflash_cli.backend_setup import backend_in_words, fallback_in_words
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from dflash_cli.loading import load
from dflash_cli.paths import cache_dir
from tests.tiny import write_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"), seed=3)
    return str(target), str(drafter)


class Warm(Engine):
    """Eager, but as one that compiles."""

    noise = 0.0
    problem = ""

    def warm_up(self, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        progress(1, 1)
        if self.problem:
            raise BackendUnavailable(self.problem)
        self.is_warm = True

    def verify(self, *args: Any) -> Any:
        assert self.is_warm
        return super().verify(*args) + self.noise


class Module:
    """A backend's module that is not in a file."""

    def __init__(self) -> None:
        self.artefacts: list[Path] = []

    def create(self, target: Any, drafter: Any, *, artefacts: Path, widths: None, **sizes: Any) -> Warm:
        self.artefacts.append(artefacts)
        engine = eager.create(target, drafter, **sizes)
        engine.__class__, engine.name = Warm, "warm"
        return engine  # type: ignore[return-value]


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> Module:
    """A backend of that name, which compiles."""
    module = Module()
    monkeypatch.setitem(backends.BACKENDS, "warm", "tests.warm")
    monkeypatch.setattr(backends, "COMPILED", ("warm",))
    monkeypatch.setattr("dflash_cli.backend_setup.COMPILED", ("warm",))
    monkeypatch.setitem(sys.modules, "tests.warm", module)  # type: ignore[arg-type]
    return module


def chat(pair: tuple[str, str], **config: Any) -> Conversation:
    settings = {"model": pair[0], "draft": pair[1], "max_new_tokens": 12, "device": "cpu", "dtype": "float32"}
    return Conversation(load(Config(**{**settings, **config})))


def test_another_backend_takes_over_what_the_cache_holds(pair: tuple[str, str], warm: Module) -> None:
    conversation, undisturbed = chat(pair, block=6), chat(pair, block=6)
    for each in (conversation, undisturbed):
        each.ask("one")
    old = conversation.decoder.backend
    conversation.adopt(replace(conversation.model, config=replace(conversation.model.config, backend="warm")))
    assert conversation.decoder.backend is not old
    assert conversation.decoder.backend.name == "warm"
    turn, expected = conversation.ask("two"), undisturbed.ask("two")
    assert turn.stats.reused_tokens == expected.stats.reused_tokens > 0
    assert (turn.stats.ids, turn.stats.lengths) == (expected.stats.ids, expected.stats.lengths)
    (folder,) = warm.artefacts
    assert folder == cache_dir() / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_another_drafter_needs_the_conversation_anew(pair: tuple[str, str]) -> None:
    conversation = chat(pair)
    conversation.ask("one")
    conversation.adopt(replace(conversation.model, drafter=load(conversation.model.config).drafter))
    assert conversation.ask("two").stats.reused_tokens == 0  # a drafter that has not read along


def test_a_backend_that_computes_something_else_is_refused(
    pair: tuple[str, str], warm: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Warm, "noise", 5.0)
    with pytest.raises(BackendUnavailable, match=r"the warm backend computes something else than eager.*verify by"):
        chat(pair, backend="warm")
    conversation = chat(pair)
    turn = conversation.ask("one")
    with pytest.raises(BackendUnavailable):
        conversation.adopt(replace(conversation.model, config=replace(conversation.model.config, backend="warm")))
    assert conversation.decoder.backend.name == "eager"
    assert conversation.ask("two").stats.reused_tokens >= turn.stats.prompt_tokens


@pytest.mark.parametrize("fault", [{"noise": 5.0}, {"problem": "compiling failed"}], ids=["self-test", "warm-up"])
def test_auto_falls_back_where_it_only_fails_when_made_ready(
    fault: dict[str, Any], pair: tuple[str, str], warm: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends.AUTO, "cpu", ("warm", "it is faster"))
    assert chat(pair, backend="auto").decoder.backend.choice == Choice("warm", "it is faster")
    conversation = chat(pair, backend="eager")
    turn = conversation.ask("one")
    for name, value in fault.items():
        monkeypatch.setattr(Warm, name, value)
    model = replace(conversation.model, config=replace(conversation.model.config, backend="auto"))
    for each, reuses in ((model, True), (replace(model, max_len=model.max_len + 8), False)):
        conversation.adopt(each)
        choice = conversation.decoder.backend.choice
        assert (conversation.decoder.backend.name, choice.name, choice.fell_back) == ("eager", "eager", True)
        assert choice.reason.startswith(fault.get("problem", "the warm backend computes something else"))
        assert fallback_in_words(choice) == f"falling back to eager: {choice.reason}"
        assert backend_in_words(choice) == f"eager backend ({choice.reason})"
        assert (conversation.ask("two").stats.reused_tokens >= turn.stats.prompt_tokens) is reuses


def test_only_a_fallback_is_told_as_one() -> None:
    assert fallback_in_words(choose_backend("eager", "cpu")) == fallback_in_words(choose_backend("auto", "cpu")) == ""
    fallback = Choice("eager", "compile cannot run here", fell_back=True)
    assert fallback_in_words(fallback) == "falling back to eager: compile cannot run here"


def test_only_what_auto_chose_has_a_reason() -> None:
    assert backend_in_words(choose_backend("eager", "cpu")) == "eager backend"
    assert backend_in_words(choose_backend("auto", "cpu")).startswith("eager backend (starts at once")
