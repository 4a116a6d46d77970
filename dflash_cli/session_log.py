"""A chat that is being saved: every turn goes to its file when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError
from dflash_cli.interrupts import uninterrupted
from dflash_cli.paths import write_private
from dflash_cli.session_file import append
from dflash_cli.session_names import check_name
from dflash_cli.session_records import (
    Record,
    SessionState,
    encode,
    in_words,
    new_session,
    now,
    pair_to_record,
    turn_to_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dflash_cli.conversation import Turn
    from dflash_cli.model import Model
    from dflash_cli.session_lock import SessionLock
    from dflash_cli.session_store import SessionStore
    from dflash_cli.speculative import Decoder
    from dflash_cli.trace import Recording


class SessionLog:
    """The open file of a chat; there is none before its first turn. Made by `SessionStore`.

    `state` is the conversation as saved, `remark` what a person should know of how it was opened. Every method but
    `note` raises DFlashError where the file cannot be written: once, until it can be written again. What could not be
    written is kept and comes before whatever is written next.
    """

    def __init__(
        self,
        store: SessionStore,
        name: str,
        *,
        state: SessionState | None = None,
        lock: SessionLock | None = None,
        begin: bytes = b"",
        remark: str = "",
    ) -> None:
        """A chat without a `lock` has no file yet; `begin` are lines that its file is to begin with."""
        self.name, self.remark = name, remark
        self.state = SessionState() if state is None else state
        self._store, self._lock = store, lock
        self._has_file = lock is not None
        self._unsaved = [begin] if begin else []
        self._is_due = self._has_told = False
        if state is None:
            self._add(new_session())

    @property
    def path(self) -> Path:
        """Where the chat is saved, or will be."""
        return self._store.path(self.name)

    @property
    def is_saved(self) -> bool:
        """Whether there is a file."""
        return self._has_file

    def describe(self, model: Model) -> str:
        """What a person should know of a chat that goes on with `model`."""
        what = f"going on with {self.name!r}, {in_words(len(self.state.saved_turns))}"
        return "; ".join([what, *filter(None, (self.remark, self.state.other_pair(model)))])

    def note(self, model: Model, decoder: Decoder) -> None:
        """What answers from now on, and the system prompt; saved with the next turn, where it has changed."""
        pair = pair_to_record(model, decoder)
        if {**pair, "time": ""} != {**self.state.pair, "time": ""}:
            self._add(pair)
        if (model.config.system or None) != self.state.system:
            self._add({"type": "system", "time": now(), "system": model.config.system or None})
            self._is_due |= self._has_file  # somebody set it: it is saved on leaving even if no turn comes

    def append_turn(self, turn: Turn, recording: Recording | None = None) -> None:
        """Save a turn that is over, and the events of its answer where they are given."""
        self._save([(turn_to_record(turn, recording), turn)])

    def append_turns(self, turns: Sequence[Turn]) -> None:
        """Save the turns of a chat that was not saved so far: all of them at once."""
        self._save([(turn_to_record(turn), turn) for turn in turns])

    def undo(self, count: int = 1) -> None:
        """The last `count` turns are no longer part of the conversation."""
        self._change("undo", min(count, len(self.state.saved_turns)))

    def clear(self) -> None:
        """No turn is part of the conversation any longer."""
        self._change("clear", min(1, len(self.state.saved_turns)))

    def _change(self, kind: str, count: int) -> None:
        self._save([({"type": kind, "time": now()}, None)] * count)

    def rename(self, name: str) -> None:
        """Call the chat `name`. Raises UsageError for a name that cannot be or that another chat has."""
        name = check_name(name)
        if name != self.name:
            uninterrupted(lambda: self._rename(name))  # the file must not move without our knowing

    def _rename(self, name: str) -> None:
        self._lock = self._store.move(self.name, name, self._lock, has_file=self._has_file)
        self.name = name
        if self._has_file:
            self._save([({"type": "rename", "time": now(), "name": name}, None)])

    def close(self) -> None:
        """Save what could not be saved before, and let others open the chat."""
        try:
            if self._is_due:
                uninterrupted(self._write)
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _add(self, record: Record, turn: Turn | None = None) -> None:
        self.state.add(record, turn)
        self._unsaved.append(encode(record))

    def _save(self, records: Sequence[tuple[Record, Turn | None]]) -> None:
        """Add the records and write all there is; Ctrl-C waits."""
        if not records:
            return
        try:
            uninterrupted(lambda: self._write(records))
        except DFlashError as err:
            if not self._has_told:
                self._has_told = True
                raise DFlashError(f"{err}. It is tried again after each turn and when you leave") from err

    def _write(self, records: Sequence[tuple[Record, Turn | None]] = ()) -> None:
        for record, turn in records:
            self._add(record, turn)
        self._is_due = True
        if self._has_file:
            append(self.path, self._unsaved)
        else:
            self.name, self._lock = self._store.create(self.name, self._lock, self._begin)
            self._has_file = True
            self._unsaved.clear()
        self._is_due = self._has_told = False

    def _begin(self, path: Path) -> None:
        write_private(path, b"".join(self._unsaved))
