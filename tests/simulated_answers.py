"""Simulated answers: drafts of several kinds on machines of several kinds, and what a choice of widths takes there."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from dflash_cli.costs import Costs
from dflash_cli.depth import Depth

TOKENS, WARM = 2000, 200
SEEDS = (0, 1)

Process = Callable[[int, int], float]
"""(place in the answer, position in the block) -> the chance that this draft is right."""


@dataclass(frozen=True)
class Machine:
    """True costs in milliseconds; each measured one is off by a normal error, and one in 30 is five times too long."""

    verify_ms: Callable[[int], float]
    draft_ms: float
    growth: float = 0.0
    """By how much all gets slower until the end of the answer."""

    def calibrated(self, block_size: int) -> Costs:
        off = (0.97, 1.02, 1.0, 0.98, 1.03)
        widths = sorted({1, 2, 4, block_size // 2, block_size})
        known = {width: self.verify_ms(width) * each for width, each in zip(widths, off, strict=False)}
        return Costs(known, self.draft_ms)


def laptop(width: int) -> float:
    return 30 + 6 * (width - 1) / 7 if width <= 8 else 36 + 6 * (width - 8) / 8


MACHINES = {
    "laptop": Machine(laptop, 6.0),
    "gpu": Machine(lambda width: 4.0, 1.5),
    "steps": Machine(lambda width: 15 if width == 1 else 18 if width <= 8 else 22, 5.0),
    "steep": Machine(lambda width: 30 + 8.0 * (width - 1), 6.0),
    "linear": Machine(lambda width: 30.0 * width, 6.0),
    "growing": Machine(laptop, 6.0, growth=0.8),
}
PACKED = Machine(lambda width: (9.9, 12.5, 13.5, 14.8, 21.5, 21.8, 22.2, 22.5)[width - 1], 3.45)
"""As int4 kernels cost on a CPU: the time grows with the rows."""
TEXTS: dict[str, Process] = {
    "hopeless": lambda place, position: 0.0,
    "prose": lambda place, position: 0.2,
    "between": lambda place, position: 0.35,
    "chat": lambda place, position: 0.5,
    "maths": lambda place, position: 0.9,
    "falling": lambda place, position: 0.85 * 0.85 ** (position - 1),
    "switching": lambda place, position: 0.15 if place // 400 % 2 == 0 else 0.85,
    "fast-switching": lambda place, position: 0.9 if place // 40 % 2 == 0 else 0.05,
}


class Fixed:
    """A policy that always takes one width."""

    def __init__(self, width: int) -> None:
        self._width = width

    def width(self) -> int:
        return self._width

    def observe(self, *_: object) -> None:
        pass


class Answer:
    """A simulated answer: the same drafts are right in it whatever the policy, so two policies compare."""

    def __init__(
        self, machine: Machine, chance: Process, seed: int, *, tells: bool = False, thinks: float | None = None
    ) -> None:
        """`tells`: whether the drafter tells its probabilities, which are true, or always what it `thinks`."""
        self.machine, self.chance, self.tells, self.thinks = machine, chance, tells, thinks
        texts, self.noise = random.Random(seed), random.Random(seed + 1000)
        self.draws = [texts.random() for _ in range(TOKENS + 100)]
        self.place, self.ms = 0, 0.0
        self.warm = (0, 0.0)
        self.widths: list[int] = []

    def run(self, policy: Depth | Fixed, tokens: int = TOKENS) -> Answer:
        end = self.place + tokens
        while self.place < end:
            self.block(policy)
        return self

    def block(self, policy: Depth | Fixed) -> None:
        width = policy.width()
        drafted = width > 1
        chances = None
        if drafted and self.tells and isinstance(policy, Depth):
            chances = self.probabilities(policy.block_size - 1)
            width = policy.fitted([chances])
        drafts = range(1, width)
        right = (self.draws[self.place + each - 1] < self.chance(self.place + each - 1, each) for each in drafts)
        accepted = 0
        while next(right, False):
            accepted += 1
        slower = 1 + self.machine.growth * self.place / TOKENS
        draft_ms = self.machine.draft_ms * slower if drafted else 0.0
        verify_ms = self.machine.verify_ms(width) * slower
        policy.observe(width, accepted, width - 1, self.measured(draft_ms), self.measured(verify_ms), chances)
        self.ms += draft_ms + verify_ms
        self.place += accepted + 1
        self.widths.append(width)
        self.warm = (self.place, self.ms) if self.place <= WARM else self.warm

    def probabilities(self, num_drafts: int) -> list[float]:
        """What the drafter says of each draft here."""
        true = (self.chance(self.place + each - 1, each) for each in range(1, num_drafts + 1))
        return [each if self.thinks is None else self.thinks for each in true]

    def measured(self, ms: float) -> float:
        return ms * max(0.5, self.noise.gauss(1, 0.03)) * (5 if self.noise.random() < 1 / 30 else 1)

    @property
    def pace(self) -> float:
        """Milliseconds a token."""
        return self.ms / self.place

    @property
    def warm_pace(self) -> float:
        """The same without the first `WARM` tokens."""
        return (self.ms - self.warm[1]) / (self.place - self.warm[0])


@cache
def fixed(machine: str, text: str, width: int, seed: int) -> Answer:
    return Answer(MACHINES[machine], TEXTS[text], seed).run(Fixed(width))
