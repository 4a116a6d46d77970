"""The command that makes a drafter again, from the choices themselves: of files the names alone. Imports no torch."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_cli.config import SETTINGS, Config, Setting
from dflash_cli.errors import DFlashError
from dflash_cli.models import PAIRS
from dflash_cli.setting_kinds import File, Switch
from dflash_cli.sources import SourceKind, parse_source
from dflash_cli.train.recipe import CHOICES, Recipe

CONFIG = ("device", "dtype", "system", "thinking", "chat_template", "raw")
"""Settings, besides the model, that decide what is learned."""


def command_line(recipe: Recipe, config: Config, target: str) -> str:
    """What to type, whichever of flags, variables and files the choices came from. `target`: of the loaded pair."""
    words = ["--model", without_place(config.model or target)]
    for name in CONFIG:
        words += _words(SETTINGS[name], getattr(config, name))
    for name, choice in CHOICES.items():
        words += _words(choice, getattr(recipe, name))
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun
    start = ["dflash"] if processes == 1 else ["torchrun", f"--nproc-per-node={processes}", "-m", "dflash_cli"]
    return shlex.join([*start, "train-drafter", *words, "--out", "DIR"])


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
    if "://" in str(value):
        return "URL"
    return Path(value).name if isinstance(choice.kind, File) else str(value)


def _words(choice: Setting, value: Any) -> Iterator[str]:
    if value == choice.default:
        return
    flag, _, off = choice.flags[0].partition("/")
    if isinstance(choice.kind, Switch):
        yield flag if value else off
        return
    for each in value if choice.many else [value]:
        yield from (flag, shown(choice, each))
