"""The kinds of value a setting can have: how each is read from text, checked, and described."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?", re.ASCII)
SWITCH_WORDS = dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True) | dict.fromkeys(
    ("0", "false", "f", "no", "n", "off"), False
)


class Kind(ABC):
    """`check` takes a value of the right type, `parse` text; both give the value or raise ValueError."""

    expected = "text"
    metavar = "TEXT"
    choices: tuple[str, ...] = ()

    @abstractmethod
    def check(self, value: object) -> Any:
        """`value` as the setting holds it. Raises ValueError: what was found, what was expected."""

    def parse(self, text: str) -> Any:
        """The value that `text` (of a flag or a variable) stands for. Raises ValueError."""
        return self.check(text)

    def wrong(self, value: object) -> ValueError:
        """The error for a value that is not of this kind."""
        return ValueError(f"found {value!r}; expected {self.expected}")


@dataclass(frozen=True)
class Text(Kind):
    """Any text; the empty one only where `empty`."""

    metavar: str = "TEXT"
    empty: bool = False

    @property
    def expected(self) -> str:  # type: ignore[override]
        """In words."""
        return "text" if self.empty else "a text that is not empty"

    def check(self, value: object) -> str:
        """See Kind."""
        if not isinstance(value, str) or not (value or self.empty):
            raise self.wrong(value)
        return value


class File(Kind):
    """A path; `~` is expanded. Whether it can be read is seen when it is used."""

    expected = "a path"
    metavar = "FILE"

    def check(self, value: object) -> str:
        """See Kind."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.wrong(value)
        try:
            return str(Path(value).expanduser())
        except RuntimeError:  # ~nobody
            raise self.wrong(value) from None


class Folder(File):
    """A path of a folder."""

    metavar = "DIR"


class Choice(Kind):
    """One of a few words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.expected = "one of " + ", ".join(choices)
        self.metavar = "[" + "|".join(choices) + "]"

    def check(self, value: object) -> str:
        """See Kind."""
        if not isinstance(value, str) or value not in self.choices:
            raise self.wrong(value)
        return value


class Device(Kind):
    """Where to compute."""

    expected = "auto, cpu, cuda, cuda:N or mps"
    metavar = "DEVICE"
    choices = ("auto", "cpu", "cuda", "mps")

    def check(self, value: object) -> str:
        """See Kind."""
        if not isinstance(value, str) or not DEVICE.fullmatch(value):
            raise self.wrong(value)
        return value


class Switch(Kind):
    """On or off."""

    expected = "true or false"
    metavar = "BOOLEAN"

    def check(self, value: object) -> bool:
        """See Kind."""
        if not isinstance(value, bool):
            raise self.wrong(value)
        return value

    def parse(self, text: str) -> bool:
        """See Kind."""
        word = text.strip().lower()
        if word not in SWITCH_WORDS:
            raise self.wrong(text)
        return SWITCH_WORDS[word]


class Whole(Kind):
    """A whole number, at least `low` where that is given."""

    metavar = "N"

    def __init__(self, low: int | None = None) -> None:
        self.low = low
        self.expected = "a whole number" if low is None else f"a whole number of at least {low}"

    def check(self, value: object) -> int:
        """See Kind."""
        if not isinstance(value, int) or isinstance(value, bool) or (self.low is not None and value < self.low):
            raise self.wrong(value)
        return value

    def parse(self, text: str) -> int:
        """See Kind."""
        if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII):
            raise self.wrong(text)
        return self.check(int(text))


class WholeOrAuto(Kind):
    """A whole number of at least `low`, or the word `auto`, which is None."""

    metavar = "N|auto"
    choices = ("auto",)

    def __init__(self, low: int) -> None:
        self._whole = Whole(low)
        self.expected = f"{self._whole.expected}, or auto"

    def check(self, value: object) -> int | None:
        """See Kind."""
        return self._or_auto(value, self._whole.check)

    def parse(self, text: str) -> int | None:
        """See Kind."""
        return self._or_auto(text, self._whole.parse)

    def _or_auto(self, value: Any, take: Callable[[Any], int]) -> int | None:
        if value == "auto":
            return None
        try:
            return take(value)
        except ValueError:
            raise self.wrong(value) from None


class Number(Kind):
    """A finite number from `low` (`above`: not `low` itself) to `high`, where they are given."""

    metavar = "X"

    def __init__(self, low: float | None = None, high: float | None = None, *, above: bool = False) -> None:
        self.low, self.high, self.above = low, high, above
        limits = []
        if low is not None:
            limits.append(f"above {low:g}" if above else f"at least {low:g}")
        if high is not None:
            limits.append(f"at most {high:g}")
        self.expected = " ".join(["a number", " and ".join(limits)]).strip()

    def check(self, value: object) -> float:
        """See Kind."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self.wrong(value)
        too_low = self.low is not None and (value <= self.low if self.above else value < self.low)
        if too_low or (self.high is not None and value > self.high):
            raise self.wrong(value)
        return float(value)

    def parse(self, text: str) -> float:
        """See Kind."""
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(text) from None
        return self.check(value)


def split_list(text: str) -> list[str]:
    """A list in an environment variable: a JSON array of strings, or the whole text as its only member."""
    try:
        value = json.loads(text) if text.lstrip().startswith("[") else None
    except ValueError:
        value = None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return [text]
