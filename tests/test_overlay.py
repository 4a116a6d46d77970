"""The fold: by hand, and for any sequence of blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.answering import answer
from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, FinishReason, Prefilled
from dflash_cli.overlay import Block, OverlayState, Piece, TokenTexts
from dflash_cli.text import TextCodec
from dflash_cli.thinking import ThinkingStream
from tests.byte_tokenizer import END_THINK, IM_END, THINK, make_byte_tokenizer_folder
from tests.scripted_model import scripted_model
from tests.test_stream import byte_ids

# One drafted block: its drafts, how many are kept, and where a stop cuts what is committed.
blocks = st.lists(st.tuples(byte_ids, st.integers(0, 9), st.integers(0, 255), st.integers(1, 9)), max_size=6)


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path_factory.mktemp("bytes")))


def block_events(start: int, drafts: list[int], keep: int, bonus: int, cut: int = 99) -> list[Event]:
    """The events of a block as the decoder tells them; a cut inside the kept drafts ends the count there."""
    accepted = min(keep, len(drafts))
    new = (*drafts[:accepted], bonus)[:cut]
    reached = len(new) if len(new) <= accepted else len(drafts)
    drafted = [BlockDrafted(start, tuple(drafts))] if drafts else []
    return [*drafted, BlockVerified(start, min(accepted, len(new)), new, reached, 1.0, 9.0)]


def folded(events: list[Event], texts: TokenTexts, state: OverlayState | None = None) -> OverlayState:
    state = state or OverlayState()
    for at, event in enumerate(events):
        state = state.add(event, texts.of(event), at / 10)
    return state


def ids_of(events: list[Event]) -> list[int]:
    return [each for event in events if isinstance(event, Prefilled | BlockVerified) for each in event.new_ids]


def test_a_block_by_hand(codec: TextCodec) -> None:
    texts = TokenTexts(codec)
    state = folded([Prefilled(5, 0, (ord("a"),), 1.0), *block_events(5, list(b"bcXY"), 2, ord("d"))], texts)
    assert state.text == "abcd"
    assert [piece.kind for piece in state.pieces] == ["first", "accepted", "accepted", "bonus"]
    assert (state.newest.at, state.newest.accepted, state.newest.rejected) == (1, 2, "XY")
    assert state.blocks == (Block(4, 4, 2, 3),)
    assert state.blocks[0].cells == ("accepted", "accepted", "rejected", "rejected")
    assert state.survival == (1.0, 1.0, 0.0, 0.0)
    assert state.turn.tau == 3
    assert state.turn.tokens_per_s == pytest.approx(3 / 0.2)
    state = state.add(BlockDrafted(8, (101, 102)), ("e", "f"))
    assert state.pending == ("e", "f")
    state = state.add(Finished("stop", 500.0), ("",))
    assert (state.pending, state.finished, state.turn.tokens_per_s) == ((), "stop", 6)


def test_a_stop_leaves_slots_unreached(codec: TextCodec) -> None:
    events = [Prefilled(5, 0, (97,), 1.0), *block_events(5, list(b"bcdef"), 4, 103, cut=2)]
    (block,) = folded(events, TokenTexts(codec)).blocks
    assert block.cells == ("accepted", "accepted", "unreached", "unreached", "unreached")
    state = folded(events, TokenTexts(codec))
    assert state.newest.rejected == ""
    assert state.survival == (1.0, 1.0)


def test_characters_belong_to_the_token_that_completes_them(codec: TextCodec) -> None:
    first, *rest = "é😀".encode()
    state = folded([Prefilled(5, 0, (first,), 1.0), *block_events(5, rest, 9, 33)], TokenTexts(codec))
    assert [piece.text for piece in state.pieces] == ["", "é", "", "", "", "😀", "!"]


def test_a_draft_that_completes_a_character(codec: TextCodec) -> None:
    texts = TokenTexts(codec)
    first, second = "é".encode()
    texts.of(Prefilled(5, 0, (first,), 1.0))
    assert texts.of(BlockDrafted(5, (second, 97))) == ("é", "a")


def test_plain_decoding_has_no_blocks(codec: TextCodec) -> None:
    state = folded([Prefilled(5, 0, (97,), 1.0), *block_events(5, [], 0, 98)], TokenTexts(codec))
    assert state.pieces[-1] == Piece("b", "plain", "b")
    assert (state.blocks, state.turn.tau) == ((), None)
    assert state.turn.tokens_per_s is not None


def test_the_session_goes_on(codec: TextCodec) -> None:
    events = [Prefilled(5, 0, (97,), 1.0), *block_events(5, list(b"bc"), 1, 100), Finished("stop", 100.0)]
    first = folded(events, TokenTexts(codec))
    second = folded(events, TokenTexts(codec), first.next_turn())
    assert second.text == first.text
    assert (second.turn, second.session) == (first.turn, first.turn.plus(first.turn))
    assert len(second.blocks) == 2
    assert second.reached == (2, 2)


@given(byte_ids.filter(bool), blocks, st.sampled_from(["stop", "length", "interrupted"]))
def test_committed_text_is_the_text_of_the_ids(
    codec: TextCodec, first: list[int], shapes: list[tuple[list[int], int, int, int]], reason: FinishReason
) -> None:
    events: list[Event] = [Prefilled(5, 0, tuple(first[:1]), 1.0)]
    for drafts, keep, bonus, cut in shapes:
        events += block_events(9, drafts, keep, bonus, cut)
    before = folded(events, TokenTexts(codec))
    whole = codec.decode(ids_of(events))
    assert whole.startswith(before.text)
    events.append(Finished(reason, 1.0))
    state = folded(events, TokenTexts(codec))
    assert state.text.rstrip("\ufffd") == whole.rstrip("\ufffd")
    assert state.text == whole or reason != "stop"
    verified = [event for event in events if isinstance(event, BlockVerified)]
    assert sum(piece.kind == "accepted" for piece in before.pieces) == sum(event.accepted for event in verified)
    assert all(len(block.cells) == block.drafted for block in state.blocks)


@given(st.text("abc", max_size=12), st.sampled_from(["ab", "bb", "cab", "abcabc"]))
def test_it_is_the_answer_that_is_returned(tmp_path_factory: pytest.TempPathFactory, text: str, stop: str) -> None:
    model = scripted_model(tmp_path_factory.getbasetemp() / "bytes", [text], stop=(stop,))
    texts, states = TokenTexts(model.codec, (stop,)), [OverlayState()]
    answered = answer(
        model, model.decoder(), [IM_END, 97], lambda event, _: states.append(states[-1].add(event, texts.of(event)))
    )
    assert states[-1].text == answered.text


def test_passes_belong_to_the_thinking_by_their_first_id(codec: TextCodec) -> None:
    texts, state = TokenTexts(codec), OverlayState()
    events = [Prefilled(5, 0, (THINK,), 1.0), *block_events(5, [97, END_THINK], 2, 98), *block_events(8, [99], 0, 100)]
    thinking = ThinkingStream(codec, [])
    for at, event in enumerate(events):
        flags = () if isinstance(event, BlockDrafted | Finished) else thinking.push(event.new_ids)
        state = state.add(event, texts.of(event), at / 10, flags)
    assert [piece.thinking for piece in state.pieces] == [True, True, True, False, False]
    assert [piece.shown for piece in state.pieces] == ["", "a", "", "b", "d"]
    assert state.text == "<think>a</think>bd"
    assert (state.num_thinking, state.answer_at) == (3, 3)
    assert (state.thinking.tau, state.turn.minus(state.thinking).tau) == (3, 1)
    assert state.thinking.ms == pytest.approx(200)
