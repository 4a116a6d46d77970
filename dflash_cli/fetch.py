"""A source to a checkpoint folder on this machine, downloaded or converted where needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dflash_cli.checkpoint_folder import problem_with
from dflash_cli.embedded import cached_embedded, fetch_embedded
from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import file_sizes, progress
from dflash_cli.model_store import store, stored
from dflash_cli.models import PAIRS
from dflash_cli.sources import Source, SourceKind, parse_source

CONVERSION = b"v1"  # counts changes of what is written for the same GGUF file
HASHED_BYTES = 1 << 20


def fetch(source: str, *, offline: bool, quiet: bool) -> Path:
    """The folder with `config.json`, `*.safetensors` and, for a target, the tokenizer's files.

    `offline` forbids the network. Raises DFlashError (UsageError where nothing of that name can exist).
    """
    parsed = parse_source(source, PAIRS)
    if parsed.kind is SourceKind.EMBEDDED:
        return fetch_embedded(source, offline=offline, quiet=quiet)
    if parsed.kind is SourceKind.GGUF:
        return _convert(parsed.path, quiet=quiet)
    if parsed.kind is SourceKind.FOLDER:
        return _checked(parsed)
    from dflash_cli.hub import fetch_snapshot

    return fetch_snapshot(parsed, offline=offline, quiet=quiet)


def cached(source: str) -> Path | None:
    """The folder that `fetch` would give without downloading or converting, or None. No network."""
    parsed = parse_source(source, PAIRS)
    if parsed.kind is SourceKind.EMBEDDED:
        return cached_embedded(source)
    if parsed.kind is SourceKind.GGUF:
        return stored(_gguf_name(parsed.path))
    if parsed.kind is SourceKind.FOLDER:
        return parsed.path if problem_with(parsed.path) is None else None
    from dflash_cli.hub import cached_snapshot

    return cached_snapshot(parsed)


def size_on_disk(path: Path) -> int:
    """Bytes of the files in a checkpoint folder; links (the hub's cache has them) count as what they point to."""
    return sum(file_sizes(path, follow_links=True))


def _checked(source: Source) -> Path:
    problem = problem_with(source.path)
    if problem is not None:
        raise DFlashError(f"the folder {source.text} {problem}")
    return source.path


def _convert(path: Path, *, quiet: bool) -> Path:
    name = _gguf_name(path)
    found = stored(name)
    if found is not None:
        return found
    from backends.gguf import GGUFError, GGUFFile, convert_gguf, gguf_metadata
    from dflash_cli.gguf_tokenizer import write_tokenizer

    def build(_scratch: Path, folder: Path) -> None:
        with progress(f"converting {path.name} (once)", quiet=quiet) as advance:
            # The tokenizer comes first: an unknown one is told before minutes of work.
            write_tokenizer(gguf_metadata(path), folder)
            convert_gguf(path, folder, advance)

    try:
        return store(name, GGUFFile.open(path).bfloat16_bytes, build, quiet=quiet)
    except GGUFError as err:
        raise DFlashError(str(err)) from err


def _gguf_name(path: Path) -> str:
    """The name of a GGUF file's checkpoint in the store: another for every change of the file."""
    try:
        resolved = path.resolve()
        status = resolved.stat()
        with resolved.open("rb") as file:
            head = file.read(HASHED_BYTES)
    except OSError as err:
        raise DFlashError(f"{path} cannot be read: {err.strerror or err}") from err
    facts = f"{resolved} {status.st_size} {status.st_mtime_ns} {status.st_ino}".encode(errors="surrogateescape")
    return "gguf-" + hashlib.sha256(CONVERSION + facts + head).hexdigest()[:16]
