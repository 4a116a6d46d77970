"""The events of an answer on disk: one JSON object a line (ASCII), the same format for every reader. Schema 1.

An answer is a head line and then a line an event, in order; a file may hold several answers.

    {"event": "head", "schema": 1, "program": "0.1.0", "pair": "qwen3-4b", "target": "Qwen/Qwen3-4B",
     "drafter": "z-lab/Qwen3-4B-DFlash-b16", "backend": "eager", "device": "cpu", "dtype": "float32",
     "block_size": 16, "time": "2026-01-31T12:00:00+00:00", "prompt": "Hello"}
    {"event": "prefilled", "at_s": 0.0, "texts": ["He"], "prompt_len": 9, "reused_len": 0, "new_ids": [1], "ms": 2.5}
    {"event": "drafted", "at_s": 0.1, "texts": ["l", "p"], "start": 9, "ids": [2, 3]}
    {"event": "verified", "at_s": 0.2, "texts": ["l", "lo"], "start": 9, "accepted": 1, "new_ids": [2, 4],
     "num_drafted": 2, "draft_ms": 1.0, "verify_ms": 3.0}
    {"event": "finished", "at_s": 0.2, "texts": [""], "reason": "stop", "ms": 200.0}

Head: `schema` is the version of the format, `program` that of dflash; `drafter` is null in plain decoding; `time` is
when the answer was recorded (ISO 8601, UTC); `prompt` may be missing. Events have the fields of `events.py`. `at_s`:
seconds since the first event. `texts`: one for each id, `finished` has one (what a possible stop string held back);
a character of several ids stands with the last of them. Joined, the texts of all but `drafted` are the answer.

A reader ignores keys it does not know and refuses a larger schema. A key or event is never renamed, and never means
something else, without a larger schema. An answer may lack its end: a crash can cut its last line. Imports no torch.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.overlay import TokenTexts
from dflash_cli.trace_fields import field_of, fields_of, short

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.speculative import Decoder
    from dflash_cli.text import TextCodec

SCHEMA = 1
HEAD = "head"
EVENTS: dict[str, type[Event]] = {
    "prefilled": Prefilled,
    "drafted": BlockDrafted,
    "verified": BlockVerified,
    "finished": Finished,
}
NAMES = {kind: name for name, kind in EVENTS.items()}
MICROSECONDS = 6  # digits of `at_s` that say something


@dataclass(frozen=True, slots=True)
class Head:
    """What made an answer, and when. `prompt` is None where it was not recorded."""

    schema: int
    program: str
    pair: str
    target: str
    drafter: str | None
    backend: str
    device: str
    dtype: str
    block_size: int
    time: str
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One event, the text of each of its ids (see `TokenTexts.of`), and its time since the first event."""

    event: Event
    texts: tuple[str, ...]
    at_s: float


@dataclass(frozen=True)
class Recording:
    """An answer as it came, whole or up to where it broke off."""

    head: Head
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """The answer, with the thinking and its tags."""
        return "".join(text for step in self.steps if not isinstance(step.event, BlockDrafted) for text in step.texts)


def head_of(model: Model, decoder: Decoder, prompt: str | None = None) -> Head:
    """The head of an answer that `decoder` makes now."""
    from dflash_cli import __version__

    backend, pair = decoder.backend, model.pair
    return Head(
        schema=SCHEMA,
        program=__version__,
        pair=pair.name,
        target=pair.target,
        drafter=pair.drafter if decoder.width > 1 else None,
        backend=backend.name,
        device=str(backend.device),
        dtype=str(backend.dtype).removeprefix("torch."),
        block_size=decoder.width,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        prompt=prompt,
    )


def record(
    events_with_times: Sequence[tuple[Event, float]], codec: TextCodec, stop: Sequence[str], head: Head
) -> Recording:
    """The recording of an answer's events, each with its time in seconds of any one clock."""
    texts = TokenTexts(codec, stop)
    begun = events_with_times[0][1] if events_with_times else 0.0
    return Recording(
        head, tuple(Step(event, texts.of(event), round(at - begun, MICROSECONDS)) for event, at in events_with_times)
    )


def to_lines(recording: Recording) -> Iterator[str]:
    """The lines of an answer, without newlines."""
    head = {key: value for key, value in asdict(recording.head).items() if key != "prompt" or value is not None}
    yield json.dumps({"event": HEAD, **head}, allow_nan=False)
    for step in recording.steps:
        entry = {"event": NAMES[type(step.event)], "at_s": step.at_s, "texts": step.texts, **asdict(step.event)}
        yield json.dumps(entry, allow_nan=False)


def from_lines(lines: Iterable[str], name: str = "the trace") -> list[Recording]:
    """The answers in the lines of a file called `name`; blank lines are skipped.

    A last line that was cut off, of the file or of an answer before another, is left out. Raises DFlashError for
    anything else that is not as it should be: which line, what was found, what was expected.
    """
    numbered = ((f"{name} line {number}", line) for number, line in enumerate(lines, 1) if line.strip())
    entries: list[tuple[str, dict[str, Any] | DFlashError | None]]
    entries = [(where, _entry(line, where)) for where, line in numbered]
    answers: list[tuple[Head, list[Step]]] = []
    for (where, entry), (_, following) in pairwise([*entries, ("", None)]):
        if isinstance(entry, DFlashError):
            if following is None or _is_head(following):
                continue
            raise entry
        assert entry is not None
        if _is_head(entry):
            answers.append((_head(entry, where), []))
        elif answers:
            _add(answers[-1][1], _step(entry, where), where)
        else:
            raise DFlashError(f"{where}: found the event {short(entry['event'])}; expected the head of an answer")
    return [Recording(head, tuple(steps)) for head, steps in answers]


