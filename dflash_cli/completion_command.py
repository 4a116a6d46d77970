"""`dflash completion`: the script that lets a shell complete commands, flags and their values. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from dflash_cli.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_DFLASH_COMPLETE"


@click.command(
    "completion",
    short_help="Print the script for completion in bash, zsh or fish.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("shell", required=False, type=click.Choice(SHELLS), metavar="[bash|zsh|fish]")
def completion_command(shell: str | None) -> None:
    """Print the script that lets a shell complete `dflash` (default: the shell in $SHELL).

    To install it:

    \b
    bash  dflash completion bash > ~/.dflash-completion.bash
          echo '. ~/.dflash-completion.bash' >> ~/.bashrc
    zsh   dflash completion zsh > ~/.dflash-completion.zsh
          echo '. ~/.dflash-completion.zsh' >> ~/.zshrc   (below compinit)
    fish  dflash completion fish > ~/.config/fish/completions/dflash.fish

    It holds from the next shell on.
    """
    click.echo(script(shell or shell_of(os.environ.get("SHELL", ""))))


def shell_of(path: str) -> str:
    """The shell that a value of $SHELL means. Raises UsageError where it is none that is known."""
    name = Path(path).name
    if name not in SHELLS:
        found = f"$SHELL is {path!r}" if path else "$SHELL is not set"
        raise UsageError(f"{found}; name one of {', '.join(SHELLS)}, as in `dflash completion bash`")
    return name


def script(shell: str) -> str:
    """The script for one of `SHELLS`."""
    from dflash_cli.cli import NAME, app

    completion = get_completion_class(shell)
    assert completion is not None
    return completion(app, {}, NAME, VARIABLE).source()
