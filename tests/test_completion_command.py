"""The completion script: printed quickly, and obeyed by a real shell."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_cli.cli import main

BASH = shutil.which("bash")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_DFLASH_COMPLETE={shell}_complete" in script
    monkeypatch.setenv("SHELL", f"/usr/local/bin/{shell}")
    assert main(["completion"]) == 0
    assert capsys.readouterr().out == script


@pytest.mark.parametrize(
    ("args", "shell", "words"),
    [
        ([], "/bin/tcsh", "$SHELL is '/bin/tcsh'; name one of bash, zsh, fish"),
        ([], "", "$SHELL is not set; name one of bash, zsh, fish"),
        (["tcsh"], "/bin/bash", "'tcsh' is not one of"),
    ],
)
def test_other_shells_are_refused(
    args: list[str], shell: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", shell)
    assert main(["completion", *args]) == 2
    assert words in capsys.readouterr().err


def test_the_help_says_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(line in text for line in ("~/.bashrc", "~/.zshrc", "~/.config/fish/completions/dflash.fish"))


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from dflash_cli.cli import main; main(['completion', 'zsh']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'prompt_toolkit')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `dflash` that a shell finds first."""
    if BASH is None:
        pytest.skip("no bash")
    command = tmp_path / "dflash"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dflash_cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["comp"], ["completion"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["chat", "--over"], ["--overlay"]),
        (["chat", "--overlay", ""], ["off", "tokens", "full"]),
        (["chat", "--overlay", "f"], ["full"]),
        (["chat", "--model", "smol"], ["smollm2-135m"]),
        (["run", "--jso"], ["--jsonl", "--json"]),
    ],
)
def test_a_real_bash_completes(bash: Path, words: list[str], offered: list[str]) -> None:
    line = " ".join(shlex.quote(word) for word in ["dflash", *words])
    code = (
        'eval "$(dflash completion bash)"; complete -p dflash; '
        f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _dflash_completion dflash; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run([str(BASH), "--norc", "-c", code], capture_output=True, text=True, check=False)
    registered, *found = result.stdout.splitlines()
    assert "_dflash_completion dflash" in registered
    assert found == offered
    assert result.stderr == ""
