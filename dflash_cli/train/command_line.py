"""The command that makes a drafter again, from the choices themselves: of files the names alone. Imports no torch."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dflash_cli.config import SETTINGS, Config, Setting
from dflash_cli.errors import DFlashError
from dflash_cli.models import PAIRS
from dflash_cli.setting_kinds import File, Switch
from dflash_cli.sources import SourceKind, parse_source
from dflash_cli.train.recipe import CHOICES, Recipe
from dflash_cli.train.source_kinds import Address

CONFIG = ("device", "dtype", "quantize", "system", "thinking", "chat_template", "raw")
"""Settings, besides the model, that decide what is learned."""


def command_line(recipe: Recipe, config: Config, target: str) -> str:
    """What to type, whichever of flags, variables and files the choices came from. `target`: of the loaded pair."""
    words = ["--model", without_place(config.model or target)]
    for name in CONFIG:
        words += _words(SETTINGS[name], getattr(config, name))
    for name, choice in CHOICES.items():
        words += _words(choice, getattr(recipe, name))
    return shlex.join([*_start(os.environ), "train-drafter", *words, "--out", "DIR"])


def _start(environ: Mapping[str, str]) -> list[str]:
    """The program, or what starts as many processes as there are now, on as many machines."""
    size = int(environ.get("WORLD_SIZE", "1"))  # set by torchrun
    if size == 1:
        return ["dflash"]
    local = environ.get("LOCAL_WORLD_SIZE", "")  # other launchers may not set it
    each = int(local) if local.isascii() and local.isdigit() and int(local) else size
    several: list[str] = []
    if each < size:
        machines = -(-size // each)
        several = [f"--nnodes={machines}", "--rdzv-backend=c10d", "--rdzv-endpoint=HOST:PORT"]
    return ["torchrun", *several, f"--nproc-per-node={min(each, size)}", "-m", "dflash_cli"]


def without_place(model: str) -> str:
    """A model as it was named; of a folder or a file only the last part."""
    kind: SourceKind | None = None
    try:
        kind = parse_source(model, PAIRS).kind
    except DFlashError:  # an alias, or a place that is gone
        if "/" in model or "\\" in model:
            kind = SourceKind.FOLDER
    return Path(model).expanduser().resolve().name if kind in (SourceKind.FOLDER, SourceKind.GGUF) else model


def shown(choice: Setting, value: Any) -> str:
    """A choice's value as a flag takes it, without the places of files and servers."""
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    if isinstance(choice.kind, Address):
        return "URL"
    if choice.name == "engine_model":
        return _last_part(value)
    return Path(value).name if isinstance(choice.kind, File) else str(value)


def _last_part(name: str) -> str:
    """A server's name for its model: the last part of a path, which says where it lies there, else all of it."""
    paths = (PurePosixPath(name), PureWindowsPath(name))
    absolute = next((path for path in paths if path.is_absolute()), None)
    return name if absolute is None else absolute.name


def _words(choice: Setting, value: Any) -> Iterator[str]:
    if value == choice.default:
        return
    flag, _, off = choice.flags[0].partition("/")
    if isinstance(choice.kind, Switch):
        yield flag if value else off
        return
    for each in value if choice.many else [value]:
        yield from (flag, shown(choice, each))
