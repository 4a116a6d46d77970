from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dflash_cli.errors import UsageError
from dflash_cli.stream import TextStream
from dflash_cli.text import TextCodec
from tests.byte_tokenizer import IM_END, THINK, make_byte_tokenizer_folder

QWEN3 = Path(__file__).parents[2] / "shared" / "qwen3-tokenizer"
needs_qwen3 = pytest.mark.skipif(not QWEN3.is_dir(), reason=f"the real Qwen3 tokenizer is not at {QWEN3}")

characters = st.sampled_from(["a", "b", " ", "é", "漢", "😀", "👩‍👩‍👧", "\ufffd"])
byte_runs = st.one_of(
    characters.map(lambda text: list(text.encode())),
    st.lists(st.integers(0, 255), max_size=5),
    st.sampled_from([[IM_END], [THINK], [271], [0xF0, 0x9F], [0xE2, IM_END, 0x82, 0xAC]]),
)
byte_ids = st.lists(byte_runs, max_size=20).map(lambda runs: [each for run in runs for each in run])
sizes = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path_factory.mktemp("bytes")))


@pytest.fixture(scope="module")
def qwen3() -> TextCodec:
    return TextCodec.from_folder(QWEN3)


def blocks(ids: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    """The ids cut into blocks of the sizes, over and over."""
    cut, at, turn = [], 0, 0
    while at < len(ids):
        size = sizes[turn % len(sizes)] if any(sizes) else 1
        cut.append(ids[at : at + size])
        at, turn = at + size, turn + 1
    return cut


def check_streams_like_decode(codec: TextCodec, ids: Sequence[int], sizes: Sequence[int]) -> None:
    stream, text, seen = TextStream(codec), "", 0
    for block in blocks(ids, sizes):
        new, seen = stream.push(block), seen + len(block)
        text += new
        now = codec.decode(ids[:seen])
        assert now.startswith(text)
        assert len(now) - len(text) <= 1, "only the last character is held back"
    assert text + stream.flush() == codec.decode(ids)
    assert stream.flush() == ""


def stream_all(
    codec: TextCodec, ids: Sequence[int], stop: Sequence[str], sizes: Sequence[int] = (1,)
) -> tuple[str, int | None]:
    stream = TextStream(codec, stop)
    text = "".join(stream.push(block) for block in blocks(ids, sizes)) + stream.flush()
    return text, stream.stopped_after


@given(byte_ids, sizes)
@example([0xE2] * 100 + [0x82, 0xAC], [1])
@example([0xF0, 0x9F, 0x98, *[IM_END] * 50, 0x80], [1])
@example([0x80] * 50 + list("😀".encode()), [1])
def test_any_bytes_stream_to_their_text(codec: TextCodec, ids: list[int], sizes: list[int]) -> None:
    check_streams_like_decode(codec, ids, sizes)


@needs_qwen3
@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 151700)), max_size=60), sizes)
def test_any_qwen3_ids_stream_to_their_text(qwen3: TextCodec, ids: list[int], sizes: list[int]) -> None:
    check_streams_like_decode(qwen3, ids, sizes)


@needs_qwen3
def test_qwen3_text_comes_in_whole_characters(qwen3: TextCodec) -> None:
    text = "Grüße 漢字 🦙🏽‍♀️ 𓀀 \u0628\u064e ok"
    stream, pushed = TextStream(qwen3), []
    for each in qwen3.encode_raw(text):
        pushed.append(stream.push([each]))
    assert "".join(pushed) + stream.flush() == text
    assert "\ufffd" not in "".join(pushed)


def test_an_emoji_waits_for_its_last_byte(codec: TextCodec) -> None:
    stream = TextStream(codec)
    assert [stream.push([each]) for each in "a😀".encode()] == ["a", "", "", "", "😀"]
    assert stream.push([0xF0, 0x9F]) == ""
    assert stream.flush() == "\ufffd"


def test_what_is_left_at_the_end_is_flushed_once(codec: TextCodec) -> None:
    stream = TextStream(codec, ["stop"])
    assert stream.push(list(b"a st")) == "a "
    assert stream.flush() == "st"
    assert stream.flush() == ""
    assert stream.stopped_after is None


class CountingCodec:
    """Counts the ids that a stream has decoded."""

    def __init__(self, codec: TextCodec) -> None:
        self.codec, self.decoded = codec, 0

    def decode(self, ids: Sequence[int]) -> str:
        self.decoded += len(ids)
        return self.codec.decode(ids)

    def shows(self, token_id: int) -> bool:
        return self.codec.shows(token_id)


