"""Where a checkpoint comes from, told by the form of its name: embedded, a hub id, a folder or a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dflash_cli.errors import UsageError, nearest

PREFIX = "embedded:"
# The rules of huggingface_hub.utils.validate_repo_id, with the owner required; `@` starts a revision.
HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)


class SourceKind(Enum):
    """The forms a source can have."""

    EMBEDDED = "embedded"
    HUB = "hub"
    FOLDER = "folder"
    GGUF = "gguf"


@dataclass(frozen=True)
class Source:
    """A source and its kind; `path` for folders and files, `repo` and `revision` for the hub."""

    kind: SourceKind
    text: str
    path: Path = Path()
    repo: str = ""
    revision: str | None = None


def parse_source(text: str, aliases: Iterable[str]) -> Source:
    """What `text` names. An existing folder or file comes before a hub id of the same spelling.

    Raises UsageError for something that is none of these, naming the nearest of `aliases`.
    """
    if text.startswith(PREFIX):
        return Source(SourceKind.EMBEDDED, text)
    path = Path(text).expanduser() if text.startswith("~") else Path(text)
    if text and path.exists():
        return _existing(text, path)
    match = None if text.lower().endswith(".gguf") else HUB_ID.fullmatch(text)
    if match is not None:
        return Source(SourceKind.HUB, text, repo=match["repo"], revision=match["revision"])
    if "/" in text or "\\" in text or text.lower().endswith(".gguf"):
        raise UsageError(f"{text!r} does not exist; expected a folder, a .gguf file, or a hub id like Qwen/Qwen3-8B")
    known = list(aliases)
    raise UsageError(
        f"unknown model {text!r}{nearest(text.lower(), known) or '.'} Known are {', '.join(known)}; "
        "a folder, a .gguf file or a hub id (owner/name) works too"
    )


def _existing(text: str, path: Path) -> Source:
    if path.is_dir():
        return Source(SourceKind.FOLDER, text, path=path)
    if path.suffix.lower() == ".gguf":
        return Source(SourceKind.GGUF, text, path=path)
    raise UsageError(f"{text!r} is a file; expected a folder with config.json and *.safetensors, or a .gguf file")
