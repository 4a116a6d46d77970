"""The editable prompt of a chat, by prompt-toolkit: keys, completion, history and the toolbar."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dflash_cli.chat_completion import completer, is_name
from dflash_cli.chat_input import LEAVE_HINT, PROMPT, Tell
from dflash_cli.editor import edit
from dflash_cli.errors import DFlashError
from dflash_cli.overlay_render import glyphs_for
from dflash_cli.prompt_history import open_history
from dflash_cli.prompt_resize import hear_resizes
from dflash_cli.toolbar import STYLES, render, status_of

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input as PromptToolkitInput
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent
    from prompt_toolkit.layout.processors import Processor

    from dflash_cli.chat import Chat
    from dflash_cli.config import Config

CONTINUATION = "  "
MENU_ROWS = 8
ROWS_FOR_TOOLBAR = 3
EARLY_BYTES = 4096
# The part of `terminal.printable` that prompt-toolkit, which shows other controls as ^X, would send as it is.
_UNSAFE = re.compile("[\\u2028-\\u202e\\u2066-\\u206f\\ufff9-\\ufffb\\ud800-\\udfff]")


class Killed(BaseException):
    """SIGTERM came while the prompt waited."""


class PromptInput:
    """An `Input` with editing, history (Ctrl-R), completion (Tab), a toolbar, several lines by Alt-Enter or a paste."""

    has_person = True

    def __init__(self, tell: Tell, config: Config, chat: Callable[[], Chat | None]) -> None:
        """See `open_input`."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.output import ColorDepth
        from prompt_toolkit.styles import Style

        self._tell, self._chat = tell, chat
        self._has_color = config.wants_color(sys.stdout)
        self._was_asked = self._hears_resizes = False
        self._prefilled = ""
        self._session: PromptSession[str] = PromptSession(
            [("bold", PROMPT)],
            history=open_history(tell, keep=config.history),
            key_bindings=self._key_bindings(),
            prompt_continuation=CONTINUATION,
            completer=completer(chat),
            complete_while_typing=Condition(self._is_name),
            input_processors=[_visible()],
            style=Style.from_dict(STYLES),
            color_depth=None if self._has_color else ColorDepth.DEPTH_1_BIT,
            search_ignore_case=True,
            enable_suspend=True,
        )
        self._session.default_buffer.on_text_changed += self._forget_interrupt
        self._session.app.before_render += self._before_render
        self._add_toolbar(self._session.app)

    def read(self) -> str | None:
        """See `Input`. Ctrl-C clears the line; at an empty one it leaves when pressed again."""
        self._was_asked = False
        text, self._prefilled = self._prefilled.rstrip("\n"), ""
        while True:
            try:
                with _own_handler(signal.SIGTERM):
                    return self._session.prompt(default=text, pre_run=self._listen)
            except EOFError:
                return None
            except Killed:
                signal.raise_signal(signal.SIGTERM)
                return None
            except KeyboardInterrupt:
                if self._was_asked:
                    return None
                self._tell(LEAVE_HINT)
                self._was_asked, text = True, ""

    def prefill(self, text: str) -> None:
        """See `Input`."""
        self._prefilled += text.replace("\r\n", "\n").replace("\r", "\n")

    def _listen(self) -> None:
        """The prompt begins. Being killed at once would leave the terminal without echo."""
        app, self._hears_resizes = self._session.app, False
        with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; not the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: app.exit(exception=Killed))
        if sys.platform != "win32":
            _take_early_keys(app.input)

    def _is_name(self) -> bool:
        return is_name(self._session.default_buffer.document.text_before_cursor)

    def _add_toolbar(self, app: Application[str]) -> None:
        """Right below what is typed.

        The library's own toolbar is at the bottom of the terminal, with blank rows above: in a window that gets
        narrower it is folded, and what it pushes off the screen, the prompt itself too, can never be erased again.
        """
        from prompt_toolkit.filters import Condition, is_done
        from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Window
        from prompt_toolkit.renderer import CPR_Support

        has_room = Condition(lambda: app.output.get_size().rows >= ROWS_FOR_TOOLBAR)
        window = Window(FormattedTextControl(self._toolbar), height=1, dont_extend_height=True)
        app.layout.container = HSplit([app.layout.container, ConditionalContainer(window, ~is_done & has_room)])
        app.renderer.cpr_support = CPR_Support.NOT_SUPPORTED  # where the cursor is only matters for the bottom

    def _toolbar(self) -> StyleAndTextTuples:
        chat = self._chat()
        if chat is None:
            return []
        width = self._session.output.get_size().columns
        glyphs = glyphs_for(sys.stdout.encoding)
        return [*render(status_of(chat), width, has_color=self._has_color, glyphs=glyphs)]

    def _before_render(self, app: Application[str]) -> None:
        # Room for the menu, but not more than a small window has.
        self._session.reserve_space_for_menu = max(0, min(MENU_ROWS, app.output.get_size().rows - 2))
        if not self._hears_resizes:
            self._hears_resizes = True
            hear_resizes(app)

    def _forget_interrupt(self, _buffer: object) -> None:
        self._was_asked = False

    def _key_bindings(self) -> KeyBindings:
        from prompt_toolkit.filters import is_searching
        from prompt_toolkit.key_binding import KeyBindings

        bindings = KeyBindings()
        bindings.add("escape", "enter")(_new_line)
        bindings.add("c-j", filter=~is_searching)(_new_line)
        bindings.add("c-c", filter=~is_searching)(_clear_or_leave)
        bindings.add("<sigint>")(_clear_or_leave)
        bindings.add("f2")(self._cycle_overlay)
        bindings.add("escape", "e")(self._edit)
        bindings.add("c-x", "c-e")(self._edit)
        return bindings

    def _cycle_overlay(self, _event: KeyPressEvent) -> None:
        if (chat := self._chat()) is not None:
            chat.overlay.cycle()

    def _edit(self, event: KeyPressEvent) -> None:
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.document import Document

        buffer, chat = event.current_buffer, self._chat()

        def change() -> None:
            try:
                saved = edit(buffer.text)
            except DFlashError as err:
                (chat.screen.fail if chat is not None else self._tell)(str(err))
                return
            if saved is not None:
                buffer.document = Document(saved)

        run_in_terminal(change)


