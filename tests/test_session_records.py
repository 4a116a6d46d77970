"""Records: what is written is what is read, and what they add up to."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.config import SETTINGS
from dflash_cli.conversation import Conversation, Turn
from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockVerified, Finished, Prefilled
from dflash_cli.session_records import (
    NOT_SAVED,
    SCHEMA,
    SessionState,
    check_session,
    decode,
    encode,
    pair_to_record,
    turn_from_record,
    turn_to_record,
)
from dflash_cli.stats import AnswerStats
from dflash_cli.trace import Recording, from_lines, head_of, record
from tests.scripted_model import scripted_model
from tests.sessions import turn

TEXTS = st.text() | st.sampled_from(["", "a\nb\r\nc\r", "\u2028\u2029\x85", '"}\\', "\0\x1b[2J", "👩‍🚀é\ufeff"])
WHOLE = st.integers(min_value=0, max_value=2**40)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": WHOLE,
    "int | None": st.none() | WHOLE,
    "float": st.floats(allow_nan=False),
    "list[int]": st.lists(WHOLE, max_size=5),
    "FinishReason": st.sampled_from(["stop", "length", "interrupted"]),
}
STATS = st.builds(AnswerStats, **{each.name: KINDS[str(each.type)] for each in dataclasses.fields(AnswerStats)})
TURNS = st.builds(Turn, stats=STATS, **{each.name: TEXTS for each in dataclasses.fields(Turn) if each.name != "stats"})


@given(TURNS)
def test_a_turn_comes_back_as_it_was(given_turn: Turn) -> None:
    line = encode(turn_to_record(given_turn))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert turn_from_record(decode(line)) == given_turn
    json.loads(line.decode("utf-8"))


def test_half_characters_survive() -> None:
    """A message with one never becomes a turn, but a system prompt from a file name's bytes might."""
    line = encode({"type": "system", "system": "a\udc80b"})
    assert decode(line)["system"] == "a\udc80b"


def test_unknown_figures_are_ignored_and_missing_ones_have_defaults() -> None:
    stats = turn_from_record({"type": "turn", "prompt": "a", "answer": "b", "stats": {"ids": [1], "new": 3}}).stats
    assert (stats.ids, stats.lengths, stats.reason) == ([1], [], "interrupted")
    assert turn_from_record({"type": "turn", "prompt": "a", "answer": "b"}).text == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prompt": None}, "its prompt is not text"),
        ({"answer": 3}, "its answer is not text"),
        ({"stats": []}, "its stats are not an object"),
        ({"stats": {"ids": [1, "2"]}}, r"its ids is not list\[int\]: found \[1, '2'\]"),
        ({"stats": {"ids": 1}}, "its ids is not"),
        ({"stats": {"prompt_tokens": True}}, "its prompt_tokens is not int"),
        ({"stats": {"ttft_ms": "1"}}, "its ttft_ms is not float"),
        ({"stats": {"reason": "tired"}}, "its reason is not FinishReason: found tired"),
        ({"stats": {"reason": []}}, "its reason is not"),
    ],
)
def test_a_wrong_turn(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        turn_from_record({**turn_to_record(turn()), **changes})
    with pytest.raises(ValueError, match="without a prompt or an answer"):
        turn_from_record({"type": "turn", "prompt": "a"})


def test_a_turn_says_that_it_was_interrupted() -> None:
    assert turn_to_record(turn())["interrupted"] is False
    assert turn_to_record(turn(reason="interrupted"))["interrupted"] is True


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"{}", b'{"type":1}', b"\xff", b"\0\0", b"[" * 100_000])
def test_what_is_no_record(line: bytes) -> None:
    with pytest.raises(ValueError, match="it is not"):
        decode(line)


def test_schemas() -> None:
    check_session({"type": "session", "schema": SCHEMA})
    with pytest.raises(DFlashError, match=r"schema 2, saved by dflash 9\.9; this dflash reads up to 1: update dflash"):
        check_session({"type": "session", "schema": 2, "program": "9.9"})
    for wrong in ({"type": "turn", "schema": 1}, {"type": "session"}, {"type": "session", "schema": "1"}):
        with pytest.raises(ValueError, match="not the beginning of a saved chat"):
            check_session(wrong)


def test_records_add_up() -> None:
    state = SessionState()
    one, two, three = (turn_to_record(turn(each)) for each in ("one", "two", "three"))
    first, second = {"type": "pair", "pair": "a"}, {"type": "pair", "pair": "b"}
    for each in (
        first,
        one,
        two,
        {"type": "undo"},
        second,
        {"type": "new kind"},
        {"type": "system", "system": "S"},
        three,
    ):
        state.add(each)
    assert [each.prompt for each in state.turns] == ["one", "three"]
    assert [each.pair["pair"] for each in state.saved_turns] == ["a", "b"]
    assert (state.pair, state.system) == (second, "S")
    state.add({"type": "clear"})
    state.add({"type": "undo"})
    state.add({"type": "system", "system": None})
    assert (state.turns, state.system) == ([], None)
    with pytest.raises(ValueError, match="its system prompt is not text"):
        state.add({"type": "system", "system": 1})


def test_the_pair_and_its_settings(tmp_path: Path) -> None:
    conversation = Conversation(
        scripted_model(tmp_path, ["x"], temperature=0.5, stop=("a", "b"), system="S", quiet=True)
    )
    found = decode(encode(pair_to_record(conversation.model, conversation.decoder)))
    assert found["pair"] == "scripted"
    assert found["target"] == "a-script"
    assert found["backend"] == conversation.decoder.backend.name
    assert found["block_size"] == conversation.decoder.width
    assert found["settings"] == {"temperature": 0.5, "stop": ["a", "b"]}
    assert set(NOT_SAVED) < set(SETTINGS)


def test_another_pair_is_told(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, ["x"])
    state = SessionState(pair={"type": "pair", "pair": "qwen3-8b", "target": "Qwen/Qwen3-8B"})
    assert state.other_pair(model) == ""
    state.add(turn_to_record(turn()))
    assert state.other_pair(model) == "this chat was made with qwen3-8b; scripted goes on with it"
    for same in ({"target": "a-script"}, {}):
        state.pair = {"type": "pair", "pair": "another alias", **same}
        assert state.other_pair(model) == ""


def test_the_events_of_an_answer(tmp_path: Path) -> None:
    conversation = Conversation(scripted_model(tmp_path, ["x"]))
    events = [Prefilled(1, 0, (104,), 1.0), BlockVerified(1, 1, (105, 33), 2, 1.0, 2.0), Finished("stop", 3.0)]
    head = head_of(conversation.model, conversation.decoder)
    recording: Recording = record([(each, 0.5) for each in events], conversation.model.codec, (), head)
    lines = decode(encode(turn_to_record(turn(), recording)))["events"]
    assert from_lines([json.dumps(line) for line in lines]) == [recording]
