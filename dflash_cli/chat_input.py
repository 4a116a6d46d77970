"""Where a chat's messages come from: an editable prompt for a person at a terminal, else the lines of stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dflash_cli.errors import DFlashError
from dflash_cli.terminal import is_interactive, is_terminal, stdin_bytes

if TYPE_CHECKING:
    from dflash_cli.chat import Chat
    from dflash_cli.config import Config

PROMPT = "> "
LEAVE_HINT = "Ctrl-C again or Ctrl-D leaves"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
Tell = Callable[[str], None]


class Input(Protocol):
    """A source of messages. `has_person`: somebody types and sees what happens, rather than a file or a pipe."""

    has_person: bool

    def read(self) -> str | None:
        """The next message, None when it is time to leave (end of input, or Ctrl-C twice).

        Raises DFlashError for a message that cannot be read; the next call gives the one after it.
        """

    def prefill(self, text: str) -> None:
        """Put `text` into the next prompt, to be edited, after what was put there before; nowhere without one."""


def open_input(tell: Tell, config: Config, chat: Callable[[], Chat | None] = lambda: None) -> Input:
    """The best input there is here; `tell` takes remarks for people, `chat` gives the chat once there is one.

    Raises DFlashError where stdin is closed.
    """
    if not is_interactive():
        return LineInput(tell)
    try:
        from dflash_cli.chat_prompt import PromptInput

        return PromptInput(tell, config, chat)
    except Exception as err:  # whatever a console it cannot drive makes the library raise
        tell(f"line editing is not available here ({err})")
        return LineInput(tell)


class LineInput:
    """The lines of stdin, each a message. The prompt goes to stderr, and only where a person can see it."""

    def __init__(self, tell: Tell) -> None:
        """Raises DFlashError where stdin is closed."""
        self.has_person = is_terminal(sys.stdin)
        self._stream = stdin_bytes()
        self._tell = tell
        self._number = 0

    def prefill(self, text: str) -> None:
        """See `Input`: there is no line to put it into."""

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
        line = self._stream.readline()
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
