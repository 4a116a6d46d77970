"""`dflash stats`: what speculation did for you, from the figures that answers left. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_cli.cli import traceback_option
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.options import settings
from dflash_cli.stats import counted
from dflash_cli.stats_store.definitions import as_text
from dflash_cli.stats_store.selection import Selection, parse_day
from dflash_cli.terminal import AnswerOutput, is_terminal, printable

if TYPE_CHECKING:
    from dflash_cli.stats_store.store import StatsStore

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
GROUPS = ("pair", "backend", "day", "temperature", "kind", "depth")
VIEWS = ("overview", "lengths", "positions", "time", "trend", "turns")
TURNS = 20  # turns that the view of the last ones shows, unless --last says how many
SELECTING = ("since", "pair", "backend", "last")
Function = Callable[..., Any]


class DefinedGroup(click.Group):
    """A group whose help ends with the definitions of what it shows."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See click."""
        with formatter.section("Definitions"):
            formatter.write_text(as_text())


class Day(click.ParamType):  # type: ignore[type-arg]
    """A day, as ISO 8601."""

    name = "DAY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click."""
        try:
            return parse_day(value)
        except UsageError as err:
            self.fail(str(err), param, ctx)


def selecting(function: Function) -> Function:
    """The options that choose turns."""
    options = [
        click.option("--since", type=Day(), help="From a day on: 2026-01-31, today, yesterday, 7d, 2w."),
        click.option("--pair", metavar="NAME", help="Of a pair only: its alias, or what --model named."),
        click.option("--backend", metavar="NAME", help="Of a backend only."),
        click.option("--last", type=click.IntRange(1), metavar="N", help="The newest N of these turns."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.group(
    "stats",
    cls=DefinedGroup,
    short_help="Show what speculation did for you.",
    invoke_without_command=True,
    context_settings=HELP_OPTIONS,
)
@click.option("--view", type=click.Choice(VIEWS), help="What to show (default: overview).")
@click.option("--by", type=click.Choice(GROUPS), help="A row for each pair, backend, day, ...")
@selecting
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--plot", type=click.Path(), metavar="FILE.png|FILE.svg", help="Draw the figures (needs matplotlib).")
@click.option("--html", type=click.Path(), metavar="FILE.html", help="Write a report that needs no other file.")
@click.option("--watch", is_flag=True, help="Follow a running chat from another terminal.")
@settings("color")
@click.pass_context
def stats_command(ctx: click.Context, /, config: Config, **given: Any) -> None:
    """Show what speculation did for you: the figures of every answer of `chat` and `run`.

    No text of a prompt or an answer is kept. `--no-stats`, or stats = false in config.toml, keeps no figures either.
    """
    asked = {name: value for name, value in given.items() if value}
    if ctx.invoked_subcommand is not None:
        if asked:
            raise UsageError(f"{_flag(next(iter(asked)))} has no place before {ctx.invoked_subcommand!r}")
        return
    _check(asked)
    store, chosen = _store(), _selection(given)
    if given["watch"]:
        from dflash_cli.stats_store.watch import watch

        watch(store, chosen, has_color=config.wants_color(sys.stdout))
    elif given["plot"] or given["html"]:
        _write(store, chosen, given["plot"], given["html"])
    else:
        _show(store, chosen, given["by"] or given["view"] or VIEWS[0], config, given["as_json"], given["as_csv"])
    _remark(store)


def _selection(given: dict[str, Any]) -> Selection:
    return Selection(**{name: given[name] for name in SELECTING if given[name] is not None})


def _flag(name: str) -> str:
    return f"--{name.removeprefix('as_')}"


def _check(asked: dict[str, Any]) -> None:
    outputs = [name for name in ("as_json", "as_csv", "watch", "plot", "html") if name in asked]
    views = [name for name in ("view", "by") if name in asked]
    if len(outputs) > 1:
        raise UsageError(f"{_flag(outputs[0])} and {_flag(outputs[1])} do not go together")
    if len(views) > 1:
        raise UsageError("--view and --by do not go together: --by is a view of its own")
    if views and outputs and outputs[0] in ("watch", "plot", "html"):
        raise UsageError(f"{_flag(outputs[0])} shows what it shows; it does not go with --{views[0]}")


def _store() -> StatsStore:
    from dflash_cli.stats_store.store import StatsStore

    return StatsStore()


def _remark(store: StatsStore) -> None:
    if store.remark:
        click.echo(printable(f"dflash: warning: {store.remark}"), err=True)
    store.close()


def _say(text: str) -> None:
    click.echo(printable(f"dflash: {text}"), err=True)


def _empty(store: StatsStore, selection: Selection) -> str:
    if selection == Selection():
        return (
            f"no turns yet: each answer of `dflash chat` and `dflash run` leaves its figures in {store.path}, unless "
            "--no-stats or stats = false turns that off"
        )
    return f"no turn matches ({selection.words}); `dflash stats` shows what there is"


def _show(store: StatsStore, selection: Selection, view: str, config: Config, as_json: bool, as_csv: bool) -> None:
    from dflash_cli.stats_store import export, show

    shown = show.show(store, selection, view, TURNS)
    if as_json:
        AnswerOutput().write(export.to_json(shown.data))
    elif as_csv:
        AnswerOutput().write(export.to_csv(shown.rows))
    elif shown.is_empty:
        _say(_empty(store, selection))
    else:
        from dflash_cli.stats_store.tables import console_for, encodable

        encodable(console_for(config.wants_color(sys.stdout)), shown.picture())


def _write(store: StatsStore, selection: Selection, plot: str | None, html: str | None) -> None:
    from dflash_cli.stats_store.views import overview

    if not overview(store, selection).figures.turns:
        raise DFlashError(_empty(store, selection))
    if plot:
        from dflash_cli.stats_store.plot import write_plot

        path = write_plot(store, selection, Path(plot))
    else:
        from dflash_cli.stats_store.report import write_report

        assert html is not None
        path = write_report(store, selection, Path(html))
    _say(f"written to {path}")


@stats_command.command("show", context_settings=HELP_OPTIONS)
@click.argument("turn", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings("color", "theme")
def show_command(turn: str, as_json: bool, config: Config) -> None:
    """Show one turn: its figures and, where it was traced, its blocks. TURN is a number, `last` or a trace's file."""
    from dflash_cli.stats_store.export import to_json
    from dflash_cli.stats_store.show import show_trace, show_turn

    is_number = turn.isascii() and turn.isdigit()
    if turn != "last" and not is_number:
        if not Path(turn).is_file():
            raise UsageError(f"found {turn!r}; expected a turn's number, `last`, or the file of a trace")
        show_trace(Path(turn), config, as_json=as_json)
        return
    store = _store()
    data = show_turn(store, int(turn) if is_number else None, config, as_json=as_json)
    if data is None:
        raise UsageError(f"there is no turn {turn}; `dflash stats --view turns` lists the newest")
    if as_json:
        AnswerOutput().write(to_json(data))
    _remark(store)


@stats_command.command("compare", context_settings=HELP_OPTIONS)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@selecting
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings("color")
def compare_command(first: str, second: str, as_json: bool, config: Config, **selection: Any) -> None:
    """Compare two sets of turns, B against A.

    Each is a turn's number, a pair, backend, kind or version, or as in backend=eager,kind=code.
    """
    from dflash_cli.stats_store.compare import compare
    from dflash_cli.stats_store.export import to_json
    from dflash_cli.stats_store.tables import console_for, encodable

    store = _store()
    compared = compare(store, _selection(selection), first, second)
    if as_json:
        AnswerOutput().write(to_json(compared.as_dict()))
    else:
        encodable(console_for(config.wants_color(sys.stdout)), compared.view())
    _remark(store)


@stats_command.command("prune", context_settings=HELP_OPTIONS)
@click.option("--before", type=Day(), required=True, help="The first day to keep: 2026-01-31, 90d, ...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune_command(before: str, yes: bool) -> None:
    """Forget the figures of all days before one, for good."""
    store = _store()
    rows = store.query("SELECT SUM(turns) FROM sums WHERE day < ?", (before,))
    count = (rows[0][0] if rows else 0) or 0
    if not count:
        _say(f"there are no turns before {before}")
        return
    if not yes:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError(
                f"nobody is here to be asked whether to forget {counted(count, 'turn')}; --yes does not ask"
            )
        if not click.confirm(f"Forget the figures of {counted(count, 'turn')} before {before} for good?", err=True):
            _say("nothing is forgotten")
            return
    _say(f"forgot {counted(store.prune(before), 'turn')}")
    _remark(store)


for _command in stats_command.commands.values():
    _command.params.append(traceback_option(hidden=True))
