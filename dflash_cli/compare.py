"""Speculative against plain decoding of the same prompt: speeds, and where the texts first part, if they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.stats import AnswerStats, rounded
from dflash_cli.text import TextCodec

WARM_UP_PASSES = 3  # verify passes before a comparison: the first ones of a process are slower
TIE_ULPS = 2  # rounding steps of the dtype within which two logits count as equal


@dataclass(frozen=True)
class Difference:
    """The first place where the texts part. `logit_gap`: plain's id over ours, by a fresh prefill of what is before.

    `tie`: the gap is within rounding of the dtype, where a pass of several rows and a pass of one round differently.
    """

    index: int
    id: int
    plain_id: int
    logit_gap: float
    tie: bool


@dataclass(frozen=True)
class Comparison:
    """`first_difference` None: identical texts. `speedup` = our tokens a second over plain decoding's.

    `interrupted`: plain decoding was, so that only the places both texts have were compared. `is_plain`: so is ours.
    """

    first_difference: Difference | None
    plain_tokens_per_s: float | None
    speedup: float | None
    interrupted: bool
    same_length: bool
    is_plain: bool

    def as_dict(self) -> dict[str, object]:
        """The `compare` object of `run --json`."""
        return {
            "identical": self.first_difference is None and self.same_length and not self.interrupted,
            "first_difference": None if self.first_difference is None else asdict(self.first_difference),
            "plain_tokens_per_s": rounded(self.plain_tokens_per_s, 2),
            "speedup": rounded(self.speedup, 3),
        }

    def summary(self, codec: TextCodec, dtype: str) -> str:
        """One line for people."""
        return f"{self._speeds()} · {self._agreement(codec, dtype)}"

    def _speeds(self) -> str:
        if self.speedup is None or self.plain_tokens_per_s is None:
            return "too short to compare speeds"
        plain = f"plain {self.plain_tokens_per_s:.1f} tok/s"
        if self.is_plain:
            return f"{plain}: both are plain decoding, nothing was drafted"
        return f"{plain}, DFlash is {self.speedup:.2f}× that"

    def _agreement(self, codec: TextCodec, dtype: str) -> str:
        each = self.first_difference
        if each is None and self.interrupted:
            return "no difference until it was interrupted"
        if each is None:
            return "identical text" if self.same_length else "one text is only the beginning of the other"
        found, plain = (repr(codec.token_text(i)) for i in (each.id, each.plain_id))
        verdict = f"a tie in {dtype}" if each.tie else "not a tie"
        return f"differs at token {each.index + 1}: {found} against {plain}, logit gap {each.logit_gap:.4f} ({verdict})"


def warm_up(decoder: Decoder, request: Request) -> None:
    """The first passes of a decoder, so that they are not measured. Its cache then holds the prompt."""
    for _ in decoder.generate(replace(request, max_new_tokens=1 + WARM_UP_PASSES * decoder.width, finder=None)):
        pass


def compare(plain: Decoder, prompt_ids: Sequence[int], ours: AnswerStats, theirs: AnswerStats) -> Comparison:
    """Compare two finished answers to the same prompt; `plain`'s cache is used to measure the logit gap."""
    index = first_difference(ours.ids, theirs.ids)
    difference = None
    if index is not None:
        difference = _measure(plain, [*prompt_ids, *ours.ids[:index]], index, ours.ids[index], theirs.ids[index])
    fast, slow = ours.tokens_per_s, theirs.tokens_per_s
    speedup = fast / slow if fast and slow else None
    interrupted, same_length = theirs.reason == "interrupted", len(ours.ids) == len(theirs.ids)
    return Comparison(difference, slow, speedup, interrupted, same_length, is_plain=not ours.draft_passes)


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first place where both have an id and the ids differ."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


def _measure(plain: Decoder, before: list[int], index: int, ours: int, theirs: int) -> Difference:
    logits = plain.backend.prefill(torch.tensor(before, device=plain.backend.device), 0).float()
    plain.resident[0].length = 0  # the cache was written behind the decoder's back
    gap = float(logits[theirs] - logits[ours])
    step = torch.finfo(plain.backend.dtype).eps * float(logits[[ours, theirs]].abs().max())
    return Difference(index, ours, theirs, gap, abs(gap) <= TIE_ULPS * step)
