"""The values in a line of a trace, checked one by one. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args

from dflash_cli.errors import DFlashError
from dflash_cli.events import FinishReason

SHOWN = 60  # characters of a wrong value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _is_list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(map(check, value))


CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (_is_whole, "a whole number of at least 0"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "text"),
    "str | None": (lambda value: value is None or isinstance(value, str), "text or null"),
    "tuple[int, ...]": (_is_list_of(_is_whole), "a list of whole numbers of at least 0"),
    "tuple[str, ...]": (_is_list_of(lambda value: isinstance(value, str)), "a list of texts"),
    "FinishReason": (lambda value: value in get_args(FinishReason), f"one of {', '.join(get_args(FinishReason))}"),
}
"""What each type of a field allows, and in words."""


def fields_of(kind: type[Any], entry: Mapping[str, object], where: str) -> dict[str, Any]:
    """The values for the fields of a dataclass. Raises DFlashError, as `field_of` does."""
    return {each.name: field_of(entry, each.name, str(each.type), where) for each in fields(kind)}


def field_of(entry: Mapping[str, object], key: str, kind: str, where: str) -> Any:
    """The value under a key, of a type in `CHECKS`. Raises DFlashError: where, what was found, what was expected."""
    check, expected = CHECKS[kind]
    if key not in entry and kind != "str | None":
        raise DFlashError(f"{where}: the key {key} is missing; expected {expected}")
    found = entry.get(key)
    value: object = tuple(found) if isinstance(found, list) else found
    if kind == "float" and isinstance(found, int) and not isinstance(found, bool):
        value = _as_float(found)
    if not check(value):
        raise DFlashError(f"{where}: found {key} {short(found)}; expected {expected}")
    return value


def _as_float(whole: Any) -> float:
    try:
        return float(whole)
    except OverflowError:
        return math.inf


def short(value: object) -> str:
    """A JSON value as a message shows it."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
