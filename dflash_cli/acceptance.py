"""How often drafts are kept, by position, and how far the drafter's own probabilities tell it. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

PRIOR = 0.5  # acceptance of the first draft before any was seen; of a later one it is that of the one before it
PRIOR_WEIGHT = 1.5  # of that, in drafts seen
FADE, FADE_UNTESTED = 0.98, 0.99  # what older evidence still weighs after a block that tested a position, or did not
TRUST_WEIGHT = 2.0  # drafts kept, as many as promised, that are taken as seen before any was


class AcceptanceByPosition:
    """How often the draft at each position is kept, given that all before it were; old evidence fades.

    A draft after the first rejected one, or past a trimmed width, was not tested and says nothing.
    """

    def __init__(self, num_drafts: int) -> None:
        self.kept = [0.0] * num_drafts
        self.tested = [0.0] * num_drafts

    def observe(self, rows: Sequence[tuple[int, int]], chances: Sequence[Sequence[float]] = (), width: int = 0) -> None:
        """Take (accepted, num_drafted) of each row of a block of `width`; `chances` that its drafts are right stand in,
        where they are known, for what was not verified though all before it was kept. Without them, what is verified
        because it is likely would count alone."""
        most = max((min(accepted + 1, num_drafted) for accepted, num_drafted in rows), default=0)
        for position in range(len(self.tested)):
            fade = FADE if position < most else FADE_UNTESTED
            self.kept[position] *= fade
            self.tested[position] *= fade
        for accepted, num_drafted in rows:
            for position in range(min(accepted + 1, num_drafted, len(self.tested))):
                self.tested[position] += 1
                self.kept[position] += position < accepted
        for (accepted, num_drafted), row in zip(rows, chances, strict=bool(chances)):
            reach = float(accepted == num_drafted == width - 1)  # and no stop came before
            for position in range(num_drafted, len(self.tested)):
                self.tested[position] += reach
                reach *= row[position]
                self.kept[position] += reach

    def limit(self, weight: float) -> None:
        """Let older evidence count for no more than `weight` drafts at any position."""
        for position, tested in enumerate(self.tested):
            share = min(1.0, weight / tested) if tested else 1.0
            self.kept[position] *= share
            self.tested[position] *= share

    def rates(self) -> list[float]:
        """Conditional acceptance of each position, the first draft's first."""
        rates, before = [], PRIOR
        for kept, tested in zip(self.kept, self.tested, strict=True):
            before = (kept + PRIOR_WEIGHT * before) / (tested + PRIOR_WEIGHT)
            rates.append(before)
        return rates


def expected_tokens(rates: Sequence[float]) -> list[float]:
    """Tokens a pass commits, bonus included, for widths 1, 2 ... len(rates) + 1."""
    tokens, reach, total = [1.0], 1.0, 1.0
    for rate in rates:
        reach *= rate
        total += reach
        tokens.append(total)
    return tokens


class Trust:
    """How many drafts are kept over how many the drafter's probabilities promise; old evidence fades."""

    def __init__(self) -> None:
        self._kept = self._promised = 0.0

    def observe(self, rows: Sequence[tuple[int, int]], chances: Sequence[Sequence[float]]) -> None:
        """Take (accepted, num_drafted) of each row of a block and what the drafter thought of its drafts."""
        self._kept, self._promised = FADE * self._kept, FADE * self._promised
        for (accepted, num_drafted), row in zip(rows, chances, strict=True):
            self._kept += accepted
            self._promised += sum(row[: min(accepted + 1, num_drafted)])

    def applied(self, chances: Sequence[float]) -> list[float]:
        """What these probabilities are worth."""
        factor = (self._kept + TRUST_WEIGHT) / (self._promised + TRUST_WEIGHT)
        return [min(1.0, factor * each) for each in chances]