def read_trace(path: Path) -> list[Recording]:
    """The answers in a file. Raises DFlashError, as `from_lines` does and for a file that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as err:
        raise DFlashError(f"the trace {path} cannot be read: {err.strerror or err}") from err
    return from_lines(text.split("\n"), str(path))


def _entry(line: str, where: str) -> dict[str, Any] | DFlashError:
    """The object in a line, or what is wrong with one that may have been cut off."""
    expected = "expected a JSON object with a key event"
    try:
        entry = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as err:
        problem = DFlashError(f"{where}: found what is not JSON ({err}); {expected}")
        if isinstance(err, json.JSONDecodeError) and line.startswith("{"):
            return problem
        raise problem from None
    if not isinstance(entry, dict) or "event" not in entry:
        raise DFlashError(f"{where}: found {short(entry)}; {expected}")
    return entry


def _is_head(entry: dict[str, Any] | DFlashError | None) -> bool:
    return isinstance(entry, dict) and entry["event"] == HEAD


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _head(entry: Mapping[str, object], where: str) -> Head:
    schema = field_of(entry, "schema", "int", where)
    if schema > SCHEMA:
        raise DFlashError(
            f"{where}: found a trace of schema {schema}; this dflash reads up to {SCHEMA}: update dflash to read it"
        )
    return Head(**fields_of(Head, entry, where))


def _step(entry: Mapping[str, object], where: str) -> Step:
    kind = EVENTS.get(entry["event"]) if isinstance(entry["event"], str) else None
    if kind is None:
        raise DFlashError(f"{where}: found the event {short(entry['event'])}; expected one of {', '.join(EVENTS)}")
    event: Event = kind(**fields_of(kind, entry, where))
    texts, at_s = field_of(entry, "texts", "tuple[str, ...]", where), field_of(entry, "at_s", "float", where)
    wanted = 1 if isinstance(event, Finished) else len(event.ids if isinstance(event, BlockDrafted) else event.new_ids)
    if len(texts) != wanted:
        raise DFlashError(f"{where}: found {len(texts)} texts; expected {wanted}, one for each id")
    if isinstance(event, BlockVerified) and event.accepted > min(event.num_drafted, len(event.new_ids)):
        raise DFlashError(f"{where}: found accepted {event.accepted}; expected at most num_drafted and the new ids")
    return Step(event, texts, at_s)


def _add(steps: list[Step], step: Step, where: str) -> None:
    if steps and isinstance(steps[-1].event, Finished):
        raise DFlashError(f"{where}: found an event after the end of an answer; expected the next head")
    steps.append(step)


class TraceWriter:
    """Appends answers to a file that only the user can read (mode 0600)."""

    def __init__(self, path: Path) -> None:
        """Raises DFlashError for a file that cannot be written or that holds something else; nothing is made yet."""
        self.path = path
        try:
            self._check()
        except OSError as err:
            raise self._error(err.strerror or str(err)) from err

    def write(self, recording: Recording) -> None:
        """Append an answer with one write, so that it stands there whole or not at all. Raises DFlashError.

        What a full disk takes of it is taken back.
        """
        data = "".join(line + "\n" for line in to_lines(recording)).encode("ascii")
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._append(handle, data)
            finally:
                os.close(handle)
        except OSError as err:
            raise self._error(err.strerror or str(err)) from err

    def _append(self, handle: int, data: bytes) -> None:
        status = os.fstat(handle)
        is_file = stat.S_ISREG(status.st_mode)
        if is_file and status.st_mode & 0o077:
            self.path.chmod(0o600)
        if is_file and status.st_size and not self._ends_a_line(handle):
            data = b"\n" + data  # a crash cut the last line
        count = os.write(handle, data)
        if count != len(data):
            if is_file:
                os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR) - count)
            raise self._error("there was no room for the whole answer; is the disk full?")
        if is_file:
            os.fsync(handle)

    @staticmethod
    def _ends_a_line(handle: int) -> bool:
        os.lseek(handle, -1, os.SEEK_END)
        return os.read(handle, 1) == b"\n"

    def _check(self) -> None:
        path = self.path
        if not path.parent.is_dir():
            raise self._error(f"the folder {path.parent} does not exist")
        if path.is_dir():
            raise self._error("it is a folder; expected a file")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise self._error("permission denied")
        if path.is_file():
            self._check_kind()

    def _check_kind(self) -> None:
        with self.path.open(encoding="utf-8", errors="replace") as file:
            line = next((line for line in file if line.strip()), None)
        if line is None:
            return
        try:
            is_trace = _is_head(_entry(line, ""))
        except DFlashError:
            is_trace = False
        if not is_trace:
            raise self._error("it holds something else than a trace; name a new file")

    def _error(self, why: str) -> DFlashError:
        return DFlashError(f"cannot write the trace {self.path}: {why}")
