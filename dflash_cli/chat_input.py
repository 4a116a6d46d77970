"""Where a chat's messages come from: an editable prompt for a person at a terminal, else the lines of stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dflash_cli.errors import DFlashError
from dflash_cli.paths import ensure_private, state_dir
from dflash_cli.terminal import is_interactive, is_terminal, stdin_bytes

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

PROMPT = "> "
CONTINUATION = "  "
LEAVE_HINT = "Ctrl-C again or Ctrl-D leaves"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
Tell = Callable[[str], None]


class Input(Protocol):
    """A source of messages. `has_person`: somebody types and sees what happens, rather than a file or a pipe."""

    has_person: bool

    def read(self) -> str | None:
        """The next message, None when it is time to leave (end of input, or Ctrl-C twice)."""


def open_input(tell: Tell) -> Input:
    """The best input there is here; `tell` takes remarks for people."""
    if not is_interactive():
        return LineInput(tell)
    try:
        return PromptInput(tell)
    except Exception as err:  # whatever a console it cannot drive makes the library raise
        tell(f"line editing is not available here ({err})")
        return LineInput(tell)


class LineInput:
    """The lines of stdin, each a message. The prompt goes to stderr, and only where a person can see it."""

    def __init__(self, tell: Tell) -> None:
        self.has_person = is_terminal(sys.stdin)
        self._tell = tell
        self._number = 0

    def read(self) -> str | None:
        """See `Input`. Raises DFlashError for a line that is not UTF-8; Ctrl-C is raised where no person types."""
        was_asked = False
        while True:
            try:
                self._show_prompt(PROMPT)
                return self._line()
            except KeyboardInterrupt:
                if not self.has_person:
                    raise
                self._show_prompt("\n")
                if was_asked:
                    return None
                was_asked = True
                self._tell(LEAVE_HINT)

    def _show_prompt(self, text: str) -> None:
        if self.has_person and is_terminal(sys.stderr):
            sys.stderr.write(text)
            sys.stderr.flush()

    def _line(self) -> str | None:
        line = stdin_bytes().readline()
        self._number += 1
        if not line:
            self._show_prompt("\n")
            return None
        if self._number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            return line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as err:
            raise DFlashError(
                f"line {self._number} of stdin is not UTF-8 text: byte 0x{line[err.start]:02x} at position "
                f"{err.start}; convert it first"
            ) from None


class PromptInput:
    """prompt-toolkit: editing, history with Ctrl-R, several lines by Alt-Enter or by pasting them."""

    has_person = True

    def __init__(self, tell: Tell) -> None:
        from prompt_toolkit import PromptSession

        self._tell = tell
        self._was_asked = False
        self._session: PromptSession[str] = PromptSession(
            [("bold", PROMPT)],
            history=open_history(tell),
            key_bindings=_key_bindings(),
            prompt_continuation=CONTINUATION,
            search_ignore_case=True,
            enable_suspend=True,
        )
        self._session.default_buffer.on_text_changed += self._forget_interrupt

    def read(self) -> str | None:
        """See `Input`. Ctrl-C clears the line; at an empty one it leaves when pressed again."""
        self._was_asked = False
        while True:
            try:
                return self._session.prompt()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._was_asked:
                    return None
                self._tell(LEAVE_HINT)
                self._was_asked = True

    def _forget_interrupt(self, _buffer: object) -> None:
        self._was_asked = False


def _key_bindings() -> KeyBindings:
    from prompt_toolkit.filters import is_searching
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c", filter=~is_searching)
    @bindings.add("<sigint>")
    def clear_or_leave(event: Any) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return bindings


def open_history(tell: Tell) -> History:
    """The history file, readable by its owner alone; for this session only where it cannot be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class PrivateHistory(FileHistory):
        def store_string(self, string: str) -> None:
            try:
                super().store_string(string)
            except OSError as err:  # a full disk must not end the conversation
                tell(f"the history {os.fsdecode(path)} cannot be written: {err.strerror or err}")

    path = state_dir() / "history"
    try:
        ensure_private(path.parent)
        _make_private(path)
    except (DFlashError, OSError) as err:
        tell(f"the history is kept for this session only: {err}")
        return InMemoryHistory()
    return PrivateHistory(path)


def _make_private(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
