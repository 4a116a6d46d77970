"""`dflash chat`: a conversation in the terminal. The answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from dflash_cli.answer_text import Said
from dflash_cli.backend_setup import backend_in_words, settle
from dflash_cli.chat_commands import is_command, run_command, unescape
from dflash_cli.chat_input import Input, open_input
from dflash_cli.chat_screen import PlainAnswer, Screen, shows_thinking
from dflash_cli.cli import Boundary, describe
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation, Turn
from dflash_cli.errors import DFlashError
from dflash_cli.events import Event, Finished
from dflash_cli.interrupts import uninterrupted
from dflash_cli.options import settings
from dflash_cli.overlay_live import Overlay
from dflash_cli.pace import Pace
from dflash_cli.session_log import SessionLog
from dflash_cli.session_options import SessionChoice, session_options
from dflash_cli.slash_show import thinking_line
from dflash_cli.startup import load_model
from dflash_cli.stats_store.keeper import TurnKeeper
from dflash_cli.terminal import AnswerOutput
from dflash_cli.trace import Recording, TraceWriter, head_of, record

INTERRUPTED = "[interrupted]"
TAKEN_BACK = " (your message is not part of the conversation)"
HINT = "/help lists the commands, F2 switches the overlay, Ctrl-D leaves"


@click.command("chat", context_settings={"help_option_names": ["-h", "--help"]})
@settings()
@session_options
@click.pass_context
def chat_command(ctx: click.Context, config: Config, session: SessionChoice) -> int:
    """Talk with a model. /help, typed at the prompt, lists the commands.

    Where stdin is a file or a pipe, each of its lines is a message and only the answers go to stdout.
    """
    screen, chats = Screen(config), list[Chat]()
    source = open_input(screen.say, config, lambda: next(iter(chats), None))
    log = session.open_log(save=config.save, has_person=source.has_person)
    try:
        trace = None if config.trace is None else TraceWriter(Path(config.trace))
        conversation = Conversation(load_model(config, tell=lambda line: screen.say(f"loading {line}")))
        boundary = ctx.find_root().obj
        traceback = isinstance(boundary, Boundary) and boundary.traceback
        chat = Chat(conversation, source, screen, log=log, trace=trace, traceback=traceback)
        chats.append(chat)
        screen.say(ready_line(conversation))
        for remark in conversation.model.idle_settings():
            screen.say(remark)
        chat.greet()
        if source.has_person:
            settle(conversation.model)
        return chat.run()
    finally:
        for each in chats:
            each.keeper.close()
        for open_log in [chats[0].log] if chats else [log]:  # /load and /save change it
            if open_log is not None:
                open_log.close()


def ready_line(conversation: Conversation) -> str:
    """What `load` has not told: how the pair is going to be used."""
    model, decoder = conversation.model, conversation.decoder
    backend = decoder.backend
    parts = [
        decoder.block_in_words,
        backend_in_words(backend.choice),
        f"context {backend.max_len}",
    ]
    if model.codec.supports_thinking:
        parts.append(thinking_line(model.thinking, model.config.show_thinking))
    return f"{model.pair.name} is ready: {', '.join(parts)}"


class Chat:
    """The loop: read a message, answer it or do what its slash command asks, tell the figures, save the turn."""

    def __init__(
        self,
        conversation: Conversation,
        source: Input,
        screen: Screen,
        *,
        log: SessionLog | None = None,
        trace: TraceWriter | None = None,
        traceback: bool = False,
    ) -> None:
        """`traceback` raises unexpected errors instead of telling them and going on."""
        self.conversation: Conversation = conversation
        self.source: Input = source
        self.screen: Screen = screen
        self.log: SessionLog | None = log
        self.is_open = True
        self.last_turn: Turn | None = None
        """The last answer, also where its turn is no longer part of the conversation."""
        self._record: Callable[[], Recording] | None = None
        self._trace, self._traceback = trace, traceback
        self.keeper = TurnKeeper("chat")
        self._has_failed = self._was_interrupted = False
        config = conversation.model.config
        has_color = config.wants_color(sys.stdout)
        self.overlay: Overlay = Overlay(sys.stdout, config.overlay, config.theme, has_color=has_color)

    @property
    def recording(self) -> Recording | None:
        """The events of the last answer with their times; None before the first."""
        return None if self._record is None else self._record()

    def greet(self) -> None:
        """Take up the saved conversation, if it is one, and say how to go on."""
        if self.log is not None and (self.log.is_saved or self.log.remark):
            self._resume(self.log)
        if self.source.has_person:
            self.screen.say(HINT)

    def _resume(self, log: SessionLog) -> None:
        asked = self.conversation.model.config.system
        self.conversation.take_up(log.state.turns, log.state.system if asked is None else asked)
        self.screen.insist(log.describe(self.conversation.model))

    def run(self) -> int:
        """Until the person leaves or the input ends; the exit status: 1 where a line of a file or pipe failed."""
        while self.is_open:
            try:
                self.source.prefill(self.overlay.take_typed())
                message = self._read()
                if message is None:
                    break
                self.take(message)
            except KeyboardInterrupt:  # between a prompt and an answer there is nothing to stop
                if not self.source.has_person:
                    raise
        if self.log is not None and self.log.is_saved and self.source.has_person:
            self.screen.say(f"saved as {self.log.name}; `dflash chat --continue` goes on with it")
        return int(self._has_failed and not self.source.has_person)

    def _read(self) -> str | None:
        """The next message that can be read."""
        while True:
            try:
                return self.source.read()
            except DFlashError as err:
                self._fail(err)

    def take(self, message: str) -> None:
        """Deal with one message. What goes wrong is told, and the conversation is as it was before."""
        if not message.strip():
            return
        if not is_command(message.lstrip()):
            self.submit(unescape(message))
            return
        self._try(lambda: run_command(self, message.strip()))

    def submit(self, prompt: str) -> None:
        """Answer a prompt as if it had been typed, tell the figures and save the turn.

        Ctrl-C ends the answer; one that comes when it is over is raised when the turn is saved.
        """
        uninterrupted(lambda: self._submit(prompt))

    def _submit(self, prompt: str) -> None:
        turns: list[Turn] = []
        before = list(self.conversation.turns)
        self._try(lambda: turns.append(self._ask(prompt)), TAKEN_BACK)
        if not turns:
            self.conversation.turns[:] = before  # what failed may have come after the answer
            return
        (turn,) = turns
        self.last_turn = turn
        self._tell(turn)
        for keep in (self._save, self._trace_it, self._count):  # one that fails costs the others nothing
            self._try(functools.partial(keep, turn))
        # A file of prompts is left by the second Ctrl-C, not by one for each of its lines.
        if turn.interrupted and self._was_interrupted and not self.source.has_person:
            raise KeyboardInterrupt
        self._was_interrupted = turn.interrupted

    def say(self, text: str) -> None:
        """What a slash command has to tell; --quiet does not silence what was asked for."""
        self.screen.insist(text)

    def say_table(self, rows: Sequence[tuple[str, str]]) -> None:
        """The same, for rows of a name and a text."""
        self.screen.table(rows)

    def _try(self, action: Callable[[], object], addition: str = "") -> None:
        """Do it; an error is told, with an addition."""
        try:
            action()
        except BrokenPipeError:
            raise
        except (DFlashError, ValueError, RuntimeError, MemoryError, OSError) as err:  # torch runs out as RuntimeError
            if self._traceback and not isinstance(err, DFlashError):
                raise
            self._fail(err, addition)

    def _fail(self, err: Exception, addition: str = "") -> None:
        self._has_failed = True
        self.screen.fail(describe(err)[0] + addition)

    def _tell(self, turn: Turn) -> None:
        if turn.lost:
            self.screen.insist(f"{INTERRUPTED} before the answer began; your message is not part of the conversation")
        elif turn.interrupted:
            self.screen.insist(f"{INTERRUPTED} {turn.stats.summary().removesuffix(' · interrupted')}")
        else:
            self.screen.say(turn.stats.summary())
        for hint in self.conversation.hints.after(self.conversation, turn):
            self.screen.say(hint)

    def _save(self, turn: Turn) -> None:
        model = self.conversation.model
        if self.log is not None and not turn.lost:
            self.log.note(model, self.conversation.decoder)
            self.log.append_turn(turn, self.recording if model.config.save_events else None)

    def _trace_it(self, _turn: Turn) -> None:
        if self._trace is not None and self.recording is not None:
            self._trace.write(self.recording)

    def _count(self, turn: Turn) -> None:
        model, decoder = self.conversation.model, self.conversation.decoder
        traced = self.recording if self._trace is not None else None
        if remark := self.keeper.remember(model, decoder, turn.stats, turn.text, recording=traced):
            self.screen.say(remark)

    def _ask(self, prompt: str) -> Turn:
        model = self.conversation.model
        codec, stop = model.codec, model.config.stop  # the recording must not hold a model that is let go
        events: list[tuple[Event, float]] = []
        head = head_of(model, self.conversation.decoder, prompt)
        pace = None if model.config.slow is None else Pace(model.config.slow)
        show = self._ask_live if self.overlay.is_on else self._ask_plainly

        def note(event: Event) -> None:
            paused_s = 0.0 if pace is None else pace.paused_s
            if isinstance(event, Finished):
                event = replace(event, ms=max(0.0, event.ms - paused_s * 1e3))
            events.append((event, time.perf_counter() - paused_s))

        try:
            return show(prompt, note, pace)
        finally:
            if events:
                self._record = lambda: record(events, codec, stop, head)

    def _ask_live(self, prompt: str, note: Callable[[Event], None], pace: Pace | None) -> Turn:
        model = self.conversation.model
        shown, markdown = shows_thinking(model.config), model.config.markdown
        with self.overlay.answer(
            model.codec, model.config.stop, show_thinking=shown, markdown=markdown, pace=pace
        ) as live:

            def watch(event: Event, said: Said) -> None:
                note(event)
                live.add(event, said.flags)

            return self.conversation.ask(prompt, watch, pace)

    def _ask_plainly(self, prompt: str, note: Callable[[Event], None], pace: Pace | None) -> Turn:
        is_shown = shows_thinking(self.conversation.model.config)
        plain = PlainAnswer(AnswerOutput(), self.screen.think if is_shown else None)

        def watch(event: Event, said: Said) -> None:
            note(event)
            plain.add(said)

        try:
            turn = self.conversation.ask(prompt, watch, pace)
        except BaseException:
            plain.break_off()
            raise
        plain.end(interrupted=turn.interrupted, lost=turn.lost)
        return turn