def _take_early_keys(keyboard: PromptToolkitInput) -> None:
    """Enter, pressed between an answer and its prompt, comes from the terminal as a newline: as Ctrl-J would."""
    from prompt_toolkit.input.typeahead import store_typeahead
    from prompt_toolkit.input.vt100_parser import Vt100Parser
    from prompt_toolkit.key_binding import KeyPress

    source, data, keys = keyboard.fileno(), b"", list[KeyPress]()
    if not os.isatty(source):
        return
    while select.select([source], [], [], 0)[0]:
        piece = os.read(source, EARLY_BYTES)
        data += piece or b"\x04"  # the terminal has made an end of input of Ctrl-D
        if not piece:
            break
    Vt100Parser(keys.append).feed(data.decode("utf-8", "replace").replace("\n", "\r"))
    store_typeahead(keyboard, keys)


def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _clear_or_leave(event: KeyPressEvent) -> None:
    if event.current_buffer.text:
        event.current_buffer.reset()
    else:
        event.app.exit(exception=KeyboardInterrupt)


def _visible() -> Processor:
    """Shows characters that could act on a terminal, from a paste or an old message, as U+FFFD."""
    from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

    class Visible(Processor):
        def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
            shown = [(style, _UNSAFE.sub("\ufffd", text)) for style, text, *_ in transformation_input.fragments]
            return Transformation([*shown])

    return Visible()


@contextmanager
def _own_handler(number: int) -> Iterator[None]:
    """Put the handler of a signal back afterwards: the prompt's event loop leaves the system's own behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, handler)
