"""What the overlay knows of an answer: a pure fold of its events and of the text of their ids.

Knows no terminal and no clock: times come with the events. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, FinishReason, Prefilled
from dflash_cli.parts import Parts
from dflash_cli.stream import KEPT, REPLACEMENT, TextStream

if TYPE_CHECKING:
    from dflash_cli.text import TextCodec

Mode = Literal["off", "tokens", "full"]
MODES: tuple[Mode, ...] = ("off", "tokens", "full")
Kind = Literal["first", "accepted", "bonus", "plain"]
Cell = Literal["accepted", "rejected", "unreached"]
NUM_BLOCKS = 64  # blocks kept for the strip: more than any terminal is wide


@dataclass(frozen=True, slots=True)
class Piece:
    """Committed text and where its token came from; `plain`: without a draft that was verified.

    `shown`: what of the text readers see (see `Parts`). `thinking`: whether it belongs to the thinking.
    """

    text: str
    kind: Kind
    shown: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """One verify pass: of `drafted` drafts `reached` were in question and `accepted` kept; `length` ids committed."""

    drafted: int
    reached: int
    accepted: int
    length: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """One for each slot; a stop or the length limit leaves the last ones unreached."""
        rejected, unreached = self.reached - self.accepted, self.drafted - self.reached
        cells: list[Cell] = ["accepted"] * self.accepted
        cells += ["rejected"] * rejected
        cells += ["unreached"] * unreached
        return tuple(cells)


@dataclass(frozen=True, slots=True)
class Newest:
    """The block verified last: `at` is the index of its first piece, `rejected` the drafts that were thrown away."""

    at: int
    accepted: int = 0
    rejected: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over an answer or a session. Times in milliseconds; the first id of an answer has no time and no pass."""

    later: int = 0
    passes: int = 0
    accepted: int = 0
    drafted: int = 0
    ms: float = 0.0

    def plus(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(
            self.later + other.later,
            self.passes + other.passes,
            self.accepted + other.accepted,
            self.drafted + other.drafted,
            self.ms + other.ms,
        )

    def minus(self, part: Totals) -> Totals:
        """What is left without a part."""
        return self.plus(Totals(-part.later, -part.passes, -part.accepted, -part.drafted, -part.ms))

    @property
    def tau(self) -> float | None:
        """Mean acceptance length, as `AnswerStats.tau`; None before the first pass and where nothing was drafted."""
        return self.later / self.passes if self.drafted else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first over the time since the first; None before a second token."""
        return self.later / self.ms * 1e3 if self.later and self.ms > 0 else None


@dataclass(frozen=True)
class OverlayState:
    """An answer so far. `add` and `next_turn` give new states; none is ever changed."""

    pieces: tuple[Piece, ...] = ()
    pending: tuple[str, ...] = ()
    """Texts of drafts that are not verified yet."""
    drafted: tuple[str, ...] = ()
    newest: Newest = Newest(0)
    blocks: tuple[Block, ...] = ()
    reached: tuple[int, ...] = ()
    """How many blocks had their k-th draft in question; `survived`: and kept it."""
    survived: tuple[int, ...] = ()
    turn: Totals = Totals()
    thinking: Totals = Totals()
    """Of the turn's passes that belong to the thinking, as their first ids do."""
    num_thinking: int = 0
    """Ids of the thinking, its tags included."""
    parts: Parts = field(default_factory=Parts)
    answer_at: int | None = None
    """Index of the first piece that shows text of the answer after thinking."""
    earlier: Totals = Totals()
    """Of the session's turns before this one."""
    finished: FinishReason | None = None
    begun: float = field(default=0.0, repr=False)

    @property
    def text(self) -> str:
        """The committed text: that of the ids, less what a stop string cut off."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def session(self) -> Totals:
        """This turn and those before."""
        return self.earlier.plus(self.turn)

    @property
    def survival(self) -> tuple[float, ...]:
        """For each draft position: the share of the blocks with drafts that kept them up to and with it."""
        # Not of those in which it was verified: where widths are fitted, that is where it was likely to be kept.
        pairs = zip(self.survived, self.reached, strict=True)
        return tuple(kept / self.reached[0] for kept, tried in pairs if tried)

    def next_turn(self) -> OverlayState:
        """The beginning of the next answer: blocks, survival and sums of the session stay."""
        return OverlayState(blocks=self.blocks, reached=self.reached, survived=self.survived, earlier=self.session)

    def add(self, event: Event, texts: Sequence[str] = (), at: float = 0.0, flags: Sequence[bool] = ()) -> OverlayState:
        """The state after one more event, `at` seconds of any clock.

        `texts`: one for each id of the event (see `TokenTexts`), for Finished what was held back. `flags`: for each
        new id, whether it is thinking (see `ThinkingStream`); none of them is by default.
        """
        if isinstance(event, Prefilled):
            begun = self._with(texts, ["first"] * len(texts), flags)
            return replace(begun, begun=at, num_thinking=sum(flags))
        if isinstance(event, BlockDrafted):
            return replace(self, pending=tuple(texts), drafted=tuple(texts))
        if isinstance(event, BlockVerified):
            return self._verified(event, texts, at, flags)
        kind, thinking = (self.pieces[-1].kind, self.pieces[-1].thinking) if self.pieces else ("first", False)
        ended = self._with([text for text in texts if text], [kind], [thinking])
        return replace(ended, pending=(), finished=event.reason, turn=replace(self.turn, ms=event.ms))

    def _with(self, texts: Sequence[str], kinds: Sequence[Kind], flags: Sequence[bool]) -> OverlayState:
        pieces, parts, answer_at = list(self.pieces), self.parts, self.answer_at
        for text, kind, thinking in zip(texts, kinds, flags or [False] * len(texts), strict=False):
            shown, parts = parts.show(text, thinking=thinking)
            if answer_at is None and parts.thought and parts.has_answer:
                answer_at = len(pieces)
            pieces.append(Piece(text, kind, shown, thinking))
        return replace(self, pieces=tuple(pieces), parts=parts, answer_at=answer_at)

    def _verified(self, event: BlockVerified, texts: Sequence[str], at: float, flags: Sequence[bool]) -> OverlayState:
        own: Kind = "bonus" if event.num_drafted else "plain"
        kinds: list[Kind] = ["accepted" if i < event.accepted else own for i in range(len(texts))]
        drafted = max(len(self.drafted), event.num_drafted)
        turn = Totals(len(event.new_ids), 1, event.accepted, event.num_drafted).plus(self.turn)
        block = Block(drafted, event.num_drafted, event.accepted, len(event.new_ids))
        turn = replace(turn, ms=(at - self.begun) * 1e3)
        return replace(
            self._with(texts, kinds, flags),
            pending=(),
            drafted=(),
            newest=Newest(len(self.pieces), event.accepted, "".join(self.drafted[event.accepted : event.num_drafted])),
            blocks=(*self.blocks, block)[-NUM_BLOCKS:] if event.num_drafted else self.blocks,
            reached=_counted(self.reached, event.num_drafted, drafted),
            survived=_counted(self.survived, event.accepted, drafted),
            turn=turn,
            thinking=turn if flags and flags[0] else self.thinking,
            num_thinking=self.num_thinking + sum(flags),
        )


def _counted(counts: tuple[int, ...], first: int, width: int) -> tuple[int, ...]:
    """One more for each of the `first` places."""
    counts += (0,) * (width - len(counts))
    return tuple(count + (i < first) for i, count in enumerate(counts))


class TokenTexts:
    """The text of each id of an answer's events. Not pure: it detokenises as the ids come.

    A character made of several ids belongs to the one that completes it, text held back as the possible beginning
    of a stop string to the one that shows it is none. Joined, the texts are what `answering.answer` returns.
    """

    def __init__(self, codec: TextCodec, stop: Sequence[str] = ()) -> None:
        self._codec = codec
        self._stream = TextStream(codec, stop)
        self._last_ids: list[int] = []

    def of(self, event: Event) -> tuple[str, ...]:
        """What `OverlayState.add` takes with this event; call it for every event, in order, drafts excepted."""
        if isinstance(event, BlockDrafted):
            return self._drafts(event.ids)
        if isinstance(event, Finished):
            rest = self._stream.flush()
            # As in `answering.answer`: a character that was cut in half will never be whole.
            return (rest if event.reason == "stop" else rest.rstrip(REPLACEMENT),)
        self._last_ids = [*self._last_ids, *event.new_ids][-KEPT:]
        return tuple(self._stream.push([each]) for each in event.new_ids)

    def _drafts(self, ids: Sequence[int]) -> tuple[str, ...]:
        stream = TextStream(self._codec)
        stream.push(self._last_ids)  # a draft may complete a character
        return tuple(stream.push([each]) for each in ids)
