"""Reading the fields of a `config.json`: each of the kind that is expected, or an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Item = TypeVar("Item", str, int)
LARGEST = 2.0**53  # whole numbers up to it are exact as floats; nothing in a configuration is larger


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: the message says what was found, what was expected and what to do."""


def need(config: Mapping[str, Any], key: str) -> Any:
    """Whatever is there. Raises CheckpointError where it is absent or null."""
    if config.get(key) is None:
        raise CheckpointError(f"config.json has no {key!r}, which this kind of checkpoint must have")
    return config[key]


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number, written as one; where it is absent or null, `default`. Raises CheckpointError."""
    value = number(config, key, default)
    if value != int(value):
        raise CheckpointError(f"config.json has {key} {config[key]!r}; expected a whole number")
    return int(value)


def number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A number; where it is absent or null, `default`. Raises CheckpointError."""
    value = need(config, key) if default is None else config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise CheckpointError(f"config.json has {key} {value!r}; expected a number")
    return float(value)


def array(config: Mapping[str, Any], key: str, kind: type[Item]) -> tuple[Item, ...]:
    """An array; empty where it is absent or null."""
    value = config.get(key)
    value = [] if value is None else value
    if not isinstance(value, list) or not all(type(item) is kind for item in value):
        what = "strings" if kind is str else "whole numbers"
        raise CheckpointError(f"config.json has {key} {value!r}; expected an array of {what}")
    return tuple(value)


def table(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object; empty where it is absent or null."""
    value = config.get(key)
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise CheckpointError(f"config.json has {key} {value!r}; expected an object")
    return dict(value)
