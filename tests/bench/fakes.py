"""Subjects with a script instead of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dflash_cli.bench.sample import Sample
from dflash_cli.bench.subject import Place

PLACE = Place("eager", "float32", 1, 0.0)


class FakeSubject:
    """Answers 10 tokens in a scripted time; notes every call in `calls`."""

    adaptive = False

    def __init__(
        self, name: str, calls: list[str], ms: Callable[[int], float] = lambda _nth: 100.0, *, place: Place = PLACE,
        baseline: Place | None = None, block_size: int | None = 1, simulated_tau: float | None = None,
    ) -> None:  # fmt: skip
        self.name, self.calls, self.ms = name, calls, ms
        self.place, self.baseline = place, baseline or place
        self.block_size, self.simulated_tau = block_size, simulated_tau
        self.count = 0

    def warm_up(self, rows: Sequence[Sequence[int]]) -> None:
        self.calls.append(f"warm {self.name}{len(rows[0])}")

    def answer(self, rows: Sequence[Sequence[int]]) -> Sample:
        self.calls.append(f"{self.name}{rows[0][0]}")
        ms = self.ms(self.count)
        self.count += 1
        drafts = [1] * 5 if self.name == "dflash" else [0] * 5
        return Sample(
            ids=tuple(tuple(range(11)) for _ in rows), prompt_tokens=len(rows[0]), ttft_ms=5.0, decode_ms=ms,
            decoded=10 * len(rows), peak_bytes=2_000_000, steps=5, drafted_steps=sum(drafts), draft_ms=ms / 10,
            verify_ms=ms / 2, lengths=[2] * 5, accepted_each=drafts, drafted_each=drafts,
        )  # fmt: skip
