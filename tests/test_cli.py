"""The command: help without torch, the error boundary, exit codes, broken pipes, completion."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import dflash_cli
from dflash_cli import cli
from dflash_cli.cli import main, one_line
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.options import settings

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "huggingface_hub", "rich", "prompt_toolkit", "numpy", "gguf")
IMPORTED = f"import sys; from dflash_cli.cli import main; main({{}}); print([m for m in {HEAVY} if m in sys.modules])"


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python on the source tree."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *args], env=environ, capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.fixture
def run_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Config], object]], None]:
    """Make `dflash run` a command that does what the test says."""

    def install(action: Callable[[Config], object]) -> None:
        @click.command("run")
        @settings()
        def run_command(config: Config) -> object:
            return action(config)

        module = types.ModuleType("dflash_cli.run")
        module.run_command = run_command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "dflash_cli.run", module)

    return install


def raising(err: BaseException) -> Callable[[Config], object]:
    """An action that fails."""

    def action(_config: Config) -> object:
        raise err

    return action


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    seconds = []  # a busy machine takes longer: the best of some runs, and a limit that only a heavy import passes
    for _ in range(5):
        started = time.perf_counter()
        result = python("-m", "dflash_cli", "--help")
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 2
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: dflash [OPTIONS]")
    assert all(re.search(rf"^  {name} +\w", result.stdout, re.MULTILINE) for name in cli.COMMANDS)
    assert python("-c", IMPORTED.format("['--help']")).stdout.splitlines()[-1] == "[]"


def test_help_of_a_command_imports_no_torch() -> None:
    lines = python("-c", IMPORTED.format("['doctor', '-h']")).stdout.splitlines()
    assert lines[0] == "Usage: dflash doctor [OPTIONS]"
    assert lines[-1] == "[]"


def test_without_a_command_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert main(["-h"]) == 0
    first, second = capsys.readouterr().out.split("Usage:")[1:]
    assert first == second


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dflash {dflash_cli.__version__}\n"
    assert re.match(r"\d", dflash_cli.__version__)


def test_version_of_a_tree_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert dflash_cli.__version__ == "0+unknown"


def test_an_attribute_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = dflash_cli.nothing


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name not in ("run", "chat")])
def test_the_table_says_what_the_commands_say(name: str) -> None:
    module, _, attribute = cli.COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert (command.name, command.short_help) == (name, cli.COMMANDS[name][1])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["modles"], "unknown command 'modles'; did you mean 'models'?"),
        (["zzz"], f"unknown command 'zzz'. Known are {', '.join(cli.COMMANDS)}"),
        (["--nope"], "No such option"),
        (["doctor", "--nope"], "(see `dflash doctor --help`)"),
        (["doctor", "surplus"], "unexpected extra argument"),
        (["doctor", "--color", "red"], "Invalid value for '--color': found 'red'; expected one of auto, always, never"),
        (["run", "--config", "nothing.toml"], "the configuration file nothing.toml does not exist"),
        (["--config", "nothing.toml", "run"], "the configuration file nothing.toml does not exist"),
    ],
)
def test_wrong_usage(args: list[str], message: str, run_with: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_with(lambda config: None)
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dflash: error: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (DFlashError("no such thing"), "no such thing", 1),
        (UsageError("not like this"), "not like this", 2),
        (ValueError("found 1,\n  expected 2"), "found 1, expected 2", 1),
        (
            FileNotFoundError(2, "No such file or directory", "a\x1b[31m.txt"),
            "No such file or directory: a\\x1b[31m.txt",
            1,
        ),
        (OSError("odd"), "odd", 1),
        (click.ClickException("wrong"), "wrong", 1),
        (KeyError("k"), "unexpected KeyError: 'k'; run again with --traceback and report it", 1),
        (RuntimeError(""), "unexpected RuntimeError: RuntimeError; run again with --traceback and report it", 1),
    ],
)
def test_one_line_for_an_error(
    error: Exception, message: str, code: int, run_with: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with(raising(error))
    assert main(["run"]) == code
    assert capsys.readouterr() == ("", f"dflash: error: {message}\n")


def test_running_out_of_memory(run_with: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    for error in (MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("can't allocate memory")):
        run_with(raising(error))
        assert main(["run"]) == 1
        err = capsys.readouterr().err
        assert err.startswith("dflash: error: out of memory (")
        assert "--context" in err


def test_an_interrupt(run_with: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_with(raising(KeyboardInterrupt()))
    assert main(["run"]) == 130
    assert capsys.readouterr().err.strip() == ""
    run_with(raising(click.Abort()))
    assert main(["run"]) == 130
    run_with(raising(EOFError()))
    assert main(["run"]) == 1


def test_status_of_a_command(run_with: Any) -> None:
    for answer, status in ((None, 0), (3, 3)):
        run_with(lambda config, answer=answer: answer)
        assert main(["run"]) == status
    run_with(lambda config: click.get_current_context().exit(4))
    assert main(["run"]) == 4


@pytest.mark.parametrize("args", [["--traceback", "run"], ["run", "--traceback"]])
def test_traceback_raises(args: list[str], run_with: Any) -> None:
    run_with(raising(DFlashError("deep")))
    with pytest.raises(DFlashError, match="deep"):
        main(args)


def test_traceback_by_variable_and_before_a_broken_option(run_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(raising(DFlashError("deep")))
    with pytest.raises(UsageError):
        main(["run", "--config", "nothing.toml", "--traceback"])
    monkeypatch.setenv("DFLASH_TRACEBACK", "1")
    with pytest.raises(DFlashError, match="deep"):
        main(["run"])
    monkeypatch.setenv("DFLASH_TRACEBACK", "0")
    assert main(["run"]) == 1


def test_a_wrong_variable_of_the_command_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DFLASH_TRACEBACK", "maybe")
    assert main(["doctor"]) == 2
    assert "the variable DFLASH_TRACEBACK: found 'maybe'; expected true or false" in capsys.readouterr().err


def test_a_command_gets_its_config_through_the_group(run_with: Any, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("context = 5\n")
    found: list[Config] = []
    run_with(found.append)
    assert main(["--config", str(file), "run", "-t", "0.5"]) == 0
    assert main(["run", "--config", str(file), "-t", "0.5"]) == 0
    assert found == [Config(context=5, temperature=0.5)] * 2


@pytest.mark.parametrize(
    ("args", "color"),
    [
        (["run", "--no-color"], "never"),
        (["--no-color", "run"], "never"),
        (["run", "--color", "always", "--no-color"], "never"),
        (["run", "--no-color", "--color", "always"], "always"),
        (["--no-color", "run", "--color", "always"], "always"),
        (["run"], "always"),
    ],
)
def test_no_color_is_color_never(
    args: list[str], color: str, run_with: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DFLASH_COLOR", "always")
    found: list[Config] = []
    run_with(found.append)
    assert main([*args, "-v"]) == 0
    assert found == [Config(color=color, verbose=True)]
    origin = "DFLASH_COLOR" if len(args) == 1 else "command line"
    assert f"color = '{color}' ({origin})" in capsys.readouterr().err
    assert main(["run", "-h"]) == 0
    assert capsys.readouterr().out.count("--no-color") == 1


def leaf_commands(command: click.Command) -> list[click.Command]:
    if isinstance(command, click.Group) and not isinstance(command, cli.LazyGroup):
        return [command, *(leaf for each in command.commands.values() for leaf in leaf_commands(each))]
    return [command]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_with_color_has_no_color(name: str) -> None:
    command = cli.app.get_command(click.Context(cli.app), name)  # type: ignore[attr-defined]
    for each in leaf_commands(command):
        flags = [flag for param in each.params for flag in param.opts]
        assert flags.count("--no-color") == flags.count("--color"), each.name


def test_a_broken_config_does_not_stop_help(run_with: Any, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".config" / "dflash" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("oops")
    run_with(lambda config: None)
    assert main(["run", "-h"]) == 0
    assert "--top-k" in capsys.readouterr().out
    assert main(["run"]) == 2


def test_one_line_shows_what_would_move_the_cursor() -> None:
    assert one_line("a\r\nb\tc \x1b[2J\x07\u202e\udcff é 漢") == "a b c \\x1b[2J\\x07\\u202e\\udcff é 漢"


PRINTS = """
import sys, types, click
from dflash_cli import cli
@click.command("run")
def run_command():
    for _ in range(20000):
        click.echo("line")
