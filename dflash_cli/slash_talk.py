"""Slash commands that go back and forth in a conversation, and tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_cli.slash import Command
from dflash_cli.stats import AnswerStats

if TYPE_CHECKING:
    from dflash_cli.chat import Chat


def _clear(chat: Chat, _argument: str) -> None:
    count = len(chat.conversation.turns)
    chat.conversation.clear()
    chat.say(f"forgot {count} turn{'' if count == 1 else 's'}")


def _stats(chat: Chat, _argument: str) -> None:
    stats = chat.last_stats
    if stats is None:
        chat.say("no answer yet")
    else:
        chat.say_table(figures(stats))


def _quit(chat: Chat, _argument: str) -> None:
    chat.is_open = False


COMMANDS = (
    Command("/clear", "", "Forget the conversation.", _clear),
    Command("/stats", "", "Figures of the last answer.", _stats),
    Command("/quit", "", "Leave.", _quit, ("/exit", "/bye")),
)


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
