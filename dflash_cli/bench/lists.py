"""Options that take several values with commas between them. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_cli.errors import nearest

if TYPE_CHECKING:
    from dflash_cli.setting_kinds import Kind

    ParamType = click.ParamType[Any]
else:  # click 8.1's class takes no type argument
    ParamType = click.ParamType


class ListOf(ParamType):
    """`a,b,c`, each of a kind of setting; each value once."""

    name = "list"

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        """What help shows for the value."""
        word = "|".join(self.kind.choices) or self.kind.metavar
        return f"{word},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A tuple of checked values."""
        if not isinstance(value, str):
            return value
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not words:
            self.fail(
                f"found {value!r}; expected {self.kind.expected}, or several with commas between them", param, ctx
            )
        return tuple(dict.fromkeys(self._parse(word, param, ctx) for word in words))

    def _parse(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.parse(word)
        except ValueError as err:
            self.fail(f"{err}{nearest(word, list(self.kind.choices))}", param, ctx)