@pytest.mark.parametrize("stop", [(), ("never",)])
@pytest.mark.parametrize("run", [[ord("a")], [0xE2], [0x80], list("😀".encode())])
def test_work_is_linear_whatever_comes(codec: TextCodec, run: list[int], stop: Sequence[str]) -> None:
    counting = CountingCodec(codec)
    stream = TextStream(counting, stop)  # type: ignore[arg-type]
    ids = run * (4000 // len(run))
    for each in ids:
        stream.push([each])
    assert counting.decoded < 40 * len(ids)


# Stop strings


def test_text_before_a_stop_string_comes_and_nothing_after(codec: TextCodec) -> None:
    stream = TextStream(codec, ["\n\n"])
    assert stream.push(list(b"one\n\ntwo")) == "one"
    assert stream.stopped_after == 5
    assert stream.push(list(b"three\n\n")) == ""
    assert stream.flush() == ""
    assert stream.stopped_after == 5


def test_a_stop_string_over_several_blocks(codec: TextCodec) -> None:
    stream = TextStream(codec, ["END"])
    assert [stream.push(list(block)) for block in (b"xE", b"N", b"Ey", b"EN", b"D!")] == ["x", "", "ENEy", "", ""]
    assert stream.stopped_after == 8


def test_the_stop_string_complete_first_wins(codec: TextCodec) -> None:
    assert stream_all(codec, list(b"hello world"), ["world", "lo w"]) == ("hel", 7)
    assert stream_all(codec, list(b"hello world"), ["o", "world"]) == ("hell", 5)
    assert stream_all(codec, list(b"abcd"), ["abcd", "c"], [4]) == ("ab", 3)
    assert stream_all(codec, list(b"abcd"), ["cd", "bcd", "d"], [4]) == ("a", 4)


def test_a_stop_string_that_begins_again_inside_itself(codec: TextCodec) -> None:
    assert stream_all(codec, list(b"aabaabaaab"), ["aabaaa"], [3]) == ("aab", 9)
    assert stream_all(codec, list(b"----->"), ["-->"]) == ("---", 6)


def test_a_stop_string_of_characters_split_over_ids(codec: TextCodec) -> None:
    ids = list("ok 😀🛑 no".encode())
    assert stream_all(codec, ids, ["😀🛑"], [3]) == ("ok ", 11)
    assert stream_all(codec, ids, ["🛑"], [1]) == ("ok 😀", 11)


def test_special_ids_count_but_do_not_part_a_stop_string(codec: TextCodec) -> None:
    assert stream_all(codec, [*b"aE", IM_END, *b"ND", ord("z")], ["END"], [6]) == ("a", 5)
    assert stream_all(codec, [ord("a"), THINK, ord("b")], ["<think>"]) == ("a", 2)


def test_a_stop_string_of_a_replacement_character_can_complete_at_the_end(codec: TextCodec) -> None:
    assert stream_all(codec, [ord("a"), 0xE2], ["\ufffd"]) == ("a", 2)


def test_empty_stop_strings_are_refused(codec: TextCodec) -> None:
    with pytest.raises(UsageError, match="empty"):
        TextStream(codec, ["x", ""])


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, int] | None:
    """(start, end) of the match that is complete first, of those the longest; None without one."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts), end
    return None


@given(st.text("ab😀", max_size=30), st.lists(st.text("ab😀", min_size=1, max_size=5), min_size=1, max_size=3), sizes)
def test_any_stop_strings_in_any_blocks(codec: TextCodec, text: str, stops: list[str], sizes: list[int]) -> None:
    streamed, stopped_after = stream_all(codec, list(text.encode()), stops, sizes)
    match = first_stop(text, stops)
    if match is None:
        assert (streamed, stopped_after) == (text, None)
    else:
        assert (streamed, stopped_after) == (text[: match[0]], len(text[: match[1]].encode()))


@given(st.text("abc", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_only_possible_beginnings_are_held_back(codec: TextCodec, text: str, stops: list[str]) -> None:
    if first_stop(text, stops) is not None:
        return
    stream = TextStream(codec, stops)
    held = len(text) - len(stream.push(list(text.encode())))
    begun = [n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])]
    assert held == max(begun)
