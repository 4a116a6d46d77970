"""A race: fair turns, own clocks, the true texts, Ctrl-C, and a conversation that it leaves as it was."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.loading import load
from dflash_cli.memory_fit import NotEnoughMemory
from dflash_cli.model import Model
from dflash_cli.race import Race, prepare
from dflash_cli.race_view import frame
from tests.talk import Talk
from tests.tiny import write_pair


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"))
    return load(Config(model=str(target), draft=str(drafter), dtype="float32", max_new_tokens=24, device="cpu"))


@pytest.fixture
def conversation(model: Model) -> Conversation:
    conversation = Conversation(model)
    conversation.ask("hello")
    conversation.ask("again")
    return conversation


def test_both_sides_say_what_the_conversation_said(conversation: Conversation) -> None:
    race = prepare(conversation)
    race.run()
    ids = conversation.turns[-1].stats.ids
    assert race.plain.stats.ids == race.fast.stats.ids == ids
    assert race.plain.stats.drafted == 0
    assert race.fast.stats.lengths == conversation.turns[-1].stats.lengths
    comparison = race.compare()
    assert comparison.as_dict()["identical"] is True
    assert comparison.plain_tokens_per_s == race.plain.stats.tokens_per_s


def test_whoever_has_used_less_time_is_next(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass costs one second on the plain side and four on the other: the clocks stay within a turn of each other."""
    race = prepare(conversation)
    now = [0.0]
    monkeypatch.setattr("dflash_cli.race.time.perf_counter", lambda: now[0])
    for racer, seconds in ((race.plain, 1.0), (race.fast, 4.0)):
        events = iter(racer._events)

        def slowly(events: Any = events, seconds: float = seconds) -> Any:
            for event in events:
                now[0] += seconds
                yield event

        racer._events = slowly()
    gaps = []

    def watch() -> None:
        if not (race.plain.is_finished or race.fast.is_finished):
            gaps.append(race.fast.used_s - race.plain.used_s)

    race.run(watch)
    assert gaps
    assert max(map(abs, gaps)) <= 4.0
    assert now[0] == pytest.approx(race.plain.used_s + race.fast.used_s)
    # The wait for the other side is no decoding time.
    assert race.plain.stats.decode_ms + race.fast.stats.decode_ms <= now[0] * 1e3


def test_the_conversation_and_its_cache_stay(conversation: Conversation, model: Model) -> None:
    turns, decoder = list(conversation.turns), conversation.decoder
    race = prepare(conversation)
    race.run()
    race.compare()
    assert conversation.turns == turns
    assert conversation.decoder is decoder
    assert race.plain.decoder.backend is not decoder.backend
    stats = conversation.ask("next").stats
    assert stats.reused_tokens >= turns[-1].stats.prompt_tokens
    expected = model.decoder().generate(model.request(conversation.encode_first(2, "next")))
    assert stats.ids == [each for event in expected for each in getattr(event, "new_ids", ())]


def test_the_plain_sides_cache_is_of_few_sizes(conversation: Conversation) -> None:
    """The flex backend compiles anew for each: two prompts of other lengths must not both pay for it."""
    conversation.adopt(replace(conversation.model, max_len=1200))
    sizes = []
    for prompt in ("short", "rather a long one " * 8, "x" * 700):
        conversation.ask(prompt)
        sizes.append(prepare(conversation).plain.decoder.backend.max_len)
    assert sizes == [512, 512, 1200]


def test_a_race_drafts_even_where_the_chat_does_not(conversation: Conversation) -> None:
    conversation.configure(block=6)  # auto may find that drafts do not pay
    conversation.speculate(False)
    race = prepare(conversation)
    race.run()
    assert race.fast.stats.drafted > 0
    assert conversation.decoder.width == 1


def test_sampled_sides_draw_the_same(conversation: Conversation) -> None:
    conversation.configure(temperature=0.9)
    race = prepare(conversation)
    race.run()
    assert race.plain.stats.ids == race.fast.stats.ids
    assert conversation.model.config.seed is None


def test_where_there_is_nothing_to_race(conversation: Conversation, model: Model) -> None:
    with pytest.raises(UsageError, match="ask something first"):
        prepare(Conversation(model))
    plain = Conversation(replace(model, drafter=None))
    plain.ask("hello")
    with pytest.raises(UsageError, match="no drafter is in use"):
        prepare(plain)


