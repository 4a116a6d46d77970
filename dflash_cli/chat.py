"""`dflash chat`: a conversation in the terminal. The answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from dflash_cli.chat_commands import is_command, run_command, unescape
from dflash_cli.chat_input import Input, open_input
from dflash_cli.cli import Boundary, describe
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation, Turn
from dflash_cli.errors import DFlashError
from dflash_cli.events import Event
from dflash_cli.options import settings
from dflash_cli.overlay_live import Overlay
from dflash_cli.slash_settings import thinking_line
from dflash_cli.startup import load_model
from dflash_cli.stats import AnswerStats
from dflash_cli.terminal import AnswerOutput, printable

INTERRUPTED = "[interrupted]"
HINT = "/help lists the commands, Ctrl-D leaves"


@click.command("chat", context_settings={"help_option_names": ["-h", "--help"]})
@settings()
@click.pass_context
def chat_command(ctx: click.Context, config: Config) -> int:
    """Talk with a model. /help, typed at the prompt, lists the commands.

    Where stdin is a file or a pipe, each of its lines is a message and only the answers go to stdout.
    """
    screen = Screen(config)
    conversation = Conversation(load_model(config, tell=lambda line: screen.say(f"loading {line}")))
    screen.say(ready_line(conversation))
    source = open_input(screen.say)
    if source.has_person:
        screen.say(HINT)
    boundary = ctx.find_root().obj
    return Chat(conversation, source, screen, traceback=isinstance(boundary, Boundary) and boundary.traceback).run()


def ready_line(conversation: Conversation) -> str:
    """What `load` has not told: how the pair is going to be used."""
    model, decoder = conversation.model, conversation.decoder
    backend = decoder.backend
    parts = [
        f"blocks of {decoder.width}" if decoder.width > 1 else "plain decoding",
        f"{backend.name} backend",
        f"context {backend.max_len}",
    ]
    if model.codec.supports_thinking:
        parts.append(thinking_line(model.thinking))
    return f"{model.pair.name} is ready: {', '.join(parts)}"


class Screen:
    """All that a chat shows but the answers: remarks, figures and errors, on stderr."""

    def __init__(self, config: Config) -> None:
        self._is_quiet = config.quiet
        self._has_color = config.wants_color(sys.stderr)

    def say(self, text: str) -> None:
        """A remark; dim where there are colours, nothing with --quiet."""
        if not self._is_quiet:
            self.insist(text)

    def insist(self, text: str) -> None:
        """A remark that --quiet does not silence."""
        self._print(text if self._has_color else f"dflash: {text}", dim=True)

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Rows of a name and a text, the texts aligned."""
        width = max(len(name) for name, _ in rows)
        self._print("\n".join(f"{name:<{width}}  {text}" for name, text in rows))

    def fail(self, text: str) -> None:
        """An error, in one line."""
        self._print(f"dflash: error: {' '.join(text.split())}", fg="red")

    def _print(self, text: str, **style: Any) -> None:
        click.secho(printable(text), err=True, color=self._has_color, **(style if self._has_color else {}))


class Chat:
    """The loop: read a message, answer it or do what its slash command asks, tell the figures."""

    def __init__(self, conversation: Conversation, source: Input, screen: Screen, *, traceback: bool = False) -> None:
        """`traceback` raises unexpected errors instead of telling them and going on."""
        self.conversation = conversation
        self.is_open = True
        self.last_stats: AnswerStats | None = None
        self._source, self._screen = source, screen
        self._traceback = traceback
        self._has_failed = False
        self._was_interrupted = False
        self._output = AnswerOutput()
        config = conversation.model.config
        self.overlay = Overlay(sys.stdout, config.overlay, config.theme, has_color=config.wants_color(sys.stdout))

    def run(self) -> int:
        """Until the person leaves or the input ends; the exit status: 1 where a line of a file or pipe failed."""
        while self.is_open:
            try:
                message = self._source.read()
                if message is None:
                    break
                self.take(message)
            except KeyboardInterrupt:  # between a prompt and an answer there is nothing to stop
                if not self._source.has_person:
                    raise
        return int(self._has_failed and not self._source.has_person)

    def take(self, message: str) -> None:
        """Deal with one message. What goes wrong is told, and the conversation is as it was before."""
        if not message.strip():
            return
        for_chat = is_command(message.lstrip())
        try:
            if for_chat:
                run_command(self, message.strip())
            else:
                self._answer(unescape(message))
        except (DFlashError, ValueError, RuntimeError, MemoryError) as err:  # torch runs out of memory as RuntimeError
            if self._traceback and not isinstance(err, DFlashError):
                raise
            self._has_failed = True
            self._screen.fail(describe(err)[0] + ("" if for_chat else self._taken_back()))

    def _taken_back(self) -> str:
        way_out = "; /clear starts afresh" if self.conversation.turns else ""
        return f" (your message is not part of the conversation{way_out})"

    def say(self, text: str) -> None:
        """What a slash command has to tell; --quiet does not silence what was asked for."""
        self._screen.insist(text)

    def say_table(self, rows: Sequence[tuple[str, str]]) -> None:
        """The same, for rows of a name and a text."""
        self._screen.table(rows)

    def _answer(self, prompt: str) -> None:
        turn = self._ask(prompt)
        self.last_stats = turn.stats
        if turn.lost:
            self._screen.insist(f"{INTERRUPTED} before the answer began; your message is not part of the conversation")
        elif turn.interrupted:
            self._screen.insist(f"{INTERRUPTED} {turn.stats.summary().removesuffix(' · interrupted')}")
        else:
            self._screen.say(turn.stats.summary())
        # A file of prompts is left by the second Ctrl-C, not by one for each of its lines.
        if turn.interrupted and self._was_interrupted and not self._source.has_person:
            raise KeyboardInterrupt
        self._was_interrupted = turn.interrupted

    def _ask(self, prompt: str) -> Turn:
        return self._ask_live(prompt) if self.overlay.is_on else self._ask_plainly(prompt)

    def _ask_live(self, prompt: str) -> Turn:
        model = self.conversation.model
        with self.overlay.answer(model.codec, model.config.stop) as live:
            return self.conversation.ask(prompt, lambda event, _text: live.add(event))

    def _ask_plainly(self, prompt: str) -> Turn:
        shown = False

        def watch(_event: Event, text: str) -> None:
            nonlocal shown
            shown = shown or bool(text)
            self._output.write(text)

        try:
            turn = self.conversation.ask(prompt, watch)
        except BaseException:
            if shown:
                self._output.end()
            raise
        if turn.interrupted and self._output.on_terminal:
            self._output.write("\n")  # the terminal has written ^C on the line
        if not turn.lost:
            self._output.end()
        return turn
