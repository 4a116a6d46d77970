"""Keys in mid-answer: what is F2, what is text, and whose the terminal is."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.keys import F2, KeyParser, KeyReader
from tests.waiting import poll

termios = pytest.importorskip("termios")
OTHER_KEYS = ("\x1b[A", "\x1bOA", "\x1b[3~", "\x1b[1;5C", "\x1b[[A", "\x1b[200~", "\x1ba", "\x04", "\x01")


@pytest.mark.parametrize("key", F2)
def test_f2(key: str) -> None:
    parser = KeyParser()
    assert parser.feed(f"ab{key}c{key}".encode()) == 2
    assert parser.typed == "abc"


def test_the_line_can_be_corrected() -> None:
    parser = KeyParser()
    parser.feed(b"one\rtwo\x15thr33\x7f\x7fee")
    assert parser.typed == "one\nthree"


def test_an_escape_alone_is_no_text() -> None:
    parser = KeyParser()
    parser.feed(b"a\x1b")
    parser.feed(b"\x1b")
    assert parser.feed(b"\x1bOQ") == 1
    assert parser.typed == "a"


keys = st.lists(st.sampled_from([*F2, *OTHER_KEYS, "a", "é", "漢", "😀", " ", "\n"]), max_size=20)


@given(keys, st.integers(1, 5))
def test_text_stays_and_keys_act_however_they_arrive(keys: list[str], size: int) -> None:
    data, parser = "".join(keys).encode(), KeyParser()
    presses = sum(parser.feed(data[i : i + size]) for i in range(0, len(data), size))
    assert presses == sum(key in F2 for key in keys)
    assert parser.typed == "".join(key for key in keys if key not in F2 and key not in OTHER_KEYS)


@given(st.binary(max_size=40))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    parser = KeyParser()
    parser.feed(data)
    assert all(char.isprintable() or char in "\n\t" for char in parser.typed)


@pytest.fixture
def terminal() -> Iterator[tuple[int, io.TextIOWrapper]]:
    main, side = os.openpty()
    with os.fdopen(side, "r+b", buffering=0) as raw, io.TextIOWrapper(raw) as stream:
        yield main, stream
    os.close(main)


def wait_for(reader: KeyReader, typed: str) -> None:
    def look() -> str:
        reader.poll()
        return reader.typed

    poll(look, lambda seen: seen == typed)


def test_the_terminal_is_given_back(terminal: tuple[int, io.TextIOWrapper]) -> None:
    main, stream = terminal
    before = termios.tcgetattr(stream)
    presses: list[int] = []

    def use() -> None:
        with KeyReader(stream, lambda: presses.append(1)) as reader:
            flags = termios.tcgetattr(stream)[3]
            assert not flags & (termios.ECHO | termios.ICANON)
            assert flags & termios.ISIG
            os.write(main, b"hi\x1bOQ there")
            wait_for(reader, "hi there")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert presses == [1]
    assert termios.tcgetattr(stream) == before


def test_what_is_typed_last_is_not_lost(terminal: tuple[int, io.TextIOWrapper]) -> None:
    main, stream = terminal
    with KeyReader(stream) as reader:
        os.write(main, b"late")
        time.sleep(0.05)
    assert reader.typed == "late"


def test_the_terminal_can_be_released_and_taken_again(terminal: tuple[int, io.TextIOWrapper]) -> None:
    _, stream = terminal
    before = termios.tcgetattr(stream)
    with KeyReader(stream) as reader:
        reader.release()
        assert termios.tcgetattr(stream) == before
        reader.take()
        assert termios.tcgetattr(stream) != before
    assert termios.tcgetattr(stream) == before


def test_a_pipe_is_not_read() -> None:
    read, write = os.pipe()
    os.write(write, b"the next prompt")
    with os.fdopen(read) as stream, KeyReader(stream) as reader:
        reader.poll()
        assert reader.typed == ""
        os.close(write)
        assert stream.read() == "the next prompt"
    with KeyReader(None) as reader:
        reader.poll()
