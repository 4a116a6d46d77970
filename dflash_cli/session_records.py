"""What a saved chat consists of: records, one JSON object a line, that add up to a conversation. Schema 1.

    {"type":"session","schema":1,"program":"0.1.0","created":"2026-01-31T12:00:00Z"}
    {"type":"pair","time":...,"pair":"qwen3-4b","target":...,"drafter":...,"backend":"eager","device":"cpu",
     "dtype":"float32","block_size":16,"settings":{"temperature":0.7}}
    {"type":"system","time":...,"system":"Be brief."}
    {"type":"turn","time":...,"prompt":...,"text":...,"thinking":...,"answer":...,"interrupted":false,"stats":{...}}
    {"type":"undo","time":...}   {"type":"clear","time":...}   {"type":"rename","time":...,"name":"Fibonacci"}

The first line is the session's. A pair holds until the next one; `settings` are those not at their default. `text` is
all that was generated, `thinking` and `answer` its parts; `stats` has the fields of `stats.AnswerStats`, and `events`,
where it is there, the lines of `trace.py` as objects. `undo` takes the last turn away, `clear` all.

A reader ignores types and keys it does not know and refuses a larger schema. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from dflash_cli.config import SETTINGS
from dflash_cli.conversation import Turn
from dflash_cli.errors import DFlashError
from dflash_cli.events import FinishReason
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.speculative import Decoder
    from dflash_cli.trace import Recording

SCHEMA = 1
SAVED_GROUPS = ("model", "text", "sampling")
NOT_SAVED = ("model", "draft", "backend", "device", "dtype", "block", "system", "offline")  # or elsewhere
PAIR_KEYS = ("pair", "target", "drafter", "backend", "device", "dtype", "block_size")
Record = dict[str, Any]


def now() -> str:
    """The time as records have it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def in_words(num_turns: int) -> str:
    """`1 turn`, `2 turns`."""
    return f"{num_turns} turn{'' if num_turns == 1 else 's'}"


def encode(record: Record) -> bytes:
    """A record as a line. JSON's own escapes stand for what UTF-8 cannot hold."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def decode(line: bytes) -> Record:
    """The record of a line. Raises ValueError: what was found, what was expected."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise ValueError(f"it is not JSON ({err})") from None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise ValueError("it is not a JSON object with a type")
    return record


def new_session() -> Record:
    """The first record of a file."""
    from dflash_cli import __version__

    return {"type": "session", "schema": SCHEMA, "program": __version__, "created": now()}


def check_session(record: Record) -> None:
    """Raises ValueError for what is no first record, DFlashError for one of a newer schema."""
    schema = record.get("schema")
    if record["type"] != "session" or not isinstance(schema, int):
        raise ValueError("it is not the beginning of a saved chat")
    if schema > SCHEMA:
        raise DFlashError(
            f"found a chat of schema {schema}, saved by dflash {record.get('program')}; this dflash reads up to "
            f"{SCHEMA}: update dflash to open it"
        )


def pair_to_record(model: Model, decoder: Decoder) -> Record:
    """What makes the answers now, and the settings that are not at their default."""
    from dflash_cli.trace import head_of

    head = head_of(model, decoder)
    settings = {
        name: list(value) if each.many else value
        for name, each in SETTINGS.items()
        if each.group in SAVED_GROUPS and name not in NOT_SAVED
        if (value := getattr(model.config, name)) != each.default
    }
    return {"type": "pair", "time": now(), **{key: getattr(head, key) for key in PAIR_KEYS}, "settings": settings}


def turn_to_record(turn: Turn, recording: Recording | None = None) -> Record:
    """All there is of a turn, with the events of its answer where they are given."""
    texts = {each.name: getattr(turn, each.name) for each in fields(Turn) if each.name != "stats"}
    figures = {each.name: getattr(turn.stats, each.name) for each in fields(AnswerStats)}
    record = {"type": "turn", "time": now(), **texts, "interrupted": turn.interrupted, "stats": figures}
    if recording is not None:
        from dflash_cli.trace import to_lines

        record["events"] = [json.loads(line) for line in to_lines(recording)]
    return record


def turn_from_record(record: Record) -> Turn:
    """The turn of a record; figures that it does not have are at their defaults. Raises ValueError."""
    texts = {each.name: record.get(each.name, "") for each in fields(Turn) if each.name != "stats"}
    if "prompt" not in record or "answer" not in record:
        raise ValueError("it is a turn without a prompt or an answer")
    if wrong := next((name for name, text in texts.items() if not isinstance(text, str)), None):
        raise ValueError(f"its {wrong} is not text")
    return Turn(**texts, stats=_stats(record.get("stats", {})))


def _stats(figures: object) -> AnswerStats:
    if not isinstance(figures, dict):
        raise ValueError("its stats are not an object")
    known = {each.name: str(each.type) for each in fields(AnswerStats) if each.name in figures}
    for name, kind in known.items():
        if kind in _CHECKS and not _CHECKS[kind](figures[name]):
            raise ValueError(f"its {name} is not {kind}: found {str(figures[name])[:40]}")
    return AnswerStats(**{name: figures[name] for name in known})


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": _is_whole,
    "int | None": lambda value: value is None or _is_whole(value),
    "float": lambda value: _is_whole(value) or isinstance(value, float),
    "list[int]": lambda value: isinstance(value, list) and all(map(_is_whole, value)),
    "FinishReason": lambda value: value in get_args(FinishReason),
}


def fold_turns(turns: list[Any], kind: str, turn: Any) -> None:
    """What a record of a type does to the turns; `turn` is what one of type turn adds."""
    if kind == "turn":
        turns.append(turn)
    elif kind == "undo":
        del turns[-1:]
    elif kind == "clear":
        turns.clear()


@dataclass(frozen=True)
class SavedTurn:
    """A turn of a saved chat: when it ended (UTC), the record of the pair that answered and the system prompt then."""

    turn: Turn
    time: str
    pair: Record
    system: str | None


@dataclass
class SessionState:
    """What the records so far add up to. `pair` is the last pair's record, `system` the system prompt."""

    created: str = ""
    pair: Record = field(default_factory=dict)
    system: str | None = None
    saved_turns: list[SavedTurn] = field(default_factory=list)

    @property
    def turns(self) -> list[Turn]:
        """The turns that are in the conversation."""
        return [each.turn for each in self.saved_turns]

    def add(self, record: Record, turn: Turn | None = None) -> None:
        """Take one more record; `turn` is what one of type turn holds, where it is known. Raises ValueError."""
        kind, time = record["type"], str(record.get("time", ""))
        if kind == "session":
            self.created = str(record.get("created", ""))
        elif kind == "pair":
            self.pair = record
        elif kind == "system":
            self.system = _text_or_none(record.get("system"))
        else:
            is_turn = kind == "turn"
            fold_turns(
                self.saved_turns,
                kind,
                SavedTurn(turn or turn_from_record(record), time, self.pair, self.system) if is_turn else None,
            )

    def other_pair(self, model: Model) -> str:
        """A remark where the chat was made with another target than `model`'s, or an empty string."""
        theirs, name = self.pair.get("target"), self.pair.get("pair")
        if not self.saved_turns or theirs in (None, model.pair.target):
            return ""
        return f"this chat was made with {name or theirs}; {model.pair.name} goes on with it"


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("its system prompt is not text")
    return value
