"""One command of the program, run as a person runs it."""

from __future__ import annotations

from typing import Any

from dflash_cli.cli import main


class Command:
    """Runs `dflash NAME ...`; gives the exit status, stdout and stderr."""

    def __init__(self, name: str, capfd: Any) -> None:
        self.name, self.capfd = name, capfd

    def __call__(self, *args: str) -> tuple[int, str, str]:
        self.capfd.readouterr()
        code = main([self.name, *args])
        out, err = self.capfd.readouterr()
        return code, out, err
