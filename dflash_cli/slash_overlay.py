"""Slash commands for what is shown of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.chat_screen import shows_thinking
from dflash_cli.config import SETTINGS
from dflash_cli.errors import UsageError
from dflash_cli.overlay import MODES
from dflash_cli.replay import parse_speed, replay
from dflash_cli.slash import Command, check_choice, one_of
from dflash_cli.terminal import AnswerOutput

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

STOPPED = "[replay stopped]"


def _overlay(chat: Chat, word: str) -> None:
    check_choice("/overlay", word, MODES)
    if word:
        chat.overlay.switch(word)
    chat.say(chat.overlay.describe())


def _raw(chat: Chat, word: str) -> None:
    check_choice("/raw", word, ("on", "off"))
    if word:
        chat.conversation.configure(markdown=word == "off")
        chat.say(f"Markdown is {'shown as its source' if word == 'on' else 'rendered when the overlay is off'}")
        return
    if chat.last_turn is None:
        raise UsageError("there is no answer yet whose source could be shown")
    output = AnswerOutput()
    output.write(chat.last_turn.answer)
    output.end()


def _slow(chat: Chat, word: str) -> None:
    if word:
        chat.conversation.configure(slow=None if word == "off" else _steps(word))
    slow = chat.conversation.model.config.slow
    chat.say("full speed" if slow is None else f"at most {slow:g} step{'' if slow == 1 else 's'} a second")


def _steps(word: str) -> float:
    try:
        return float(SETTINGS["slow"].parse(word))
    except ValueError as err:
        raise UsageError(f"/slow takes steps a second or off: {err}") from None


def _replay(chat: Chat, word: str) -> None:
    speed = parse_speed(word)
    recording = chat.recording
    if recording is None:
        raise UsageError("there is no answer yet that could be played again")
    shown = shows_thinking(chat.conversation.model.config)
    if not replay(recording, chat.overlay, speed, show_thinking=shown):
        chat.say(STOPPED)


COMMANDS = (
    Command(
        "/overlay",
        "[off|tokens|full]",
        "Show what was guessed and kept; F2 does so in mid-answer.",
        _overlay,
        words=one_of(*MODES),
        more="`off` shows the answer alone, as Markdown; `tokens` colours it; `full` adds guesses and figures.",
    ),
    Command("/slow", "[N|off]", "Show at most N steps a second.", _slow, words=one_of("1", "2", "5", "off")),
    Command(
        "/replay", "[SPEED]", "Play the last answer again, as in /replay 0.5.", _replay, words=one_of("0.25", "1", "4")
    ),
    Command(
        "/raw", "[on|off]", "Show the last answer's source, or all answers as source.", _raw, words=one_of("on", "off")
    ),
)
