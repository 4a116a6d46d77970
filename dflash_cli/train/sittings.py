"""The sittings a drafter was trained in, each begun with the weights of the one before, kept beside its weights.

Imports no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dflash_cli.errors import DFlashError
from dflash_cli.train.curve import Point

FILE = "training.json"


@dataclass(frozen=True)
class Sitting:
    """What one run has put into the weights.

    `steps`, `tokens` (of answers), `seconds`: until they were measured. `data`: documents by source. `curve`: each
    measurement until then. `begun_with`: the name of a drafter of whose training nothing was recorded. `held`: keys of
    the prompts that it measured on and did not train on; none where an older version did not record them. `given_up`:
    (step, steps in all that the learning rate's schedule had until then) of each change of its length.
    """

    steps: int
    tokens: int
    seconds: float
    machine: str
    command: str
    data: dict[str, int]
    curve: list[Point]
    begun_with: str | None = None
    held: list[str] = field(default_factory=list)
    given_up: list[tuple[int, int]] = field(default_factory=list)


def record(sittings: Sequence[Sitting]) -> bytes:
    """The content of the file, for `read_sittings`."""
    return (json.dumps({"sittings": as_dicts(sittings)}, indent=1) + "\n").encode()


def read_sittings(folder: Path) -> list[Sitting]:
    """The sittings of the drafter in `folder`, the first one first; none where it has no record that can be read."""
    try:
        return recorded_sittings(folder)
    except DFlashError:
        return []


def recorded_sittings(folder: Path) -> list[Sitting]:
    """The same; raises DFlashError where there is a record that cannot be read."""
    try:
        return from_dicts(json.loads((folder / FILE).read_bytes())["sittings"])
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DFlashError(f"{folder / FILE} cannot be read: it says what that drafter was trained on") from None


def as_dicts(sittings: Sequence[Sitting]) -> list[dict[str, Any]]:
    """As JSON values."""
    return [asdict(each) for each in sittings]


def from_dicts(values: list[dict[str, Any]]) -> list[Sitting]:
    """The same from JSON values. Raises KeyError, TypeError, ValueError for others."""
    return [_sitting(value) for value in values]


def _sitting(value: dict[str, Any]) -> Sitting:
    if not isinstance(value, dict):
        raise TypeError(value)
    begun_with = value.get("begun_with")
    return Sitting(
        steps=_count(value["steps"]),
        tokens=_count(value["tokens"]),
        seconds=_number(value["seconds"]),
        machine=str(value["machine"]),
        command=str(value["command"]),
        data={str(source): _count(count) for source, count in dict(value["data"]).items()},
        curve=[(_count(step), _count(tokens), _number(tau)) for step, tokens, tau in value["curve"]],
        begun_with=None if begun_with is None else str(begun_with),
        held=[str(key) for key in list(value.get("held", []))],
        given_up=[(_count(step), _count(planned)) for step, planned in value.get("given_up", [])],
    )


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _number(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError(value)
    return number


def whole_curve(earlier: Sequence[Sitting], curve: Sequence[Point]) -> list[Point]:
    """The curve over all sittings: each goes on where the one before ended."""
    points: list[Point] = []
    steps = tokens = 0
    for each in earlier:
        points += [(steps + step, tokens + count, tau) for step, count, tau in each.curve]
        steps, tokens = steps + each.steps, tokens + each.tokens
    return points + [(steps + step, tokens + count, tau) for step, count, tau in curve]


def later(earlier: Sequence[Sitting], entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of the metrics with the tokens of all sittings."""
    before = sum(each.tokens for each in earlier)
    return [entry | {"tokens": before + entry["tokens"]} for entry in entries]
