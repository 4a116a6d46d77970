"""What a list of saved chats tells of each, without reading more of it than that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dflash_cli.errors import DFlashError
from dflash_cli.session_file import is_cut, lines_of, read_bytes
from dflash_cli.session_records import Record, check_session, decode, fold_turns, in_words

SHOWN = 60  # characters of a first prompt
_TYPE = re.compile(rb'\{"type": ?"(\w+)".*\}\n?', re.DOTALL)  # as `encode` writes it: types come first


@dataclass(frozen=True)
class Summary:
    """One chat of a list. `changed`: seconds since 1970. `prompt`: the first one. `problem`: empty if all is well."""

    name: str
    path: Path
    changed: float
    created: str = ""
    num_turns: int = 0
    pair: str = ""
    target: str = ""
    prompt: str = ""
    problem: str = ""

    @property
    def when(self) -> str:
        """When it was changed, in local time."""
        return f"{datetime.fromtimestamp(self.changed).astimezone():%Y-%m-%d %H:%M}"

    @property
    def text(self) -> str:
        """The first words, or what is wrong, on one line."""
        text = " ".join((f"[{self.problem}]" if self.problem else self.prompt).split())
        return text if self.problem or len(text) <= SHOWN else text[: SHOWN - 1] + "…"

    @property
    def size(self) -> str:
        """How many turns, in words."""
        return in_words(self.num_turns)


def summarize(name: str, path: Path, changed: float) -> Summary:
    """The summary of a file. Of its turns only the first is decoded: damage inside of others is not seen."""
    turns: list[bytes] = []
    session: Record = {}
    pair: Record = {}
    problem = ""
    try:
        number = 0
        for number, line in enumerate(lines_of(read_bytes(path)), 1):
            if number > 1 and is_cut(line):
                break
            known = _TYPE.fullmatch(line)
            kind = known[1].decode() if known else decode(line)["type"]
            if number == 1:
                session = decode(line)
                check_session(session)
            elif kind == "pair":
                pair = decode(line)
            else:
                fold_turns(turns, kind, line)
        if not session:
            raise DFlashError("it is empty")
        prompt = decode(turns[0]).get("prompt") if turns else ""
    except (ValueError, DFlashError) as err:
        problem = f"line {number}: {err}" if isinstance(err, ValueError) else str(err)
        prompt = ""
    return Summary(
        name=name,
        path=path,
        changed=changed,
        created=str(session.get("created", "")),
        num_turns=len(turns),
        pair=" ".join(str(pair.get("pair", "")).split()),
        target=str(pair.get("target", "")),
        prompt=prompt if isinstance(prompt, str) else "",
        problem=problem,
    )
