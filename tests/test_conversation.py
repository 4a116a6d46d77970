from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.answer_text import Said
from dflash_cli.conversation import Conversation
from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockVerified, Event, Finished, Prefilled
from tests.scripted_model import ScriptedModel, scripted_model

NO_SYSTEM = """\
{%- if messages[0].role == 'system' -%}{{ raise_exception('no system here') }}{%- endif -%}
{{ messages[-1].content }}"""
Make = Callable[..., Conversation]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda *answers, **kwargs: Conversation(scripted_model(tmp_path, answers, **kwargs))


def backend_of(conversation: Conversation) -> Any:
    assert isinstance(conversation.model, ScriptedModel)
    return conversation.model.backend


def after(number: int, act: Callable[[], Any], kind: str = "verify") -> Callable[[str], None]:
    """Acts at the start of the backend's `number`-th call of this kind."""
    calls: list[str] = []

    def on_call(name: str) -> None:
        calls.append(name)
        if name == kind and calls.count(kind) == number:
            act()

    return on_call


def ctrl_c() -> None:
    raise KeyboardInterrupt


def test_a_turn(make: Make) -> None:
    conversation = make("Hello there, you.")
    seen: list[tuple[Event, str]] = []
    turn = conversation.ask("Hi", lambda event, said: seen.append((event, said.answer)))
    assert (turn.prompt, turn.answer, turn.interrupted) == ("Hi", "Hello there, you.", False)
    assert conversation.turns == [turn]
    assert "".join(text for _, text in seen) == turn.answer
    assert isinstance(seen[0][0], Prefilled)
    assert seen[0][1] == "H"
    assert seen[-1][0] == Finished("stop", turn.stats.decode_ms)
    assert sum(isinstance(event, BlockVerified) for event, _ in seen) == len(turn.stats.lengths) > 1
    assert bytes(turn.stats.ids[:-1]).decode() == turn.answer


def test_later_turns_reuse_the_cache(make: Make) -> None:
    conversation = make("First answer.", "Second.", "Third.")
    turns = [conversation.ask(text) for text in ("one", "two", "three")]
    backend = backend_of(conversation)
    for before, turn, prompt in zip(turns, turns[1:], backend.prompts[1:], strict=False):
        # All but the answer's closing id, whose row was never computed, is there: prompt and answer of the turn before.
        assert turn.stats.reused_tokens == before.stats.prompt_tokens + len(before.stats.ids) - 1
        assert turn.stats.prompt_tokens == len(prompt)
        assert f"reused {turn.stats.reused_tokens} of {len(prompt)}" in turn.stats.summary()
    fresh = conversation.model.encode(
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "First answer."},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "Second."},
            {"role": "user", "content": "three"},
        ]
    )
    assert backend.prompts[2] == fresh
    assert "reused" not in turns[0].stats.summary()


def test_the_system_message_comes_first(make: Make) -> None:
    conversation = make("a", "b", "c", system="Be brief.")
    assert conversation.messages("x")[0] == {"role": "system", "content": "Be brief."}
    conversation.ask("x")
    conversation.configure(system=None)
    assert [message["role"] for message in conversation.messages("y")] == ["user", "assistant", "user"]
    turn = conversation.ask("y")
    assert turn.stats.reused_tokens == 1  # <|im_start|>; then the roles differ


@pytest.mark.parametrize(("kind", "number"), [("verify", 3), ("draft", 3)])
def test_interrupt_in_mid_answer_keeps_what_came(make: Make, kind: str, number: int) -> None:
    conversation = make("abcdefghijklmnopqrstuvwxyz", "next")
    backend = backend_of(conversation)
    backend.on_call = after(number, ctrl_c, kind)
    seen: list[tuple[Event, str]] = []
    turn = conversation.ask("Hi", lambda event, said: seen.append((event, said.answer)))
    assert turn.interrupted
    assert turn.answer == "abcdefghi" == "".join(text for _, text in seen)
    assert seen[-1] == (Finished("interrupted", turn.stats.decode_ms), "")
    assert turn.stats.decode_ms > 0
    assert conversation.turns == [turn]
    backend.on_call = lambda _: None
    later = conversation.ask("And?")
    assert later.answer == "next"
    assert later.stats.reused_tokens == turn.stats.prompt_tokens + len("abcdefghi") - 1
    assert b"abcdefghi" in bytes(each for each in backend.prompts[1] if each < 256)


def test_a_signal_while_an_event_is_shown_waits_for_the_block(make: Make) -> None:
    conversation = make("abcdefghijklmnopqrstuvwxyz", "next")
    shown: list[str] = []

    def watch(event: Event, said: Said) -> None:
        if isinstance(event, BlockVerified) and not any(len(each) > 1 for each in shown):
            signal.raise_signal(signal.SIGINT)
        shown.append(said.answer)

    turn = conversation.ask("Hi", watch)
    assert turn.interrupted
    assert turn.answer == "".join(shown) == "abcde"
    assert conversation.ask("x").answer == "next"


@pytest.mark.parametrize("real_signal", [False, True])
def test_interrupt_before_anything_came_takes_the_turn_back(make: Make, real_signal: bool) -> None:
    conversation = make("first", "never", "third")
    conversation.ask("one")
    act = (lambda: signal.raise_signal(signal.SIGINT)) if real_signal else ctrl_c
    backend = backend_of(conversation)
    backend.on_call = after(1, act, "prefill")
    turn = conversation.ask("two")
    assert turn.interrupted
    assert turn.lost
    assert turn.stats.decode_ms == 0  # nothing was decoded
    assert len(conversation.turns) == 1
    backend.answers.pop(0)  # the prefill that was cut short never took its answer
    backend.on_call = lambda _: None
    assert conversation.ask("three").answer == "third"
    assert [message["content"] for message in conversation.messages("x")] == ["one", "first", "three", "third", "x"]


