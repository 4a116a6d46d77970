"""`dflash sessions`: list, show, export and delete saved chats. Imports no torch."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_cli.cli import traceback_option
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_options import SessionName
from dflash_cli.session_records import in_words
from dflash_cli.session_store import SessionStore
from dflash_cli.terminal import AnswerOutput, is_terminal, printable

if TYPE_CHECKING:
    from dflash_cli.conversation import Turn
    from dflash_cli.session_file import Reading
    from dflash_cli.session_summary import Summary

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
HEADINGS = ("name", "changed", "turns", "pair", "first prompt")


@click.group(
    "sessions",
    short_help="List, show, export and delete saved chats.",
    invoke_without_command=True,
    context_settings=HELP_OPTIONS,
)
@click.pass_context
def sessions_command(ctx: click.Context) -> None:
    """Work with saved chats.

    `dflash chat --continue` goes on with the latest one, `dflash chat --resume NAME` with any.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@sessions_command.command("list", context_settings=HELP_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_command(as_json: bool) -> None:
    """List the saved chats, the one that was changed last first."""
    store = SessionStore()
    found = store.summaries()
    if as_json:
        click.echo(json.dumps([_as_json(each) for each in found], indent=2))
    elif found:
        _print_table([HEADINGS, *(_row(each) for each in found)])
    else:
        click.echo(f"dflash: no chat is saved in {store.folder}", err=True)


def _as_json(summary: Summary) -> dict[str, Any]:
    changed = datetime.fromtimestamp(summary.changed, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {**asdict(summary), "path": str(summary.path), "changed": changed}


def _row(summary: Summary) -> tuple[str, ...]:
    return summary.name, summary.when, str(summary.num_turns), summary.pair, summary.text


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Aligned, a line a row; on a terminal none is wider than it is."""
    from rich.cells import cell_len, set_cell_size

    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(HEADINGS) - 1)]
    limit = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    for row in cells:
        line = "  ".join([*map(set_cell_size, row, widths), row[-1]])
        click.echo((line if limit is None or cell_len(line) <= limit else set_cell_size(line, limit)).rstrip())


@sessions_command.command("show", context_settings=HELP_OPTIONS)
@click.argument("name", type=SessionName())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, as `export` writes it.")
def show_command(name: str, as_json: bool) -> None:
    """Print a saved chat: prompts behind `> `, answers as they are."""
    from dflash_cli.session_export import to_json

    store = SessionStore()
    name = store.find(name)
    reading = store.read(name)
    _print(to_json(*_page(name, reading)) if as_json else _as_text(reading))
    _complain(reading)


def _print(text: str) -> None:
    """A file may hold, as JSON's escapes, halves of characters that no output takes."""
    AnswerOutput().write(text.encode("utf-8", "replace").decode("utf-8"))


def _as_text(reading: Reading) -> str:
    parts = [] if reading.state.system is None else [f"[system] {reading.state.system}\n"]
    for turn in reading.state.turns:
        prompt = "".join(f"> {line}\n" for line in turn.prompt.split("\n"))
        answer = turn.answer if turn.answer.endswith("\n") else f"{turn.answer}\n"
        parts.append(prompt + answer + ("[interrupted]\n" if turn.interrupted else ""))
    return "\n".join(parts)


@sessions_command.command("export", context_settings=HELP_OPTIONS)
@click.argument("name", type=SessionName())
@click.argument("file", metavar="FILE.md|FILE.json", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def export_command(name: str, file: str, force: bool) -> None:
    """Write a saved chat to a file, as Markdown or JSON; `-` prints Markdown."""
    from dflash_cli.session_export import to_markdown, write_export

    store = SessionStore()
    name = store.find(name)
    reading = store.read(name)
    if file == "-":
        _print(to_markdown(*_page(name, reading)))
    else:
        path = write_export(Path(file), *_page(name, reading), overwrite=force, to_replace="add --force")
        click.echo(printable(f"dflash: {in_words(len(reading.state.saved_turns))} written to {path}"), err=True)
    _complain(reading)


def _page(name: str, reading: Reading) -> tuple[str, str, str | None, list[Turn]]:
    """What `session_export` writes: title, model, system prompt and turns."""
    state = reading.state
    return name, str(state.pair.get("pair", "unknown")), state.system, state.turns


def _complain(reading: Reading) -> None:
    """What could be read has been given; the rest is an error nonetheless."""
    if reading.problem:
        count = in_words(len(reading.state.saved_turns))
        raise DFlashError(f"{reading.problem}; only what comes before it could be read ({count})")


@sessions_command.command("delete", context_settings=HELP_OPTIONS)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=SessionName())
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_command(names: tuple[str, ...], yes: bool) -> None:
    """Delete saved chats; all of them, or none where one does not exist or is open."""
    store = SessionStore()
    found = list(dict.fromkeys(store.find(name) for name in names))
    what = f"the chat {found[0]!r}" if len(found) == 1 else f"{len(found)} chats ({', '.join(found)})"
    if not yes:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError(f"nobody is here to be asked whether to delete {what}; --yes deletes without asking")
        if not click.confirm(printable(f"Delete {what} for good?"), err=True):
            click.echo("dflash: nothing is deleted", err=True)
            return
    store.delete(found)
    click.echo(printable(f"dflash: deleted {what}"), err=True)


for _command in sessions_command.commands.values():
    _command.params.append(traceback_option(hidden=True))
