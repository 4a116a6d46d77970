"""The settings as command-line options, made from the fields of `Config`: flag > environment > file > default.

click itself decides which source wins; `settings` hands the command the result as one `Config`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dflash_cli.config import GROUPS, SETTINGS, Config, Setting
from dflash_cli.config_file import config_path, read_config, unknown_variables
from dflash_cli.errors import UsageError
from dflash_cli.setting_kinds import File, Switch, split_list

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # click 8.1's class takes no type argument
    ParamType = click.ParamType
Function = Callable[..., Any]
CONFIG_ERROR = "dflash.config_error"
CONFIG_FILE = "dflash.config_file"
no_color_option = functools.partial(click.option, "--no-color", is_flag=True, help="The same as --color never.")


class SettingType(ParamType):
    """A setting's kind as click's type."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.name = setting.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        """What help shows for the value."""
        return self.setting.kind.metavar

    def split_envvar_value(self, rv: str) -> list[str]:
        """See `split_list`."""
        return split_list(rv)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text from a flag or variable, or a checked value from the file."""
        kind = self.setting.kind
        try:
            return kind.parse(value) if isinstance(value, str) else kind.check(value)
        except ValueError as err:
            self.fail(str(err), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Choices, aliases, or the shell's own completion of paths."""
        words = list(self.setting.kind.choices)
        if self.name in ("model", "draft"):
            from dflash_cli.models import NO_DRAFTER, PAIRS

            words = [*PAIRS, *([NO_DRAFTER] if self.name == "draft" else [])]
        items = [CompletionItem(word) for word in words if word.startswith(incomplete)]
        paths = isinstance(self.setting.kind, File) or (self.name in ("model", "draft") and not items)
        return [CompletionItem(incomplete, type="file")] if paths else items


class SettingOption(click.Option):
    """An option whose errors name the flag, variable or file that the value came from."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """See click."""
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as err:
            message = f"found {value!r}; expected true or false" if self.is_bool_flag else err.message
            raise click.BadParameter(message, ctx, self, self._origin(ctx)) from err

    def _origin(self, ctx: click.Context) -> str | None:
        source = ctx.get_parameter_source(self.name or "")
        if source is ParameterSource.ENVIRONMENT:
            return f"the variable {self.envvar}"
        return f"{self.name} in {ctx.meta.get(CONFIG_FILE)}" if source is ParameterSource.DEFAULT_MAP else None


class NoColor(click.Option):
    """`--no-color`, another way to say `--color never`: of the two the later one wins."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ARG002
        """See click: on the command line it is the option `--color`, with its value."""
        parser.add_option(obj=self, opts=self.opts, dest="color", action="store_const", const="never")

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> Any:
        """See click; before any other option takes its value. One before the subcommand counts, too."""
        if ctx.find_root().params.get("no_color"):
            opts.setdefault("color", "never")
        return super().handle_parse_result(ctx, opts, args)


def settings(*wanted: str, without: tuple[str, ...] = (), lenient: bool = False) -> Callable[[Function], Function]:
    """Add options for settings to a command, which gets them as its argument `config`; all of them by default.

    `wanted` are groups (`config.GROUPS`) or single settings; those left out, and those in `without`, keep their
    defaults in the `Config`.
    `lenient` goes on without the file where it is broken, and leaves the error in `ctx.meta[CONFIG_ERROR]`.
    """
    unknown = set(wanted) - set(GROUPS) - set(SETTINGS)
    assert not unknown, unknown
    chosen = [each for each in SETTINGS.values() if not wanted or each.group in wanted or each.name in wanted]
    chosen = [each for each in chosen if each.name not in without]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            config = Config(**{each.name: kwargs.pop(each.name) for each in chosen})
            for problem in unknown_variables(os.environ) if not config.quiet else ():
                click.echo(f"dflash: warning: {problem}", err=True)
            if config.verbose:
                click.echo(f"dflash: settings: {', '.join(provenance(click.get_current_context()))}", err=True)
            return function(*args, config=config, **kwargs)

        wrapped: Function = command
        for each in reversed(chosen):
            if each.name == "color":
                wrapped = no_color_option(cls=NoColor, is_eager=True, expose_value=False)(wrapped)
            wrapped = _option(each)(wrapped)
        return _file_option(lenient)(wrapped)

    return decorate


def provenance(ctx: click.Context) -> list[str]:
    """`context = 4096 (DFLASH_CONTEXT)` for each setting of a command that is not at its default."""
    lines = []
    for name, setting in SETTINGS.items():
        if came_from := origin(ctx, setting):
            value = ctx.params[name]
            lines.append(f"{name} = {list(value) if setting.many else value!r} ({came_from})")
    return lines or ["all at their defaults"]


def origin(ctx: click.Context, setting: Setting) -> str:
    """Where a command's setting comes from: command line, variable or file; "" where it is at its default."""
    source = ctx.get_parameter_source(setting.name)
    if setting.name not in ctx.params or source in (None, ParameterSource.DEFAULT):
        return ""
    origins = {
        ParameterSource.COMMANDLINE: "command line",
        ParameterSource.ENVIRONMENT: setting.variable,
        ParameterSource.DEFAULT_MAP: str(ctx.meta.get(CONFIG_FILE)),
    }
    return str(origins.get(source, source))


def _option(setting: Setting) -> Callable[[Function], Function]:
    is_switch = isinstance(setting.kind, Switch)
    return click.option(
        setting.name,
        *setting.flags,
        cls=SettingOption,
        type=None if is_switch else SettingType(setting),
        default=setting.default,
        multiple=setting.many,
        envvar=setting.variable,
        show_default=not (is_switch or setting.many),
        help=setting.help,
    )


def _file_option(lenient: bool) -> Callable[[Function], Function]:
    """`--config` after the subcommand, and the reading of the file before any other option takes its value."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if ctx.resilient_parsing:
            return
        if ctx.get_parameter_source(param.name or "") is not ParameterSource.COMMANDLINE:
            value = ctx.find_root().params.get("config") or value
        ctx.meta[CONFIG_FILE] = config_path(value)
        try:
            # Not below ctx.parent's map: a file may hold keys that this command has no option for.
            ctx.default_map = read_config(value)
        except UsageError as err:
            if not lenient:
                raise
            ctx.meta[CONFIG_ERROR] = err

    return click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        envvar="DFLASH_CONFIG",
        is_eager=True,
        expose_value=False,
        callback=read,
        hidden=True,
    )