def test_too_little_memory_is_told(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_cli.race.free_memory", lambda _device: 10)
    with pytest.raises(NotEnoughMemory, match="not enough memory to race: plain decoding needs"):
        prepare(conversation)


def test_ctrl_c_stops_it(conversation: Conversation, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    race = prepare(conversation)
    calls = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race.run(stop)
    talk = Talk(model, capsys)
    talk("hello")
    backend: Any = talk.conversation.decoder.backend
    real, count = backend.verify, iter(range(100))

    def verify(*args: Any) -> Any:
        if next(count) == 7:
            raise KeyboardInterrupt
        return real(*args)

    backend.verify = verify
    try:
        assert talk("/race")[1] == ["the race was stopped"]
    finally:
        del backend.verify
    assert len(talk.conversation.turns) == 1
    assert talk("more")[0]


def drawn(race: Race, width: int, height: int, *, is_unicode: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(frame(race, width, height, is_unicode=is_unicode))
    return capture.get().splitlines()


def test_two_columns_or_two_rows(conversation: Conversation) -> None:
    race = prepare(conversation)
    race.run()
    wide, narrow = drawn(race, 100, 30), drawn(race, 40, 30)
    assert "plain, finished" in wide[0]
    assert "DFlash, finished" in wide[0]
    assert "plain, finished" in narrow[0]
    assert sum("DFlash, finished" in line for line in narrow[1:]) == 1
    assert all(cell_len(line) <= 40 for line in narrow)
    for height in (6, 10, 30):
        assert len(drawn(race, 100, height)) <= max(height, 3)
        assert len(drawn(race, 40, height)) <= max(height, 6)
    assert all(ord(char) < 128 for char in "".join(drawn(race, 100, 12, is_unicode=False)[0]))


def test_figures_that_do_not_fit_are_left_out(conversation: Conversation) -> None:
    conversation.configure(block=6)  # auto may find that drafts do not pay
    race = prepare(conversation)
    race.run()
    whole = {part for each in race.racers for part in each.figures().split(" · ")}
    for width in range(6, 140):
        edges = [line for line in drawn(race, width, 30) if line.startswith("╰")]
        shown = {part.strip("╰─╯ ") for line in edges for side in line.split("╯") for part in side.split(" · ")}
        assert shown - {""} <= whole, (width, edges)
    edge = drawn(race, 72, 30)[-1]
    assert "tok/s" in edge
    assert f"τ {race.fast.stats.tau:.2f}" in edge
    assert race.fast.figures() in drawn(race, 140, 30)[-1]


def test_a_race_is_as_high_as_its_text(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    race = prepare(conversation)
    texts = {"plain": "one", "DFlash": "one\ntwo\nthree"}
    monkeypatch.setattr(type(race.plain), "text", property(lambda each: texts[each.name]))
    assert len(drawn(race, 100, 30)) == 3 + 2
    assert len(drawn(race, 40, 30)) == (1 + 2) + (3 + 2)
    texts.update(plain="", DFlash="x\n" * 50)
    assert len(drawn(race, 100, 30)) == 12 + 2
    assert len(drawn(race, 40, 30)) == (1 + 2) + (12 + 2)


@pytest.mark.parametrize("stopped", [False, True])
def test_keys_typed_during_a_race_wait_unseen(
    stopped: bool, model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    termios = pytest.importorskip("termios")
    talk, (ours, theirs) = Talk(model, capsys), os.openpty()
    talk("hello")
    echoes, typed = [], []
    backend: Any = talk.conversation.decoder.backend
    real = backend.verify

    def verify(*args: Any) -> Any:
        if not echoes:
            os.write(ours, b"and then\r")
        echoes.append(bool(termios.tcgetattr(theirs)[3] & termios.ECHO))
        if stopped and len(echoes) == 6:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(talk.source, "prefill", typed.append, raising=False)
    monkeypatch.setattr(backend, "verify", verify, raising=False)
    monkeypatch.setattr("dflash_cli.race_view.can_draw", lambda: True)
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        _, err = talk("/race")
        assert termios.tcgetattr(theirs)[3] & termios.ECHO
    os.close(ours)
    assert ("the race was stopped" in err) is stopped
    assert not any(echoes)
    assert typed == ["and then"]


def test_a_models_text_cannot_act_on_the_terminal(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    race = prepare(conversation)
    monkeypatch.setattr(type(race.plain), "text", property(lambda _self: "\x1b[2J[red]x[/red]\r\u202e" + "y" * 5000))
    text = "\n".join(drawn(race, 100, 20))
    assert "\x1b" not in text
    assert "\u202e" not in text
    race.plain._text.text = ""
    monkeypatch.setattr(type(race.plain), "text", property(lambda _self: "\x1b[2J[red]x[/red]"))
    assert "␛[2J[red]x[/red]" in "\n".join(drawn(race, 100, 20))


def test_a_race_without_a_person(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(model, capsys)
    talk.source.has_person = False
    talk("hello", "/race")
    assert len(talk.conversation.turns) == 1


def test_a_context_that_became_too_small_is_told(conversation: Conversation) -> None:
    length = len(conversation.encode_first(1, "again"))
    conversation.adopt(replace(conversation.model, max_len=length))
    with pytest.raises(DFlashError, match="/undo and /clear make room"):
        prepare(conversation)
