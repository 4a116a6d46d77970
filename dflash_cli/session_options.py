"""The options of `dflash chat` that say where it is saved, and the completion of saved chats' names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.session_log import SessionLog

    ParamType = click.ParamType[Any]
else:  # click 8.1's class takes no type argument
    ParamType = click.ParamType
Function = Callable[..., Any]


class SessionName(ParamType):
    """The name of a saved chat; the shell completes those there are."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """See click."""
        return [CompletionItem(name) for name in saved_names() if name.startswith(incomplete)]


def saved_names() -> list[str]:
    """The names of the saved chats, the one that was changed last first; none where they cannot be read."""
    from dflash_cli.session_store import SessionStore

    try:
        return [name for name in SessionStore().names() if printable(name) == name]
    except DFlashError:
        return []


@dataclass(frozen=True)
class SessionChoice:
    """What the options say: go on with the latest chat or with `resume`, or start one called `name`."""

    latest: bool = False
    resume: str | None = None
    name: str | None = None

    @property
    def is_made(self) -> bool:
        """Whether one of the options is given."""
        return self.latest or self.resume is not None or self.name is not None

    def open_log(self, *, save: bool, has_person: bool) -> SessionLog | None:
        """Where the chat is saved, None for nowhere: without an option, only what a person types, if `save`.

        Raises UsageError for a name that does not exist, is taken or cannot be, and DFlashError for a chat that is in
        use or cannot be read.
        """
        if not self.is_made and not (save and has_person):
            return None
        from dflash_cli.session_store import SessionStore

        store = SessionStore()
        if not self.latest:
            return store.open_new(self.name) if self.resume is None else store.resume(self.resume)
        latest = store.latest()
        if latest is None:
            raise DFlashError(f"there is no chat to continue in {store.folder}; start one without --continue")
        return store.resume(latest)


def session_options(function: Function) -> Function:
    """Add --continue, --resume and --session to a command, which gets them as its argument `session`."""

    @functools.wraps(function)
    def command(*args: Any, latest: bool, resume: str | None, session: str | None, **kwargs: Any) -> Any:
        given = [
            name for name, value in (("--continue", latest), ("--resume", resume), ("--session", session)) if value
        ]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} do not go together; give one of them")
        return function(*args, session=SessionChoice(latest, resume, session), **kwargs)

    wrapped: Function = command
    options = (
        click.option("--continue", "latest", is_flag=True, help="Go on with the chat that was saved last."),
        click.option("--resume", type=SessionName(), metavar="NAME", help="Go on with a saved chat."),
        click.option("--session", metavar="NAME", help="Save this chat under NAME (default: the time)."),
    )
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
