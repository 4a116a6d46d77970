"""What a chat should know without having asked, each told once: a context that fills up, drafting that does not pay.

Imports no torch by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dflash_cli.expectation import Cost, Setting, acceptance_hint, loss_hint

if TYPE_CHECKING:
    from backends.base import Backend
    from dflash_cli.conversation import Conversation, Turn
    from dflash_cli.stats import AnswerStats

NEARLY_FULL = 0.8


class Hints:
    """Sums the figures of a chat's answers, and says what is remarkable. Another pair starts the sums anew."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._pair: tuple[str, str | None] | None = None
        self._forget()

    def _forget(self) -> None:
        self._lengths: list[int] = []
        self._thinking_passes = self._longest = 0
        self._drafted = self._plain = Cost(0.0, 0, 0)

    def after(self, conversation: Conversation, turn: Turn) -> Iterator[str]:
        """What to tell after an answer."""
        self.saw(conversation, turn.stats)
        candidates = {
            "context": context_warning(conversation, turn.stats),
            "acceptance": acceptance_hint(conversation.model.pair, self._lengths, self._setting(conversation)),
            "loss": loss_hint(self._drafted, self._plain) if turn.stats.draft_passes else None,
        }
        for name, text in candidates.items():
            if text is not None and name not in self._told:
                self._told.add(name)
                yield text
        if candidates["context"] is None:
            self._told.discard("context")  # there was room again, which may fill up again

    def saw(self, conversation: Conversation, stats: AnswerStats) -> None:
        """Take the figures of an answer, of a race too."""
        pair = conversation.model.pair
        if (pair.target, pair.drafter) != self._pair:
            self._pair = (pair.target, pair.drafter)
            self._forget()
        ms, tokens, passes = stats.draft_ms + stats.verify_ms, sum(stats.lengths), len(stats.lengths)
        self._longest = max(self._longest, stats.prompt_tokens + len(stats.ids))
        # What a pair is known for is of full blocks.
        full = conversation.decoder.backend.block_size - 1
        places = [place for place, drafted in enumerate(stats.drafted_each) if 0 < drafted == full]
        self._lengths += [stats.lengths[place] for place in places]
        self._thinking_passes += sum(place < stats.thinking_passes for place in places)
        if stats.draft_passes:
            self._drafted = _more(self._drafted, ms, tokens, passes)
        else:
            self._plain = _more(self._plain, ms, tokens, passes)

    def _setting(self, conversation: Conversation) -> Setting:
        model = conversation.model
        config = None if model.drafter is None else model.drafter.config
        window = None if config is None else config.sliding_window or config.max_position_embeddings
        return Setting(
            thinking_share=self._thinking_passes / len(self._lengths) if self._lengths else 0.0,
            temperature=model.params.temperature,
            longest=self._longest,
            window=window,
            precision=_precision(conversation.decoder.backend),
        )


def _precision(backend: Backend) -> str:
    return str(backend.dtype).removeprefix("torch.") if backend.quantize == "none" else backend.quantize


def _more(cost: Cost, ms: float, tokens: int, passes: int) -> Cost:
    return Cost(cost.ms + ms, cost.tokens + tokens, cost.passes + passes)


def context_warning(conversation: Conversation, stats: AnswerStats) -> str | None:
    """One line where an answer left less than a fifth of the context, else None."""
    used, limit = stats.prompt_tokens + len(stats.ids), conversation.max_len
    if used < NEARLY_FULL * limit:
        return None
    return f"{used} of the {limit} tokens of context are used; {ways_to_room(conversation)}"


def ways_to_room(conversation: Conversation) -> str:
    """How there would be more room, in words."""
    ways = ["/undo and /clear make room" if conversation.turns else "shorten it"]
    largest = 0 if conversation.is_released else conversation.model.target.config.max_position_embeddings
    if largest > conversation.max_len:
        ways.append(f"`/set context N` (or --context) gives a larger one, up to {largest}")
    return ", ".join(ways)
