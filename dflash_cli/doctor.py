"""`dflash doctor`: what is installed, what the machine can do, and what stands in the way."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click

from dflash_cli.config import Config
from dflash_cli.config_file import environment_problems
from dflash_cli.doctor_report import EXIT_CODES, FATAL, OK, WARNING, Check, as_json, as_text, overall
from dflash_cli.errors import DFlashError
from dflash_cli.options import CONFIG_ERROR, CONFIG_FILE, settings

LOW_DISK_BYTES = 10**9
PACKAGES = ("torch", "transformers", "safetensors", "gguf", "huggingface_hub", "click", "prompt-toolkit", "rich")


@click.command("doctor", short_help="Check this installation and machine.")
@click.option("--json", "as_object", is_flag=True, help="Print one JSON object.")
@settings("offline", "color", lenient=True)
def doctor_command(config: Config, as_object: bool) -> int:
    """Check this installation and machine.

    Exit status: 0 fine, 1 warnings, 2 something that keeps dflash from working. Nothing is changed.
    """
    ctx = click.get_current_context()
    checks = examine(config, ctx.meta[CONFIG_FILE], ctx.meta.get(CONFIG_ERROR))
    if as_object:
        click.echo(as_json(checks))
    else:
        unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
        color = config.wants_color(sys.stdout)
        for line in as_text(checks, color=color, unicode=unicode):
            click.echo(line, color=color)
    return EXIT_CODES[overall(checks)]


def examine(config: Config, config_file: Path, config_error: DFlashError | None) -> list[Check]:
    """All checks, in the order they are shown."""
    from dflash_cli.doctor_command_path import check_command, own_script_folders
    from dflash_cli.doctor_machine import check_machine
    from dflash_cli.doctor_network import start_checks

    pending = start_checks(offline=config.offline)
    return [
        *check_versions(),
        *check_command(os.environ.get("PATH", os.defpath), own_script_folders()),
        check_config(config_file, config_error),
        *check_environment(os.environ),
        *check_machine(offline=config.offline),
        check_cache(),
        check_hub_cache(),
        *(each.result() for each in pending),
    ]


def check_versions() -> list[Check]:
    """This package, Python, and the packages it needs; one that is missing is fatal, another version a warning."""
    from dflash_cli import __version__

    checks = [
        Check("dflash", OK, f"{__version__} in {Path(__file__).parent}"),
        Check("python", OK, f"{platform.python_version()} ({sys.executable}) on {platform.platform(terse=True)}"),
    ]
    wanted = _requirements()
    return checks + [_package(name, wanted[name]) for name in wanted]


def _requirements() -> dict[str, str]:
    """Name -> version specifier of what this distribution requires; the main ones where it is not installed."""
    try:
        lines = requires("dflash-cli") or []
    except PackageNotFoundError:
        return dict.fromkeys(PACKAGES, "")
    from packaging.requirements import Requirement

    parsed = [Requirement(line) for line in lines]
    return {each.name: str(each.specifier) for each in parsed if each.marker is None or each.marker.evaluate()}


def _package(name: str, specifier: str) -> Check:
    advice = f"run `pip install '{name}{specifier}'`"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, FATAL, "not installed", advice)
    if specifier:
        from packaging.specifiers import SpecifierSet

        if not SpecifierSet(specifier).contains(found, prereleases=True):
            return Check(name, WARNING, f"{found}, expected {specifier}", advice)
    return Check(name, OK, found)


def check_config(path: Path, error: DFlashError | None) -> Check:
    """The configuration file, which was already read."""
    if error is not None:
        return Check("config", FATAL, str(error), "correct it; config.example.toml lists every key")
    return Check("config", OK, str(path) if path.exists() else f"none ({path} does not exist)")


def check_environment(environ: Mapping[str, str]) -> list[Check]:
    """DFLASH_* variables: a wrong value stops every command that reads it, an unknown name does nothing."""
    return [
        Check("environment", WARNING if problem.startswith("unknown") else FATAL, problem, "correct or unset it")
        for problem in environment_problems(environ)
    ]


def check_cache() -> Check:
    """The folder of converted models."""
    from dflash_cli.model_store import models_dir

    return _folder("cache", models_dir(), FATAL, "make it writable, or point XDG_CACHE_HOME elsewhere")


def check_hub_cache() -> Check:
    """The hub's own cache."""
    from huggingface_hub import constants

    return _folder("hub cache", Path(constants.HF_HUB_CACHE), WARNING, "make it writable, or point HF_HOME elsewhere")


def _folder(name: str, folder: Path, unwritable: str, advice: str) -> Check:
    """Size, room on the disk, and whether files can be put there (or the folder created), without trying."""
    from dflash_cli.fetch_progress import file_sizes, megabytes

    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check(name, unwritable, f"{folder} cannot be written ({existing} forbids it)", advice)
    size = megabytes(sum(file_sizes(folder))) if folder.is_dir() else "not created yet"
    free = shutil.disk_usage(existing).free
    value = f"{folder} ({size}, {megabytes(free)} free on its disk)"
    if free < LOW_DISK_BYTES:
        return Check(name, WARNING, value, "free some space")
    return Check(name, OK, value)