def test_an_empty_answer_is_an_answer(make: Make) -> None:
    turn = make("").ask("Hi")
    assert (turn.answer, turn.interrupted, turn.lost) == ("", False, False)


def test_a_cut_character_is_not_kept(make: Make) -> None:
    conversation = make("ab" + "é" * 9)
    backend_of(conversation).on_call = after(2, ctrl_c)
    # prefill a, then a block of 4: b, é, half an é
    assert conversation.ask("Hi").answer == "abé"
    conversation = make("abéé", max_new_tokens=5)
    turn = conversation.ask("Hi")
    assert turn.stats.reason == "length"
    assert turn.answer == "abé"


def test_stop_strings_end_a_turn(make: Make) -> None:
    conversation = make("One. STOP two.", "next", stop=("STOP",))
    shown: list[str] = []
    turn = conversation.ask("Hi", lambda _event, said: shown.append(said.answer))
    assert turn.answer == "One. " == "".join(shown)
    assert turn.stats.reason == "stop"
    later = conversation.ask("x")
    assert later.answer == "next"
    assert later.stats.reused_tokens == turn.stats.prompt_tokens + len("One. ")


def test_a_held_back_stop_string_is_told_at_the_end(make: Make) -> None:
    assert make("One ST", stop=("STOP",)).ask("Hi").answer == "One ST"


def test_a_prompt_that_does_not_fit_changes_nothing(make: Make) -> None:
    conversation = make("first", "second", max_len=200)
    conversation.ask("one")
    with pytest.raises(DFlashError, match="the context holds 200"):
        conversation.ask("x" * 300)
    assert len(conversation.turns) == 1
    turn = conversation.ask("two")
    assert turn.answer == "second"
    assert turn.stats.reused_tokens > 0


def test_an_error_in_mid_answer_changes_nothing(make: Make) -> None:
    conversation = make("first", "never to be finished", "second")
    conversation.ask("one")
    before = signal.getsignal(signal.SIGINT)

    def fail() -> None:
        raise RuntimeError("out of something")

    backend_of(conversation).on_call = after(2, fail)
    with pytest.raises(RuntimeError, match="out of something"):
        conversation.ask("two")
    assert len(conversation.turns) == 1
    assert signal.getsignal(signal.SIGINT) == before
    assert conversation.ask("three").answer == "second"


def test_a_watcher_that_fails(make: Make) -> None:
    conversation = make("first")

    def watch(_event: Event, _said: Said) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        conversation.ask("one", watch)
    assert conversation.turns == []


def test_clear(make: Make) -> None:
    conversation = make("first", "second")
    conversation.ask("one")
    conversation.clear()
    assert conversation.messages("x") == [{"role": "user", "content": "x"}]
    assert conversation.ask("two").answer == "second"


def test_thinking_is_switched_and_turns_stay(make: Make) -> None:
    conversation = make("first", "second")
    conversation.ask("one")
    conversation.configure(thinking=False)
    assert conversation.model.thinking is False
    conversation.ask("two")
    text = bytes(each for each in backend_of(conversation).prompts[1] if each < 256)
    assert b"first" in text
    assert text.endswith(b"\n\n\n\n")  # of the empty thought


def test_a_refused_system_prompt_changes_nothing(make: Make) -> None:
    conversation = make("first", template=NO_SYSTEM)
    with pytest.raises(DFlashError, match="no system here"):
        conversation.configure(system="Be brief.")
    assert conversation.messages("x") == [{"role": "user", "content": "x"}]
    with pytest.raises(DFlashError, match="no system here"):
        make("first", template=NO_SYSTEM, system="Be brief.")


def test_raw_texts_are_joined(make: Make) -> None:
    conversation = make(" b", " d", raw=True)
    conversation.ask("a")
    turn = conversation.ask(" c")
    assert bytes(backend_of(conversation).prompts[1]) == b"a b c"
    assert turn.stats.reused_tokens == len("a b")


def test_thinking_goes_to_the_template_which_drops_it_by_its_end(make: Make) -> None:
    conversation = make("<think>\nIt is two.\n</think>\n\nTwo.", "again")
    turn = conversation.ask("one and one?")
    assert (turn.thinking, turn.answer) == ("It is two.", "Two.")
    assert turn.messages[1]["content"] == turn.text == "<think>\nIt is two.\n</think>\n\nTwo."
    assert (turn.stats.thinking_tokens, turn.stats.answer.tokens + turn.stats.thinking.tokens) == (
        len("It is two.\n") + 3, len(turn.stats.ids) - 1
    )  # fmt: skip


def test_an_interrupted_thought_is_closed_for_the_template(make: Make) -> None:
    conversation = make("<think>\nIt is two, or three.</think>Two.", "again")

    def watch(event: Event, _said: Said) -> None:
        if isinstance(event, BlockVerified):
            signal.raise_signal(signal.SIGINT)

    turn = conversation.ask("one and one?", watch)
    assert (turn.interrupted, turn.lost, turn.answer) == (True, False, "")
    assert turn.messages[1]["content"] == f"{turn.text}\n</think>\n\n"
    assert conversation.ask("go on").answer == "again"
