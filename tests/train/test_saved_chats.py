"""Saved chats as prompts: the conversation as it was, the answer's own ids where they fit, one copy for a run."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.conversation import Turn
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.model import Model
from dflash_cli.session_store import SessionStore
from dflash_cli.train.reading import read_files
from dflash_cli.train.report import Reporter
from dflash_cli.train.saved_chats import CHATS, SavedChats
from dflash_cli.train.synthesis import PromptFile
from tests.byte_tokenizer import IM_END
from tests.sessions import saved, turn
from tests.tiny import make_target
from tests.train.lessons import RECIPE, make_model

QUIET = Reporter(quiet=True)
RECIPE = replace(RECIPE, prompts=(), from_sessions=True)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return make_model(tmp_path / "tokenizer", make_target())


@pytest.fixture
def store() -> SessionStore:
    return SessionStore()  # of a home of its own


def thoughtful(prompt: str, **figures: Any) -> Turn:
    text = "<think>\nWell.\n</think>\n\nYes."
    return replace(turn(prompt, "Yes.", **figures), text=text, thinking="Well.")


def with_record(store: SessionStore, name: str, record: dict[str, Any], *turns: Turn) -> None:
    """A chat with another record before its turns."""
    path = saved(store, name, *turns)
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(first + json.dumps(record) + "\n" + "".join(rest))


def by_target(store: SessionStore, name: str, target: str, *turns: Turn) -> None:
    """A chat whose pair is known."""
    with_record(store, name, {"type": "pair", "target": target}, *turns)


def test_a_turn_has_the_conversation_before_it(tmp_path: Path, store: SessionStore, model: Model) -> None:
    log = store.open_new("talk")
    log.append_turn(turn("One?", "Two."))
    log.append_turn(thoughtful("Sure?"))
    log.append_turn(turn("  ", "Nothing was asked."))
    log.append_turn(turn("And?", "No more."))
    log.close()
    prompts = list(SavedChats(tmp_path / CHATS).prompts(model))
    told = [[message["content"] for message in each.messages if message["role"] != "system"] for each in prompts]
    assert told[0] == ["One?"]
    assert told[1] == ["One?", "Two.", "Sure?"]
    assert told[2] == [*told[1], "<think>\nWell.\n</think>\n\nYes.", "  ", "Nothing was asked.", "And?"]
    assert {each.source for each in prompts} == {"sessions"}
    assert prompts[2].name == "turn 4 of the chat 'talk'"


def test_the_chats_system_prompt_comes_first(tmp_path: Path, store: SessionStore, model: Model) -> None:
    with_record(store, "talk", {"type": "system", "system": "Be brief."}, turn("One?"))
    (prompt,) = SavedChats(tmp_path / CHATS).prompts(model)
    assert prompt.messages == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?"})


def test_a_turn_has_the_system_prompt_it_was_answered_under(tmp_path: Path, store: SessionStore, model: Model) -> None:
    path = saved(store, "talk", turn("One?", "Two."), turn("Sure?", "Yes."), turn("And?"))
    first, *turns = path.read_text().splitlines(keepends=True)
    systems = [json.dumps({"type": "system", "system": text}) + "\n" for text in ("Be brief.", None, "Be long.")]
    path.write_text("".join([first, *(line for pair in zip(systems, turns, strict=True) for line in pair)]))
    chats = SavedChats(tmp_path / CHATS)
    chats.copy(QUIET)
    told = [[message["content"] for message in each.messages] for each in chats.prompts(model)]
    assert told == [
        ["Be brief.", "One?"],
        ["One?", "Two.", "Sure?"],
        ["Be long.", "One?", "Two.", "Sure?", "Yes.", "And?"],
    ]


@pytest.mark.parametrize("settings", [{"raw": True}, {"chat_template": "other.jinja"}])
def test_ids_of_another_template_are_not_the_targets_own(
    tmp_path: Path, store: SessionStore, model: Model, settings: dict[str, Any]
) -> None:
    ids = [*b"Yes!", IM_END]
    with_record(store, "talk", {"type": "pair", "target": "tiny", "settings": settings}, turn("A?", "Yes!", ids=ids))
    (prompt,) = SavedChats(tmp_path / CHATS).prompts(model)
    assert (prompt.answer, prompt.answer_ids) == ("Yes!", None)
    alike = replace(model, config=replace(model.config, **settings))
    (prompt,) = SavedChats(tmp_path / CHATS).prompts(alike)
    assert prompt.answer_ids == tuple(ids)


def test_kept_answers_are_the_very_ids_where_they_fit(tmp_path: Path, store: SessionStore, model: Model) -> None:
    ids = [*b"Yes!", IM_END]
    by_target(store, "mine", "tiny", turn("A?", "Yes!", ids=ids), turn("B?", "Ye", ids=ids[:2], reason="interrupted"))
    by_target(store, "other", "huge", turn("C?", "No.", ids=ids), turn("D?", "N", ids=ids, reason="interrupted"))
    recipe = replace(RECIPE, keep_answers=True)
    read = read_files(recipe, model, PromptFile(tmp_path / "work" / "p.jsonl"), QUIET)
    assert [list(each.ids[each.start :]) for each in read.documents] == [ids, ids[:2], [*b"No.", IM_END]]


def test_thinking_ids_are_kept_only_in_that_mode(tmp_path: Path, store: SessionStore, model: Model) -> None:
    ids = [260, *b"Yes.", IM_END]
    by_target(store, "mine", "tiny", thoughtful("A?", ids=ids))
    for thinking, expected in ((True, tuple(ids)), (False, None)):
        (prompt,) = SavedChats(tmp_path / CHATS).prompts(model.with_config(thinking=thinking))
        assert prompt.answer_ids == expected
        assert prompt.answer == "Yes."


def test_a_copy_is_made_once_and_is_private(
    tmp_path: Path, store: SessionStore, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    chats = SavedChats(tmp_path / "work" / CHATS)
    with pytest.raises(DFlashError, match=r"there is no saved chat in .*`dflash chat` saves them"):
        chats.copy(QUIET)
    saved(store, "first", turn("One?"))
    bad = saved(store, "second", turn("Two?"), turn("Three?"))
    bad.write_bytes(bad.read_bytes()[:-9] + b"!\n")
    chats.copy(Reporter())
    told = capsys.readouterr().err
    assert "is damaged" in told
    assert "2 turns of saved chats copied to" in told
    assert stat.S_IMODE(chats.path.stat().st_mode) == 0o600
    before = [each.messages for each in chats.prompts(model)]
    saved(store, "third", turn("Four?"))
    chats.copy(QUIET)
    assert [each.messages for each in chats.prompts(model)] == before
    chats.path.write_text('{"messages": []}\n')
    with pytest.raises(DFlashError, match="line 1 is damaged; remove that file, it is made again"):
        list(chats.prompts(model))


def test_chats_without_a_turn_that_can_be_read_are_said(tmp_path: Path, store: SessionStore) -> None:
    saved(store, "broken").write_text("?\n")
    saved(store, "blank", turn("  "))
    with pytest.raises(DFlashError, match=r"no turn to learn from: each chat in .* \(2 found\) is empty or"):
        SavedChats(tmp_path / CHATS).copy(QUIET)
    assert not (tmp_path / CHATS).exists()


@pytest.mark.parametrize("name", ["corpus", "prompts"])
def test_an_earlier_runs_file_of_chats_is_not_for_everyone(tmp_path: Path, model: Model, name: str) -> None:
    line = {"messages": [{"role": "user", "content": "A?"}], "answer_ids": [*b"Yes."], "source": "sessions"}
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps(line) + "\n")
    recipe = replace(RECIPE, from_sessions=False, **{name: (str(file),)})
    written = PromptFile(tmp_path / "work" / "p.jsonl")
    read = read_files(recipe, model, written, QUIET)
    assert len(read.documents) + len(read.wanted) == 1
    with pytest.raises(UsageError, match="'sessions' and --public: a drafter may repeat your saved chats"):
        read_files(replace(recipe, public=True), model, written, QUIET)


def test_an_earlier_runs_file_of_chats_goes_to_no_other_machine(
    tmp_path: Path, store: SessionStore, model: Model
) -> None:
    saved(store, "talk", turn("One?", "Two."))
    chats = SavedChats(tmp_path / CHATS)
    chats.copy(QUIET)
    recipe = replace(RECIPE, from_sessions=False, prompts=(str(chats.path),), engine="http://far.example/v1")
    written = PromptFile(tmp_path / "work" / "p.jsonl")
    with pytest.raises(UsageError, match="'sessions' would send your saved chats to another machine's --engine"):
        read_files(recipe, model, written, QUIET)
    near = replace(recipe, engine="http://localhost:1/v1")
    assert len(read_files(near, model, written, QUIET).wanted) == 1


def test_what_cannot_be_used_is_told_and_left_out(
    tmp_path: Path, store: SessionStore, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(store, "talk", turn("Short?"), turn("Long? " * 300), turn("Again?"))
    saved(store, "twice", turn("Short?"))
    read = read_files(RECIPE, model, PromptFile(tmp_path / "work" / "p.jsonl"), Reporter())
    assert (
        "left out: 2 turns of saved chats, such as turn 2 of the chat 'talk': the prompt has" in capsys.readouterr().err
    )
    assert [each.messages[-1]["content"] for each in read.wanted] == ["Short?", "Short?"]
    assert len({each.key for each in read.wanted}) == 1  # answered once
