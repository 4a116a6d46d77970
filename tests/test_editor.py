from __future__ import annotations

import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_cli import editor
from dflash_cli.editor import edit, find_editor
from dflash_cli.errors import DFlashError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="editors here are shell scripts")


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A pretended terminal, no editor of the machine's, and a folder for temporary files."""
    monkeypatch.setattr(editor, "is_terminal", lambda _stream: True)
    monkeypatch.setattr(editor, "_restored", editor._unwoken)
    for name in editor.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a shell script the editor; its last argument is the file."""

    def make(text: str, *arguments: str) -> Path:
        path = tmp_path / "an editor"
        path.write_text(f"#!/bin/sh\nfor file; do :; done\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("EDITOR", shlex.join([str(path), *arguments]))
        return path

    return make


def test_the_text_goes_there_and_back(script: Callable[..., Path], tmp_path: Path, terminal: Path) -> None:
    seen = tmp_path / "seen"
    script(f'cp "$file" {seen}; ls -ld "$file" "$(dirname "$file")" > {seen}.modes; echo more >> "$file"')
    assert edit("día\n  two") == "día\n  two\nmore"
    assert seen.read_text() == "día\n  two\n"
    file, folder = sorted(Path(f"{seen}.modes").read_text().splitlines())
    assert file.startswith("-rw-------")
    assert file.endswith(".md")
    assert folder.startswith("drwx------")
    assert list(terminal.iterdir()) == []


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ("", None),
        (": > $file", ""),
        ("rm $file", None),
        ("touch $file", "as it was"),
        (r"printf 'a\r\nb' > $file", "a\nb"),
        (r"printf '\357\273\277x\n' > $file", "x"),
        ("echo new > $file.1; mv $file.1 $file", "new"),
    ],
)
def test_what_is_saved(script: Callable[..., Path], writes: str, expected: str | None) -> None:
    script(writes)
    assert edit("as it was") == expected


def test_a_lone_surrogate(script: Callable[..., Path]) -> None:
    script("touch $file")
    assert edit("a\udcffb") == "a?b"


def test_arguments_of_the_editor(script: Callable[..., Path], tmp_path: Path) -> None:
    script(f'echo "$#" "$1" > "{tmp_path}/arguments"', "--wait for me")
    edit("")
    assert (tmp_path / "arguments").read_text() == "2 --wait for me\n"


def test_no_shell(script: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script("touch $file")
    monkeypatch.setenv("EDITOR", f"{shlex.quote(str(path))} ; touch {tmp_path}/harm")
    edit("x")
    assert not (tmp_path / "harm").exists()


def test_visual_comes_first(script: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    script("")
    monkeypatch.setenv("VISUAL", "code --wait")
    assert find_editor() == ["code", "--wait"]
    monkeypatch.setenv("VISUAL", "  ")
    assert len(find_editor()) == 1


def test_the_first_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DFlashError, match="there is no editor here: neither nano nor vi; set EDITOR to one that works"):
        find_editor()
    for name in ("vi", "nano"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert find_editor() == [name]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("/no/such-editor -w", "the editor /no/such-editor cannot be started: No such file or directory; set EDITOR"),
        ("'", 'EDITOR="\'" is no command (No closing quotation); set EDITOR'),
        ("sh -c 'exit 3'", "the editor sh -c 'exit 3' ended with status 3, so its text is not used; set EDITOR"),
        ("sh -c 'kill -9 $$'", "the editor sh -c 'kill -9 $$' ended with signal 9, so its text is not used; set"),
        (f'{sys.executable} -c \'import sys; open(sys.argv[1], "wb").write(b"\\xff")\'', "the editor saved something"),
    ],
)
def test_an_editor_that_fails(monkeypatch: pytest.MonkeyPatch, terminal: Path, command: str, told: str) -> None:
    monkeypatch.setenv("EDITOR", command)
    with pytest.raises(DFlashError) as caught:
        edit("x")
    assert str(caught.value).startswith(told)
    assert list(terminal.iterdir()) == []


def test_a_file_is_removed_on_ctrl_c(monkeypatch: pytest.MonkeyPatch, terminal: Path) -> None:
    def interrupt(command: list[str]) -> None:
        assert stat.S_IMODE(Path(command[-1]).stat().st_mode) == 0o600
        raise KeyboardInterrupt

    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr(editor, "_run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        edit("x")
    assert list(terminal.iterdir()) == []


def test_ctrl_c_is_the_editors_own_affair(script: Callable[..., Path]) -> None:
    script(f'kill -INT {os.getpid()}; sleep 0.05; echo kept > "$file"')
    assert edit("x") == "kept"


def test_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor, "is_terminal", lambda stream: stream is sys.stdin)
    with pytest.raises(DFlashError, match="an editor needs a terminal"):
        edit("x")
