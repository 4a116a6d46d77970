"""What a chat is told unasked, and that it is told once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.conversation import Conversation, Turn
from dflash_cli.hints import Hints
from dflash_cli.models import PAIRS
from dflash_cli.stats import AnswerStats
from tests.scripted_model import scripted_model
from tests.talk import Talk

Make = Callable[..., Conversation]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def begin(**changes: Any) -> Conversation:
        model = scripted_model(tmp_path, ["x"] * 9, **changes)
        return Conversation(replace(model, pair=PAIRS["qwen3-8b"]))

    return begin


def turn(passes: int, *, length: int = 1, drafts: int = 5, ms: float = 10.0, prompt: int = 10) -> Turn:
    """Each pass commits `length` ids and takes `ms`."""
    stats = AnswerStats(
        prompt_tokens=prompt, ids=[1] * (passes * length + 1), lengths=[length] * passes,
        accepted_each=[length - 1] * passes, drafted_each=[drafts] * passes, verify_ms=ms * passes, reason="stop",
    )  # fmt: skip
    return Turn("one", "x", "", "x", stats)


def test_poor_drafting_is_told_once_over_turns(make: Make) -> None:
    conversation, hints = make(), Hints()
    assert list(hints.after(conversation, turn(15))) == []
    (hint,) = hints.after(conversation, turn(15))
    assert "τ 1.00 over 30 blocks" in hint
    assert list(hints.after(conversation, turn(15))) == []


def test_another_pair_begins_anew(make: Make) -> None:
    conversation, hints = make(), Hints()
    list(hints.after(conversation, turn(15)))
    conversation.model = replace(conversation.model, pair=PAIRS["qwen3-4b"])
    assert list(hints.after(conversation, turn(15))) == []


def test_plain_passes_are_no_poor_drafting(make: Make) -> None:
    assert list(Hints().after(make(), turn(60, drafts=0))) == []


def test_only_full_blocks_are_compared_with_what_a_pair_is_known_for(make: Make) -> None:
    """Others were cut, because their drafts were few, or doubtful."""
    conversation, hints = make(), Hints()
    assert list(hints.after(conversation, turn(60, drafts=3))) == []
    assert "τ 1.00 over 20 blocks" in next(iter(hints.after(conversation, turn(20))))


def test_drafts_in_vain_are_not_booked_as_plain_decoding(make: Make) -> None:
    hints, each = Hints(), turn(60, drafts=0)
    each.stats.in_vain = 30
    list(hints.after(make(), each))
    assert hints._plain.passes == 0
    assert hints._drafted.passes == 60


def test_a_loss_is_told_once_both_speeds_are_known(make: Make) -> None:
    conversation, hints = make(), Hints()
    assert list(hints.after(conversation, turn(20, length=5, ms=60))) == []  # 12 ms a token
    assert list(hints.after(conversation, turn(20, drafts=0, ms=10))) == []  # plain: nothing to switch off
    (hint,) = hints.after(conversation, turn(20, length=5, ms=60))
    assert "12.0 ms a token, plain passes took 10.0 ms; /spec off" in hint
    assert list(hints.after(conversation, turn(20, length=5, ms=60))) == []


def test_a_race_tells_the_plain_speed(make: Make) -> None:
    conversation, hints = make(), Hints()
    hints.saw(conversation, turn(20, drafts=0, ms=10).stats)
    assert any("/spec off" in hint for hint in hints.after(conversation, turn(20, length=5, ms=60)))


def test_a_context_that_fills_up_is_told_once(make: Make) -> None:
    conversation, hints = make(max_len=100), Hints()
    assert list(hints.after(conversation, turn(9, drafts=0, prompt=69))) == []  # 79 tokens
    (hint,) = hints.after(conversation, turn(9, drafts=0, prompt=70))
    assert hint.startswith("80 of the 100 tokens of context are used; ")
    assert "`/set context N`" in hint
    assert list(hints.after(conversation, turn(9, drafts=0, prompt=75))) == []
    list(hints.after(conversation, turn(3)))  # after /clear
    assert list(hints.after(conversation, turn(9, drafts=0, prompt=75))) != []


def test_a_chat_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(scripted_model(tmp_path, ["x" * 60, "y"], max_len=100), capsys, quiet=False)
    _, err = talk("one")
    assert any("tokens of context are used; /undo and /clear make room" in line for line in err)
