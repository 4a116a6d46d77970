"""The trace: what is written comes back, broken files are told apart from torn ones, and files stay private."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.answering import answer
from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.trace import (
    SCHEMA,
    Head,
    Recording,
    Step,
    TraceWriter,
    from_lines,
    head_of,
    read_trace,
    record,
    to_lines,
)
from tests.overlay_player import ByteCodec
from tests.scripted_model import scripted_model

HEAD = Head(SCHEMA, "1.2", "a-pair", "a/target", "a/drafter", "eager", "cpu", "float32", 4, "2026-01-31T12:00:00+00:00")
EVENTS: list[tuple[Event, float]] = [
    (Prefilled(9, 2, (72,), 2.5), 10.0),
    (BlockDrafted(9, (195, 182, 33)), 10.1),
    (BlockVerified(9, 2, (195, 182, 46), 3, 1.0, 3.0), 10.25),
    (Finished("stop", 250.0), 10.25),
]
CODEC: Any = ByteCodec()
LINES = [
    '{"event": "head", "schema": 1, "program": "1.2", "pair": "a-pair", "target": "a/target", "drafter": "a/drafter", '
    '"backend": "eager", "device": "cpu", "dtype": "float32", "block_size": 4, "time": "2026-01-31T12:00:00+00:00"}',
    '{"event": "prefilled", "at_s": 0.0, "texts": ["H"], "prompt_len": 9, "reused_len": 2, "new_ids": [72], "ms": 2.5}',
    '{"event": "drafted", "at_s": 0.1, "texts": ["", "\\u00f6", "!"], "start": 9, "ids": [195, 182, 33]}',
    '{"event": "verified", "at_s": 0.25, "texts": ["", "\\u00f6", "."], "start": 9, "accepted": 2, '
    '"new_ids": [195, 182, 46], "num_drafted": 3, "draft_ms": 1.0, "verify_ms": 3.0}',
    '{"event": "finished", "at_s": 0.25, "texts": [""], "reason": "stop", "ms": 250.0}',
]
RECORDING = record(EVENTS, CODEC, (), HEAD)

counts = st.integers(0, 2**40)
ids = st.lists(st.integers(0, 300_000), max_size=4).map(tuple)
times = st.floats(allow_nan=False, allow_infinity=False)
anything = st.text(st.characters())  # lone surrogates too
verified = st.tuples(counts, ids, counts, times, times).flatmap(
    lambda t: st.integers(0, min(len(t[1]), t[2])).map(lambda kept: BlockVerified(t[0], kept, *t[1:]))
)
events = st.builds(Prefilled, counts, counts, ids, times) | st.builds(BlockDrafted, counts, ids) | verified
finished = st.builds(Finished, st.sampled_from(["stop", "length", "interrupted"]), times)


def steps_of(event: Event) -> st.SearchStrategy[Step]:
    size = 1 if isinstance(event, Finished) else len(event.ids if isinstance(event, BlockDrafted) else event.new_ids)
    return st.builds(Step, st.just(event), st.tuples(*[anything] * size), times)


heads = st.builds(
    Head,
    st.just(SCHEMA),
    *[anything] * 3,
    st.none() | anything,
    *[anything] * 3,
    counts,
    anything,
    st.none() | anything,
)
recordings = st.builds(
    lambda head, steps, end: Recording(head, (*steps, *end)),
    heads,
    st.lists(events.flatmap(steps_of), max_size=5),
    st.lists(finished.flatmap(steps_of), max_size=1),
)


def with_change(number: int, **changes: object) -> list[str]:
    """The lines with keys of one of them changed; None takes a key out."""
    entry = json.loads(LINES[number - 1]) | changes
    line = json.dumps({key: value for key, value in entry.items() if value is not None})
    return [*LINES[: number - 1], line, *LINES[number:]]


def test_the_format_is_what_the_docstring_says() -> None:
    assert list(to_lines(RECORDING)) == LINES
    assert RECORDING.text == "Hö."


@given(st.lists(recordings, max_size=3))
def test_what_is_written_comes_back(made: list[Recording]) -> None:
    lines = [line for each in made for line in to_lines(each)]
    assert all(line.isascii() and "\n" not in line for line in lines)
    assert from_lines(lines) == made
    assert from_lines(line + "\n" for line in lines) == made


@given(st.integers(0, len("\n".join(LINES))))
def test_a_file_that_breaks_off_anywhere_gives_what_is_whole(length: int) -> None:
    got = from_lines("\n".join(LINES)[:length].split("\n"))
    whole = "\n".join(LINES)[: length + 1].count("\n") + (length == len("\n".join(LINES)))
    assert got == ([Recording(HEAD, RECORDING.steps[: whole - 1])] if whole else [])


def test_an_answer_after_one_that_was_cut_off() -> None:
    got = from_lines([*LINES[:3], LINES[3][:20], *LINES])
    assert got == [Recording(HEAD, RECORDING.steps[:2]), RECORDING]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([*LINES[:2], LINES[2][:20], *LINES[3:]], "file line 3: found what is not JSON"),
        ([*LINES, "hello"], "file line 6: found what is not JSON"),
        (["[" * 100_000], "file line 1: found what is not JSON"),
        (["", "[1]"], 'file line 2: found [1]; expected a JSON object with a key event'),
        (LINES[1:], "file line 1: found the event \"prefilled\"; expected the head of an answer"),
        ([*LINES, LINES[1]], "file line 6: found an event after the end of an answer"),
        (with_change(1, schema=2), "file line 1: found a trace of schema 2; this dflash reads up to 1: update"),
        (with_change(1, schema="1"), 'file line 1: found schema "1"; expected a whole number'),
        (with_change(1, pair=None), "file line 1: the key pair is missing; expected text"),
        (with_change(2, event="prefill"), 'file line 2: found the event "prefill"; expected one of prefilled, drafted'),
        (with_change(2, event=["prefilled"]), 'file line 2: found the event ["prefilled"]; expected one of'),
        (with_change(2, texts=[]), "file line 2: found 0 texts; expected 1, one for each id"),
        (with_change(2, prompt_len=True), "file line 2: found prompt_len true; expected a whole number of at least 0"),
        (with_change(2, new_ids=[-1]), "file line 2: found new_ids [-1]; expected a list of whole numbers"),
        (with_change(2, new_ids=["x" * 90]), 'file line 2: found new_ids ["' + "x" * 55 + "...; expected"),
        (with_change(3, start=None), "file line 3: the key start is missing"),
        (with_change(4, draft_ms=10**400), "file line 4: found draft_ms 1000"),
        (with_change(4, accepted=4), "file line 4: found accepted 4; expected at most"),
        ([line.replace("250.0", "NaN") for line in LINES], "file line 5: found what is not JSON (NaN is no JSON"),
        (with_change(5, reason="bored"), 'file line 5: found reason "bored"; expected one of stop, length'),
    ],
)  # fmt: skip
def test_a_broken_line_is_named(lines: list[str], words: str) -> None:
    with pytest.raises(DFlashError) as error:
        from_lines(lines, "file")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_keys_of_later_versions_and_whole_numbers_for_times_are_fine() -> None:
    lines = with_change(1, mood="good")
    lines[1:] = with_change(2, at_s=0, colour={"a": 1})[1:]
    assert from_lines(lines) == [RECORDING]


def test_a_real_answer(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, ["so wäre es. Ende"], stop=(". E",))
    decoder = model.decoder()
    seen: list[tuple[Event, float]] = []
    answered = answer(model, decoder, [1, 2], lambda event, _said: seen.append((event, float(len(seen)))))
    recording = record(seen, model.codec, model.config.stop, head_of(model, decoder, "hello"))
    assert recording.text == answered.text == "so wäre es"
    assert [step.at_s for step in recording.steps] == [float(i) for i in range(len(seen))]
    assert (recording.head.pair, recording.head.prompt, recording.head.block_size) == (
        "scripted",
        "hello",
        decoder.width,
    )
    assert recording.head.time.endswith("+00:00")
    assert from_lines(to_lines(recording)) == [recording]


def test_answers_are_appended_to_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    writer = TraceWriter(path)
    assert not path.exists()
    writer.write(RECORDING)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    TraceWriter(path).write(RECORDING)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_trace(path) == [RECORDING, RECORDING]
    path.write_bytes(path.read_bytes()[:-20])
    writer.write(RECORDING)
    assert read_trace(path) == [RECORDING, Recording(HEAD, RECORDING.steps[:-1]), RECORDING]


def test_an_answer_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, write = [], os.write
    monkeypatch.setattr(os, "write", lambda handle, data: calls.append(data) or write(handle, data))
    monkeypatch.setattr(os, "fsync", lambda _handle: calls.append(b"fsync"))
    TraceWriter(tmp_path / "t").write(RECORDING)
    assert calls == [b"".join(line.encode() + b"\n" for line in LINES), b"fsync"]


def test_a_full_disk_leaves_no_part_of_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "t", os.write
    TraceWriter(path).write(RECORDING)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: write(handle, data[:50]))
        with pytest.raises(DFlashError, match=r"no room for the whole answer; is the disk full\?"):
            TraceWriter(path).write(RECORDING)
    assert read_trace(path) == [RECORDING]


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    for name in ("x" * 300, f"{'x' * 300}/t"):
        with pytest.raises(DFlashError, match=r"cannot write the trace .*: File name too long"):
            TraceWriter(tmp_path / name)


def test_what_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("my notes\n")
    (tmp_path / "data").write_text('{"prompt": "x"}\n')
    for name, words in (
        ("no/where", "the folder"), (".", "it is a folder"), ("notes", "something else"), ("data", "something else"),
    ):  # fmt: skip
        with pytest.raises(DFlashError, match="cannot write the trace") as error:
            TraceWriter(tmp_path / name)
        assert words in str(error.value)
    assert (tmp_path / "notes").read_text() == "my notes\n"
    TraceWriter(Path(os.devnull)).write(RECORDING)


def test_a_full_disk_is_told() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    with pytest.raises(DFlashError, match="No space left"):
        TraceWriter(full).write(RECORDING)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DFlashError, match="nowhere cannot be read: No such file"):
        read_trace(tmp_path / "nowhere")
