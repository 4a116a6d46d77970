"""The keyboard while an answer streams: F2 acts at once, text that is typed waits unseen for the next prompt.

Ctrl-C and Ctrl-Z stay signals. Imports no torch.
"""

from __future__ import annotations

import codecs
import os
import re
import select
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TextIO

from dflash_cli.terminal import is_terminal

try:
    import termios
except ImportError:  # Windows: keys wait in the console's own buffer
    termios = None  # type: ignore[assignment]

F2 = ("\x1bOQ", "\x1b[12~", "\x1b[[B")
# Whole sequences of keys that are no text: the Linux console's function keys, CSI, SS3, Alt with a character.
_SEQUENCE = re.compile(r"\x1b(?:\[\[[A-E]|\[(?!\[)[0-?]*[ -/]*[@-~]|O[\x20-\x7e]|[^\[O\x1b])")
_BEGUN = re.compile(r"\x1b(?:\[\[?|\[[0-?]*[ -/]*|O)?$")
ERASING = "\x7f\b"
KILL_LINE = "\x15"
BYTES = 4096


class KeyParser:
    """Takes what a terminal sends. `typed` is the text of it, as far as it can be seen as text."""

    def __init__(self) -> None:
        self.typed = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._rest = ""  # the beginning of a sequence whose end has not come

    def feed(self, data: bytes) -> int:
        """Take more bytes; how often F2 is pressed in them."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        presses, at = 0, 0
        while at < len(text):
            if text[at] != "\x1b":
                self._type(text[at])
                at += 1
            elif found := _SEQUENCE.match(text, at):
                presses += found[0] in F2
                at = found.end()
            elif _BEGUN.match(text, at):
                self._rest = text[at:]
                break
            else:
                at += 1
        return presses

    def _type(self, char: str) -> None:
        if char in ERASING:
            self.typed = self.typed[:-1]
        elif char == KILL_LINE:
            self.typed = self.typed[: self.typed.rfind("\n") + 1]
        elif char in "\r\n":
            self.typed += "\n"
        elif char == "\t" or char.isprintable():
            self.typed += char


class KeyReader:
    """Within this context the keyboard is ours: keys are not echoed and come one by one, by `poll`.

    Where `stream` is no terminal, and on systems without termios, it does nothing and reads nothing.
    """

    def __init__(self, stream: TextIO | None, on_f2: Callable[[], object] = lambda: None) -> None:
        self._on_f2 = on_f2
        self._parser = KeyParser()
        self._fd = stream.fileno() if termios and stream is not None and is_terminal(stream) else None
        self._before: list[Any] | None = None

    @property
    def typed(self) -> str:
        """The text typed so far."""
        return self._parser.typed

    def __enter__(self) -> KeyReader:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.poll()
        finally:
            self.release()

    def take(self) -> None:
        """Set the terminal to send each key as it is pressed, unseen."""
        if self._fd is None:
            return
        with suppress(termios.error):  # the terminal went away, or a signal came: then it is set once more
            before = termios.tcgetattr(self._fd)
            self._before = self._before or before
            ours = [*before[:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:6], list(before[6])]
            ours[3] |= termios.ISIG | termios.NOFLSH  # Ctrl-C must not drop what was typed
            ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._fd, termios.TCSADRAIN, ours)

    def release(self) -> None:
        """Set the terminal as it was."""
        if self._fd is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def poll(self) -> None:
        """Take the keys pressed since the last time; does not wait."""
        if self._fd is None:
            return
        with suppress(OSError, ValueError):
            while select.select([self._fd], [], [], 0)[0]:
                data = os.read(self._fd, BYTES)
                for _ in range(self._parser.feed(data)):
                    self._on_f2()
                if not data:
                    return
