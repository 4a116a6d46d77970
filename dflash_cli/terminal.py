"""What may reach a terminal: text from models and files is shown, never obeyed. Imports no torch."""

from __future__ import annotations

import os
import re
import sys
from typing import BinaryIO, TextIO

from dflash_cli.errors import DFlashError

# Controls but newline and tab (C0, DEL, C1), line and paragraph separators, bidi embeddings, overrides and isolates,
# their deprecated kin, interlinear marks, lone surrogates. The bidi marks of ordinary Arabic and Hebrew text and the
# joiners of emoji are none of these.
_UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u206f\\ufff9-\\ufffb\\ud800-\\udfff]",
)
DELETE = 0x7F


def printable(text: str) -> str:
    """The text with everything that could act on a terminal replaced by a visible symbol (`␛`, `<U+202E>`).

    Newlines and tabs stay, CR LF becomes a newline, any other carriage return is shown.
    """
    return _UNSAFE.sub(_symbol, text.replace("\r\n", "\n"))


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == DELETE else f"<U+{code:04X}>"


def stdin_bytes() -> BinaryIO:
    """Stdin as bytes. Raises DFlashError where there is none, as after `<&-`."""
    if sys.stdin is None:
        raise DFlashError("stdin is closed: there is nothing to read; name a file, or pipe a text")
    return sys.stdin.buffer


def is_interactive() -> bool:
    """Whether a person sits at both ends and the terminal can move its cursor."""
    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    """`isatty` for a stream that may be missing or closed."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


class AnswerOutput:
    """Answers on a stream, piece by piece as they come: `printable` on a terminal, else the exact bytes (UTF-8)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Raises DFlashError where there is no stdout, as after `>&-`."""
        stream = sys.stdout if stream is None else stream
        if stream is None:
            raise DFlashError("stdout is closed: there is nowhere to write the answer")
        self._stream = stream
        self.on_terminal = is_terminal(self._stream)
        self._buffer: BinaryIO | None = getattr(self._stream, "buffer", None)
        self._at_line_start = False

    def write(self, piece: str) -> None:
        """Print a piece at once."""
        if not piece:
            return
        self._at_line_start = piece.endswith("\n")
        if not self.on_terminal and self._buffer is not None:
            self._buffer.write(piece.encode("utf-8"))
            self._buffer.flush()
            return
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(printable(piece).encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    def end(self) -> None:
        """The answer is over: end its last line where it does not end in a newline itself."""
        if not self._at_line_start:
            self.write("\n")
        self._at_line_start = False