module = types.ModuleType("dflash_cli.run")
module.run_command = run_command
sys.modules["dflash_cli.run"] = module
sys.exit(cli.main(sys.argv[1:]))
"""


def written_to(out: Any, unbuffered: str, *args: str) -> tuple[int, bytes]:
    """Exit status and stderr of a Python that writes to `out`."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(
        [sys.executable, *args], stdout=out, stderr=subprocess.PIPE, env=environ, timeout=60, check=False
    )
    return result.returncode, result.stderr


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["run"], ["--help"], ["--version"], ["run", "--help"]])
def test_a_reader_that_leaves_is_no_error(args: list[str], unbuffered: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert written_to(write_end, unbuffered, "-c", PRINTS, *args) == (0, b"")
    os.close(write_end)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_one(unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        found = written_to(full, unbuffered, "-m", "dflash_cli", "--help")
    assert found == (1, b"dflash: error: No space left on device\n")


def complete(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    result = python(
        "-m",
        "dflash_cli",
        env={
            "_DFLASH_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["dflash", *words]),
            "COMP_CWORD": str(len(words)),
        },
    )
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


def test_shell_completion() -> None:
    assert complete("mo") == ["models"]
    assert complete("--tr") == ["--traceback"]
    assert complete("doctor", "--col") == ["--color"]
    assert complete("doctor", "--color", "a") == ["auto", "always"]
    assert complete("doctor", "--no-c") == complete("--no-c") == ["--no-color"]


def test_completion_of_models_offers_aliases_then_paths() -> None:
    from dflash_cli.config import SETTINGS
    from dflash_cli.options import SettingType

    def offered(name: str, incomplete: str) -> list[tuple[str, str]]:
        ctx, param = click.Context(click.Command("x")), click.Option([f"--{name}"])
        items = SettingType(SETTINGS[name]).shell_complete(ctx, param, incomplete)
        return [(item.value, item.type) for item in items]

    assert ("smollm2-135m", "plain") in offered("model", "")
    assert ("none", "plain") not in offered("model", "")
    assert offered("draft", "no") == [("none", "plain")]
    assert offered("model", "./mo") == [("./mo", "file")]
    assert offered("chat_template", "t") == [("t", "file")]
