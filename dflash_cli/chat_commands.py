"""The slash commands of a chat: one table, from which help and errors are made too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.errors import UsageError, nearest
from dflash_cli.overlay import MODES
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

MARK = "/"
KEYS = (
    ("Alt-Enter", "Start a new line; pasted lines are one message."),
    ("Ctrl-R", "Search what was typed before."),
    ("Ctrl-C", "Stop the answer, or clear the line; twice at an empty line leaves."),
    ("Ctrl-D", "Leave."),
)


@dataclass(frozen=True)
class Command:
    """One slash command. `arguments` is how help shows them; a command without takes none."""

    name: str
    arguments: str
    help: str
    handler: Callable[[Chat, str], None]
    aliases: tuple[str, ...] = ()


def is_command(message: str) -> bool:
    """Whether a message is for the chat and not for the model; `//` escapes a slash."""
    return message.startswith(MARK) and not message.startswith(MARK * 2)


def unescape(message: str) -> str:
    """The message as the model gets it."""
    return message[1:] if message.startswith(MARK * 2) else message


def run_command(chat: Chat, message: str) -> None:
    """Do what a slash command asks. Raises UsageError for an unknown one, naming the nearest."""
    name, _, argument = message.partition(" ") if " " in message else message.partition("\n")
    argument = argument.strip()
    command = _BY_NAME.get(name.lower())
    if command is None:
        hint = nearest(name, list(_BY_NAME)) or "; /help lists the commands"
        raise UsageError(f"unknown command {name!r}{hint} (to send such a message, start it with //)")
    if argument and not command.arguments:
        raise UsageError(f"{command.name} takes nothing after it; found {argument!r}")
    command.handler(chat, argument)


def _help(chat: Chat, _argument: str) -> None:
    rows = [(" ".join((each.name, each.arguments)).strip(), each.help) for each in COMMANDS]
    rows += [*KEYS, ("//text", "Send a message that starts with a slash.")]
    chat.say_table(rows)


def _clear(chat: Chat, _argument: str) -> None:
    count = len(chat.conversation.turns)
    chat.conversation.clear()
    chat.say(f"forgot {count} turn{'' if count == 1 else 's'}")


def _system(chat: Chat, text: str) -> None:
    chat.conversation.configure(system=text or None)
    chat.say("the system prompt is set" if text else "no system prompt but the template's own")


def _think(chat: Chat, word: str) -> None:
    model = chat.conversation.model
    if not model.codec.supports_thinking:
        raise UsageError(f"{model.pair.name} cannot switch thinking: its chat template has no such switch")
    if word not in ("", "on", "off"):
        raise UsageError(f"/think takes on or off; found {word!r}{nearest(word, ['on', 'off'])}")
    if word:
        chat.conversation.configure(thinking=word == "on")
    chat.say(thinking_line(chat.conversation.model.thinking))


def _overlay(chat: Chat, word: str) -> None:
    if word and not chat.overlay.switch(word):
        raise UsageError(f"/overlay takes {', '.join(MODES)}; found {word!r}{nearest(word, list(MODES))}")
    chat.say(chat.overlay.describe())


def _stats(chat: Chat, _argument: str) -> None:
    stats = chat.last_stats
    if stats is None:
        chat.say("no answer yet")
    else:
        chat.say_table(figures(stats))


def _quit(chat: Chat, _argument: str) -> None:
    chat.is_open = False


COMMANDS = (
    Command("/help", "", "Show this.", _help),
    Command("/clear", "", "Forget the conversation.", _clear),
    Command("/system", "[TEXT]", "Set the system prompt; without TEXT, the template's own.", _system),
    Command("/think", "[on|off]", "Let the model think before it answers.", _think),
    Command("/overlay", "[off|tokens|full]", "Show what was drafted, kept and corrected.", _overlay),
    Command("/stats", "", "Figures of the last answer.", _stats),
    Command("/quit", "", "Leave.", _quit, ("/exit", "/bye")),
)
_BY_NAME = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}


def thinking_line(thinking: bool | None) -> str:
    """The state of the template's switch in words."""
    return "thinking " + {None: "as the template decides", True: "on", False: "off"}[thinking]


def figures(stats: AnswerStats) -> list[tuple[str, str]]:
    """The figures of an answer, a row each."""
    speed = [f"first token after {stats.ttft_ms:.0f} ms"]
    if stats.tokens_per_s is not None:
        speed.insert(0, f"{stats.tokens_per_s:.1f} tok/s")
    parts = (
        ("prefill", stats.prefill_ms), ("draft", stats.draft_ms), ("verify", stats.verify_ms), ("other", stats.other_ms)
    )  # fmt: skip
    rows = [
        ("prompt", f"{stats.prompt_tokens} tokens, {stats.reused_tokens} of them reused from the cache"),
        ("answer", f"{len(stats.ids)} tokens in {len(stats.lengths)} passes after the first, end: {stats.reason}"),
        ("speed", ", ".join(speed)),
        ("time", ", ".join(f"{name} {ms:.0f} ms" for name, ms in parts)),
    ]
    if stats.rate is not None and stats.tau is not None:
        longest = max(stats.lengths)
        rows.append(("acceptance", f"τ {stats.tau:.2f} tokens a pass, longest {longest}"))
        rows.append(("drafts", f"{stats.accepted} of {stats.drafted} accepted ({stats.rate:.0%})"))
    return rows
