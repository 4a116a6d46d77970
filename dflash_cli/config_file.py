"""Where settings come from besides the command line: the configuration file and the environment. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_cli.config import SETTINGS, Setting
from dflash_cli.errors import UsageError, nearest
from dflash_cli.paths import config_dir
from dflash_cli.setting_kinds import File

# Of the command, not settings.
OTHER_VARIABLES = ("DFLASH_CONFIG", "DFLASH_TRACEBACK", "DFLASH_WHEEL", "DFLASH_REFERENCE", "DFLASH_ENGINE_KEY")


def config_path(given: str | Path | None = None) -> Path:
    """The configuration file: the one given, or `config.toml` in the user's configuration folder."""
    return config_dir() / "config.toml" if given is None else Path(given).expanduser()


def read_config(given: str | Path | None = None) -> dict[str, Any]:
    """The checked settings of the configuration file; none where the default file does not exist.

    Raises UsageError for a given file that does not exist, unknown keys and wrong values, naming file and key.
    """
    path = config_path(given)
    if given is None and not path.exists():
        return {}
    return read_table(path, SETTINGS)


def read_table(path: Path, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The checked values of a TOML file of `settings`; raises UsageError as `read_config` does."""
    import tomli

    try:
        table = tomli.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise UsageError(f"the configuration file {path} does not exist") from err
    except OSError as err:
        raise UsageError(f"the configuration file {path} cannot be read: {err.strerror or err}") from err
    except UnicodeDecodeError as err:
        raise UsageError(f"the configuration file {path} is not UTF-8 text") from err
    except tomli.TOMLDecodeError as err:
        raise UsageError(f"the configuration file {path} is not valid TOML: {err}") from err
    return _check_table(path, table, settings)


def _check_table(path: Path, table: Mapping[str, object], settings: Mapping[str, Setting]) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        if key not in settings:
            hint = nearest(key, list(settings)) or f". Known are {', '.join(settings)}"
            raise UsageError(f"{path} has an unknown key {key!r}{hint}")
        known = settings[key]
        try:
            values[key] = known.check(value)
        except ValueError as err:
            raise UsageError(f"{key} in {path}: {err}") from err
        if isinstance(known.kind, File):  # relative to the file, not to where one happens to be
            found = values[key]
            values[key] = tuple(str(path.parent / each) for each in found) if known.many else str(path.parent / found)
    return values


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """The DFLASH_* variables that are set and mean nothing, each with the nearest one that does."""
    known = [*(setting.variable for setting in SETTINGS.values()), *OTHER_VARIABLES]
    strange = (name for name, text in sorted(environ.items()) if name.startswith("DFLASH_") and text)
    return [f"unknown variable {name}{nearest(name, known)}" for name in strange if name not in known]


def environment_problems(environ: Mapping[str, str]) -> list[str]:
    """What is wrong with the DFLASH_* variables that are set; one text for each, wrong values first."""
    problems = []
    for setting in SETTINGS.values():
        try:
            if text := environ.get(setting.variable):
                setting.parse(text)
        except ValueError as err:
            problems.append(f"{setting.variable}: {err}")
    return problems + unknown_variables(environ)
