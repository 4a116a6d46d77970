"""Slash commands that go back and forth in a conversation, and tell of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.hints import ways_to_room
from dflash_cli.slash import Command
from dflash_cli.stats import Acceptance, AnswerStats

if TYPE_CHECKING:
    from dflash_cli.chat import Chat
    from dflash_cli.conversation import Conversation, Turn

PROMPT_CHARS = 40  # of a turn's prompt, where it is named
NONE = "there is no turn yet"
ACCEPTANCE = [each.name for each in fields(Acceptance)]


def _clear(chat: Chat, _argument: str) -> None:
    count = len(chat.conversation.turns)
    chat.conversation.clear()
    chat.say(f"forgot {_turns(count)}")
    if chat.log is not None:
        chat.log.clear()


def _undo(chat: Chat, word: str) -> None:
    there = len(chat.conversation.turns)
    if not re.fullmatch(r"[1-9]\d{0,8}|", word, re.ASCII):
        raise UsageError(f"/undo takes a number of turns, at least 1; found {word!r}")
    count = int(word or 1)
    if count > there:
        raise UsageError(f"there {'is' if there == 1 else 'are'} only {_turns(there)} to take back" if there else NONE)
    taken = chat.conversation.undo(count)
    chat.say(f"took back {_turns(count)}, from {_named(taken[0])} on")
    if chat.log is not None:
        chat.log.undo(len(taken))


def _retry(chat: Chat, _argument: str) -> None:
    conversation = chat.conversation
    if not conversation.turns:
        raise UsageError(NONE)
    if remark := _same_text(conversation):
        chat.say(remark)
    (last,) = conversation.undo()
    there = len(conversation.turns)
    try:
        _log_undo(chat)
        chat.submit(last.prompt)
    finally:
        if len(conversation.turns) == there:
            conversation.turns.append(last)
            chat.say("the earlier answer stays")
            if chat.log is not None:
                chat.log.append_turn(last)


def _log_undo(chat: Chat) -> None:
    """A file that cannot be written must not keep anybody from retrying: it is told, and tried again later."""
    try:
        if chat.log is not None:
            chat.log.undo()
    except DFlashError as err:
        chat.say(str(err))


def _same_text(conversation: Conversation) -> str:
    params = conversation.model.params
    if params.greedy:
        return "sampling is greedy: unless a setting has changed, the text will be the same (/set temperature 0.7)"
    if params.seed is not None:
        return f"the seed is {params.seed}: unless a setting has changed, the text will be the same (/set seed default)"
    return ""


def _stats(chat: Chat, _argument: str) -> None:
    if chat.last_turn is None:
        chat.say("no answer yet")
        return
    turns = chat.conversation.turns
    chat.say_table([*figures(chat.last_turn.stats), *totals([turn.stats for turn in turns])])


def _context(chat: Chat, _argument: str) -> None:
    chat.say_table(list(context_rows(chat.conversation)))


def _race(chat: Chat, _argument: str) -> None:
    from dflash_cli.race import prepare
    from dflash_cli.race_view import can_draw, live, unseen_keys

    is_drawn = can_draw()
    try:
        with unseen_keys(chat.source.prefill) if is_drawn else nullcontext(lambda: None) as look_at_keys:
            race = prepare(chat.conversation)
            with live(race, has_color=chat.screen.has_color) if is_drawn else nullcontext():
                race.run(look_at_keys)
            result = race.compare().summary(chat.conversation.model.codec, str(race.plain.decoder.backend.dtype)[6:])
    except KeyboardInterrupt:
        if not chat.source.has_person:
            raise
        chat.say("the race was stopped")
        return
    for racer in race.racers:
        chat.conversation.hints.saw(chat.conversation, racer.stats)
    chat.say_table([*((racer.name, racer.figures()) for racer in race.racers), ("result", result)])


def _quit(chat: Chat, _argument: str) -> None:
    chat.is_open = False


COMMANDS = (
    Command("/retry", "", "Answer the last prompt again; the old answer is dropped.", _retry),
    Command("/undo", "[N]", "Take back the last turn, or the last N.", _undo),
    Command("/clear", "", "Forget the conversation.", _clear),
    Command("/race", "", "The last prompt, plain and speculative side by side.", _race),
    Command("/stats", "", "Figures of the last answer and of the chat.", _stats),
    Command("/context", "", "Tokens used, of which turn by turn, and how to get more room.", _context),
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
    if stats.thinking_tokens:
        rows.append(("thinking", _part(stats.thinking_tokens, stats.thinking)))
        rows.append(("after it", _part(len(stats.ids) - stats.thinking_tokens, stats.answer)))
    return rows


def _part(tokens: int, acceptance: Acceptance) -> str:
    if acceptance.rate is None or acceptance.tau is None:
        return f"{tokens} tokens"
    return f"{tokens} tokens, τ {acceptance.tau:.2f}, {acceptance.rate:.0%} of drafts accepted"


def totals(answers: Sequence[AnswerStats]) -> list[tuple[str, str]]:
    """The answers of a conversation together; nothing where there is but one."""
    if len(answers) < 2:
        return []
    parts = [_count(len(answers), "answer"), f"{sum(len(each.ids) for each in answers)} tokens"]
    later, ms = sum(max(0, len(each.ids) - 1) for each in answers), sum(each.decode_ms for each in answers)
    if later and ms > 0:
        parts.append(f"{later / ms * 1e3:.1f} tok/s")
    rows = [("conversation", ", ".join(parts))]
    thinking, rest = _sum(each.thinking for each in answers), _sum(each.answer for each in answers)
    if thinking.drafted:
        rows.append(("its thinking", _part(thinking.tokens, thinking)))
    if rest.drafted:
        rows.append(("its answers", _part(rest.tokens, rest)))
    return rows


def _sum(parts: Iterable[Acceptance]) -> Acceptance:
    drafted = [each for each in parts if each.drafted]  # plain passes have no place in an acceptance length
    return Acceptance(*(sum(getattr(each, name) for each in drafted) for name in ACCEPTANCE))


def context_rows(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Tokens used and left, by part. A part counts what it adds to the prompt, as the template renders it now."""
    model, turns = conversation.model, conversation.turns
    sizes = [len(conversation.encode_first(count)) for count in range(len(turns) + 1)]
    limit = conversation.max_len
    yield "used", f"{sizes[-1]} of {limit} tokens ({sizes[-1] / limit:.0%}), {max(0, limit - sizes[-1])} left"
    system = "the system prompt and " if model.config.system else ""  # which may take the place of the template's own
    yield "template", f"{sizes[0]}  with {system}a message of one word"
    for number, (turn, before, after) in enumerate(zip(turns, sizes, sizes[1:], strict=False), 1):
        yield f"turn {number}", f"{after - before}  {_named(turn)}"
    if turns:
        yield "for more", ways_to_room(conversation)


def _named(turn: Turn) -> str:
    prompt = " ".join(turn.prompt.split())
    return repr(prompt if len(prompt) <= PROMPT_CHARS else prompt[: PROMPT_CHARS - 1] + "…")


def _turns(count: int) -> str:
    return _count(count, "turn")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
