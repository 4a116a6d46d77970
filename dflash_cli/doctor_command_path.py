"""Which `dflash` a shell finds: three other packages (dflash, dflash-mlx, dflash-console) install one, too."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from dflash_cli.doctor_report import OK, WARNING, Check

NAME = "dflash"
OURS = "dflash-cli"
MODULE = re.compile(rb"^\s*from ([\w.]+) import ", re.MULTILINE)
SCRIPT_BYTES = 1 << 20
INSTEAD = "run `python -m dflash_cli`, which is never in doubt"


def check_command(path_variable: str, script_folders: Iterable[Path]) -> list[Check]:
    """What the name stands for in this PATH; `script_folders` are where this environment's own scripts lie."""
    own = {(folder / Path(found).name).resolve() for folder in script_folders if (found := _which(folder))}
    on_path = list(_on_path(path_variable))
    checks = [_first(on_path, own)]
    others = [_title(each) for each in _owners(distributions(), None) if each.name != OURS]
    if others:
        value = f"{', '.join(others)} in this environment installs `{NAME}`, too: the last one installed wins"
        checks.append(Check("other packages", WARNING, value, f"keep them in separate environments, or {INSTEAD}"))
    return checks


def own_script_folders() -> list[Path]:
    """Where this environment puts scripts, and where the running one lies."""
    folders = [Path(sysconfig.get_path("scripts"))]
    running = Path(sys.argv[0])
    return [*folders, running.parent] if running.stem == NAME else folders


def _first(on_path: list[Path], own: set[Path]) -> Check:
    if not on_path:
        folder = next((str(path.parent) for path in own), None)
        add = f"add {folder} to PATH, or " if folder else ""
        return Check("command", OK, f"no `{NAME}` on PATH", f"{add}{INSTEAD}")
    first = on_path[0]
    module = _module(first)
    is_ours = module is not None and module.partition(".")[0] == "dflash_cli"
    if is_ours and (first.resolve() in own or not own):
        return Check("command", OK, str(first))
    owner = describe_owner(first, module)
    if first.resolve() in own:
        return Check("command", WARNING, f"{first} belongs to {owner}, installed over ours", f"{INSTEAD}")
    ours = next((path for path in on_path if path.resolve() in own), None)
    where = f"comes before {ours} on PATH" if ours else "is the one on PATH; ours is not on it"
    return Check("command", WARNING, f"{first} ({owner}) {where}", f"put ours first, or {INSTEAD}")


def describe_owner(script: Path, module: str | None) -> str:
    """The installed distribution that a script belongs to: looked up here and in the environment it lies in."""
    for search in (None, _site_packages(script)):
        found = distributions() if search is None else distributions(path=search)
        for owner in _owners(found, module):
            # The same module may be installed here and there: the script lies beside its own distribution.
            if search is not None or script.resolve().is_relative_to(Path(sys.prefix).resolve()):
                return f"distribution {_title(owner)}"
    return f"module {module}, distribution unknown" if module else "distribution unknown"


def _owners(found: Iterable[Distribution], module: str | None) -> Iterator[Distribution]:
    """Distributions with a console script of our name, of `module` where that is given."""
    seen = set()
    for distribution in found:
        for entry in distribution.entry_points:
            wanted = entry.group == "console_scripts" and entry.name == NAME and module in (None, entry.module)
            if wanted and _title(distribution) not in seen:
                seen.add(_title(distribution))
                yield distribution


def _title(distribution: Distribution) -> str:
    return f"{distribution.name} {distribution.version}"


def _site_packages(script: Path) -> list[str]:
    prefixes = dict.fromkeys((script.resolve().parent.parent, script.parent.parent))
    patterns = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages")
    return [str(folder) for prefix in prefixes for pattern in patterns for folder in sorted(prefix.glob(pattern))]


def _module(script: Path) -> str | None:
    """The module that a console script imports; launchers of Windows hold the same line."""
    try:
        with script.open("rb") as file:
            match = MODULE.search(file.read(SCRIPT_BYTES))
    except OSError:
        return None
    return match[1].decode("ascii", "replace") if match else None


def _on_path(path_variable: str) -> Iterator[Path]:
    seen = set()
    for folder in path_variable.split(os.pathsep):
        found = _which(Path(folder)) if folder else None
        if found and Path(found).resolve() not in seen:
            seen.add(Path(found).resolve())
            yield Path(found)


def _which(folder: Path) -> str | None:
    return shutil.which(NAME, path=str(folder))
