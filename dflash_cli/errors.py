"""The errors that a person is meant to read; `cli.main` is the only place that prints them."""

from __future__ import annotations


class DFlashError(Exception):
    """Something a person can act on: the message names the thing, what was found, what was expected, what to do.

    `exit_code` is the process's exit status when the error reaches the command line.
    """

    exit_code = 1


class UsageError(DFlashError):
    """The command was asked for something that does not exist or does not go together (exit status 2)."""

    exit_code = 2


def nearest(word: str, known: list[str]) -> str:
    """A `; did you mean X?` tail for the known word closest to `word`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
