"""--continue, --resume and --session, and the completion of names."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_options import SessionChoice, saved_names, session_options
from dflash_cli.session_store import SessionStore
from tests.sessions import saved, turn


@click.command("chat")
@session_options
def command(session: SessionChoice) -> None:
    click.echo(repr(session))


def choice(*args: str) -> str:
    result = CliRunner().invoke(command, args)
    if isinstance(result.exception, DFlashError):
        raise result.exception
    return result.output.strip()


def test_what_is_chosen() -> None:
    assert choice() == repr(SessionChoice())
    assert choice("--continue") == repr(SessionChoice(latest=True))
    assert choice("--resume", "x") == repr(SessionChoice(resume="x"))
    assert choice("--session", "x") == repr(SessionChoice(name="x"))


def test_only_one_can_be() -> None:
    with pytest.raises(UsageError, match="--continue and --resume do not go together; give one of them"):
        choice("--resume", "x", "--continue")


def test_what_is_saved() -> None:
    nothing = SessionChoice()
    assert nothing.open_log(save=False, has_person=True) is None
    assert nothing.open_log(save=True, has_person=False) is None
    assert nothing.open_log(save=True, has_person=True) is not None
    named = SessionChoice(name="x").open_log(save=False, has_person=False)
    assert named is not None
    assert named.name == "x"


def test_going_on() -> None:
    store = SessionStore()
    with pytest.raises(DFlashError, match=r"there is no chat to continue in .*sessions; start one without --continue"):
        SessionChoice(latest=True).open_log(save=True, has_person=True)
    saved(store, "old", turn("one"))
    saved(store, "x", turn("two"))
    for made, prompt in ((SessionChoice(resume="old"), "one"), (SessionChoice(latest=True), "two")):
        log = made.open_log(save=True, has_person=False)
        assert log is not None
        assert [each.prompt for each in log.state.turns] == [prompt]
        log.close()
    for wrong in (SessionChoice(resume=""), SessionChoice(name=""), SessionChoice(name="x")):
        with pytest.raises(UsageError):
            wrong.open_log(save=True, has_person=True)


def test_names_complete(home: Path) -> None:
    assert saved_names() == []
    for name in ("first", "First chat", "other"):
        if name != "First chat":
            saved(SessionStore(), name)
    saved(SessionStore(), "fifth")

    def complete(*args: str) -> list[str]:
        *before, last = args
        return sorted(each.value for each in ShellComplete(command, {}, "dflash", "").get_completions(before, last))

    assert complete("--resume", "fi") == ["fifth", "first"]
    assert complete("--resume", "") == ["fifth", "first", "other"]
    assert complete("--session", "") == []


def test_nothing_completes_where_nothing_can_be_read() -> None:
    store = SessionStore()
    store.folder.parent.mkdir(parents=True)
    store.folder.write_text("")
    assert saved_names() == []
