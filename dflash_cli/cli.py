"""The command `dflash`: a table of lazily imported subcommands, and `main`, the only place that prints errors."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.options import SettingOption, no_color_option

NAME = "dflash"
INTERRUPTED = 130
COMMANDS = {
    "chat": ("dflash_cli.chat:chat_command", "Talk with a model."),
    "run": ("dflash_cli.run:run_command", "Answer prompts from files or stdin."),
    "sessions": ("dflash_cli.sessions_command:sessions_command", "List, show, export and delete saved chats."),
    "stats": ("dflash_cli.stats_command:stats_command", "Show what speculation did for you."),
    "replay": ("dflash_cli.replay_command:replay_command", "Play a trace again, or make a page of it."),
    "bench": ("dflash_cli.bench.command:bench_command", "Measure plain decoding, DFlash and others side by side."),
    "train-drafter": ("dflash_cli.train.command:train_command", "Train a drafter for a target."),
    "models": ("dflash_cli.models_command:models_command", "List models, what is cached, and expected acceptance."),
    "doctor": ("dflash_cli.doctor:doctor_command", "Check this installation and machine."),
    "completion": (
        "dflash_cli.completion_command:completion_command",
        "Print the script for completion in bash, zsh or fish.",
    ),
}
"""Name -> where the command is, imported on first use, and its line in the help."""


class ReaderGone(Exception):  # noqa: N818
    """Whoever read stdout has closed it, as `head` does. click would make exit status 1 of a BrokenPipeError."""


@contextlib.contextmanager
def _pipes_may_close() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as err:
        raise ReaderGone from err


class LazyGroup(click.Group):
    """A group that knows its commands from `COMMANDS` and imports the one that is used."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See click; `--help` prints from here."""
        with _pipes_may_close():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """See click."""
        with _pipes_may_close():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """See click; in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """See click."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if all(param.name != "traceback" for param in command.params):
            command.params.append(traceback_option(hidden=True))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click. Raises UsageError that names the nearest command."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            hint = nearest(name, list(COMMANDS)) or f". Known are {', '.join(COMMANDS)}"
            raise UsageError(f"unknown command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See click; from the table, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See click; commands come from the table."""
        items = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return items + click.Command.shell_complete(self, ctx, incomplete)


@dataclass
class Boundary:
    """What `main` has to know about a run before it can deal with an error of it."""

    traceback: bool


def traceback_option(*, hidden: bool = False) -> click.Option:
    """`--traceback`, before or after the subcommand."""

    def note(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        boundary = ctx.find_root().obj
        if value and isinstance(boundary, Boundary):
            boundary.traceback = True

    return SettingOption(
        ["--traceback"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=note,
        envvar="DFLASH_TRACEBACK",
        hidden=hidden,
        help="Show where an error comes from.",
    )


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from dflash_cli import __version__

        click.echo(f"{NAME} {__version__}")
        ctx.exit()


@click.command(
    NAME,
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every setting is also a DFLASH_<NAME> variable and a key of config.toml. A flag wins over the variable, "
    "the variable over the file.",
)
@click.option("--config", type=click.Path(), metavar="FILE", envvar="DFLASH_CONFIG", help="Configuration file to read.")
@no_color_option()
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def app(ctx: click.Context, config: str | None, no_color: bool) -> None:  # noqa: ARG001
    """Chat with large language models in a terminal, faster through DFlash speculative decoding, and see why."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


app.params.insert(1, traceback_option())


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 ok, 1 failure, 2 usage, 130 interrupted.

    Whatever goes wrong is told in one line on stderr, or raised again with `--traceback`. A reader that closes stdout
    early, as `head` does, is no error.
    """
    args = sys.argv[1:] if args is None else list(args)
    boundary = Boundary("--traceback" in args)  # an error may come before the option has its turn
    try:
        status = app.main(args=args, prog_name=NAME, standalone_mode=False, obj=boundary)
        _flush_stdout()
    except (ReaderGone, BrokenPipeError):
        return _close_stdout(0)
    except (KeyboardInterrupt, Exception) as err:
        if _is_interrupt(err):
            return _close_stdout(INTERRUPTED)
        if boundary.traceback:
            raise
        text, code = describe(err)
        _print_error(text)
        return _close_stdout(code)
    return status if isinstance(status, int) else 0


def describe(err: BaseException) -> tuple[str, int]:
    """An error as a text for people, and the exit status."""
    if isinstance(err, DFlashError):
        return str(err), err.exit_code
    if isinstance(err, click.ClickException):
        ctx = err.ctx if isinstance(err, click.UsageError) else None
        hint = f" (see `{ctx.command_path} --help`)" if ctx is not None else ""
        return err.format_message().rstrip(".") + hint, err.exit_code
    if isinstance(err, click.Abort):  # the end of input where a question was asked
        return "the input ended before the question was answered", 1
    if _is_out_of_memory(err):
        advice = "use a smaller --context, --draft none, --dtype bfloat16 or a smaller model"
        return f"out of memory ({_first_line(err)}): {advice}", 1
    if isinstance(err, OSError) and err.strerror:
        where = f": {os.fsdecode(err.filename)}" if isinstance(err.filename, str | bytes) else ""
        return err.strerror + where, 1
    if isinstance(err, ValueError | OSError) and str(err):
        return str(err), 1
    return f"unexpected {type(err).__name__}: {_first_line(err)}; run again with --traceback and report it", 1


def one_line(text: str) -> str:
    """Whitespace folded, and characters that would move the cursor or hide text made visible."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in " ".join(text.split())
    )


def _first_line(err: BaseException) -> str:
    return next(iter(str(err).strip().splitlines()), "") or type(err).__name__


def _is_interrupt(err: BaseException) -> bool:
    """click turns Ctrl-C and the end of input into the same Abort; its cause tells them apart."""
    return isinstance(err, KeyboardInterrupt) or (
        isinstance(err, click.Abort) and not isinstance(err.__cause__, EOFError)
    )


def _is_out_of_memory(err: BaseException) -> bool:
    torch = sys.modules.get("torch")
    known: Any = getattr(torch, "OutOfMemoryError", None)
    if isinstance(err, MemoryError) or (known is not None and isinstance(err, known)):
        return True
    return isinstance(err, RuntimeError) and "can't allocate memory" in str(err)


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"{NAME}: error: {one_line(text)}", err=True)


def _flush_stdout() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _close_stdout(status: int) -> int:
    """Flush stdout; where that fails, let what is left go nowhere, or the interpreter would complain at its exit."""
    try:
        _flush_stdout()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            handle = os.open(os.devnull, os.O_WRONLY)
            os.dup2(handle, sys.stdout.fileno())
            os.close(handle)
    return status
