"""How many rows the next verify pass takes: the width that commits most tokens a second here and now.

The drafter always drafts its trained block; the pass is trimmed to the anchor and the first drafts, by how drafts fared
lately and, where it can be looked at, by what the drafter thinks of these. Width 1 drafts nothing. Imports no torch,
has no clock and no randomness: the same blocks give the same widths.
"""

from __future__ import annotations

from collections.abc import Sequence

from dflash_cli.acceptance import AcceptanceByPosition, Trust, expected_tokens
from dflash_cli.costs import DRAFT, Costs

ENTER, LEAVE = 1.05, 0.98  # speed over plain decoding at which speculation begins and ends
CHANGE = 1.03  # speed over the present width's at which another one is taken
RECHECK_AFTER = 200  # speculated blocks after which plain steps and the widest pass are timed again

# An account counts plain steps: by how many the speculation was faster than plain decoding, the allowance included.
ALLOWANCE = 0.025  # earned with every token, so the share that speculation may take longer
OPENING, HIGHEST = 1.8, 6.0  # the first balance, and the highest: a good minute does not pay for a bad one
HELD_UP = 1.25  # a block that took longer than this by what is estimated was held up, as plain steps would have been

PROBE_BLOCKS = 3
PROBE_AFTER, PROBE_AFTER_MOST = 12, 64  # plain steps between probes, doubled as they fail
PROBE_AFTER_NEVER = 4096  # the most where not even the best drafts would pay, by the costs known so far
PROBE_HOPE, PROBE_BEST = 0.6, 0.95  # acceptance that a probe's width is chosen for, and that of the best drafts
DOUBTED_MOST = 6  # blocks in a row of which no draft seems worth it; then one is verified all the same
PROBE_WEIGHT, NEW_TEXT_WEIGHT = 2.0, 8.0  # the most that older evidence weighs in a probe, and in a new turn


class Account:
    """Plain steps that speculation may still lose: in all no more than `opening`, or the allowance of all tokens where
    that is more. For the opening balance is lent, so that drafting can begin at once, and nothing is earned by the
    allowance until it has paid that back."""

    def __init__(self, opening: float) -> None:
        self.balance = self.owed = opening

    def book(self, tokens: float, steps: float) -> None:
        """Put a block on it: the tokens it gave, and the plain steps it took as long as."""
        allowance = ALLOWANCE * tokens
        repaid = min(allowance, self.owed)
        self.owed -= repaid
        self.balance = min(self.balance + tokens - steps + allowance - repaid, HIGHEST)


class Depth:
    """Chooses the width of each block, from how drafts fared and what passes cost. Kept for a whole chat.

    Hardly slower than plain decoding, whatever the drafts are worth, by an account of the chat and one of the turn:
    every token earns an allowance, a block that took longer than plain steps for its tokens is paid for, and no width
    is taken that either could not pay if all drafts were wrong. In plain decoding short probes, rarer as they fail,
    find out when drafts are good.
    """

    def __init__(self, block_size: int, costs: Costs, widths: Sequence[int] | None = None) -> None:
        """`widths`: those the backend is ready for (default: all up to `block_size`); 1 always is."""
        self.block_size, self.costs = block_size, costs
        self.widths = sorted({1, *(range(2, block_size + 1) if widths is None else widths)})
        self.acceptance, self.trust = AcceptanceByPosition(block_size - 1), Trust()
        self._chat, self._turn = Account(OPENING), Account(OPENING)
        self._speculating = self._has_earned = False
        self._probe_left = self._since_recheck = self._doubted = 0
        self._interval = self._waited = PROBE_AFTER
        self._known_steps: dict[int, float] = {}
        self._unpaid, self._recheck = self._opening(), list[int]()
        self._is_fixed = False  # whether the width is to be timed, whatever is thought of the drafts
        self._width = 1
        self._width = self._next()

    def width(self) -> int:
        """Rows of the next verify pass: the anchor and `width - 1` drafts; 1 = draft nothing."""
        return self._width

    def fitted(self, chances: Sequence[Sequence[float]]) -> int:
        """The width for drafts that were just made for `width() > 1`, given the drafter's own probability of each, by
        row of the batch: a draft more is verified where it is likely to be worth what its row costs. 1: none is.
        """
        if self._is_fixed:
            return self._width
        of_rows = [expected_tokens(self.trust.applied(row)) for row in chances]
        tokens = [sum(each) / len(of_rows) for each in zip(*of_rows, strict=True)]
        # What a row takes longer would have given so many tokens at the speed of late.
        speed = max(1.0, *self._gains(self.acceptance.rates()).values())
        width = max(filter(self._can_pay, self.widths), key=lambda each: tokens[each - 1] - speed * self._passes(each))
        self._doubted = self._doubted + 1 if width == 1 else 0
        if self._doubted <= DOUBTED_MOST or not self._can_pay(self._width):
            return width
        self._doubted = 0  # what is never verified would never be found to be better than the drafter thinks
        return self._width

    def observe(
        self,
        width: int,
        accepted: int,
        num_drafted: int,
        draft_ms: float,
        verify_ms: float,
        chances: Sequence[float] | None = None,
    ) -> None:
        """Take what a block of `width` rows gave; the figures are those of its `BlockVerified`."""
        told = () if chances is None else (chances,)
        self.observe_rows(width, [(accepted, num_drafted)], draft_ms, verify_ms, told)

    def observe_rows(
        self,
        width: int,
        rows: Sequence[tuple[int, int]],
        draft_ms: float,
        verify_ms: float,
        chances: Sequence[Sequence[float]] = (),
    ) -> None:
        """The same for a batch: (accepted, num_drafted) of each row at work, and the times they share. `chances`: those
        that `width` was fitted to."""
        if not rows:
            return
        drafted = width > 1 or bool(chances)
        self.costs.observe(width, verify_ms, draft_ms if drafted else None)
        self._known_steps.clear()
        self.acceptance.observe(rows, [self.trust.applied(row) for row in chances], width)
        if chances:
            self.trust.observe(rows, chances)
        self._book(width, 1 + sum(accepted for accepted, _ in rows) / len(rows), draft_ms + verify_ms, drafted=drafted)
        self._width = self._next()

    def new_turn(self) -> None:
        """Other text comes: what was learnt of acceptance counts for less, and a probe may come at once, if it is paid.

        What an earlier answer won is not there to be lost in this one, and what it lost is not there either.
        """
        self.acceptance.limit(NEW_TEXT_WEIGHT)
        left = self._chat.balance = min(self._chat.balance, OPENING)
        self._turn = Account(max(left, 0.0))
        if not self._unpaid and not self._can_pay(self._width):  # it was chosen when there was more to lose
            self._width = self._next()
        self._interval = self._waited = PROBE_AFTER

    def _opening(self) -> list[int]:
        """The first widths where costs are unknown, whatever they cost: the trained block and a plain step by turns.

        The block first: at worst it wastes a draft and some rows, once, while it tells the most, how drafts fare at
        every position and what the dearest pass costs. A plain step at once after it: without one nothing compares.
        """
        widest = self.widths[-1]
        known = all(self.costs.is_measured(each) for each in (1, widest, DRAFT))
        return [] if known or widest == 1 else [widest, 1, widest, 1, 1]

    @property
    def _balance(self) -> float:
        return min(self._chat.balance, self._turn.balance)

    def _book(self, width: int, tokens: float, ms: float, *, drafted: bool) -> None:
        """Put a block on both accounts: a drafted one by what it took, if that is more than what its kind takes."""
        steps = self._steps(width) if drafted else 1.0
        if drafted:  # a NaN leaves it as it is
            steps = max(steps, min(ms / self.costs.verify_ms(1), HELD_UP * steps))
        for account in (self._chat, self._turn):
            account.book(tokens, steps)
        self._has_earned |= self._balance == HIGHEST

    def _steps(self, width: int) -> float:
        """What a drafted block of which `width` rows are verified costs, in plain steps."""
        return self._passes(width) + self._passes(DRAFT)

    def _passes(self, key: int) -> float:
        """What a verify pass of so many rows costs, or a draft, in plain steps."""
        if key not in self._known_steps:
            ms = self.costs.verify_ms(key) if key != DRAFT else self.costs.draft_ms
            self._known_steps[key] = ms / self.costs.verify_ms(1)
        return self._known_steps[key]

    def _gains(self, rates: Sequence[float]) -> dict[int, float]:
        """Expected speed over plain decoding by width, for the widths that draft."""
        tokens = expected_tokens(rates)
        return {width: tokens[width - 1] / self._steps(width) for width in self.widths[1:]}

    def _gains_if(self, rate: float) -> dict[int, float]:
        return self._gains([rate] * (self.block_size - 1))

    def _payable(self, gains: dict[int, float]) -> dict[int, float]:
        """Of these, the widths that the account can pay even if no draft is accepted."""
        return {width: gain for width, gain in gains.items() if self._can_pay(width)}

    def _can_pay(self, width: int) -> bool:
        return width == 1 or self._steps(width) - 1 <= self._balance

    def _next(self) -> int:
        if len(self.widths) == 1:
            return 1
        self._is_fixed = bool(self._unpaid)
        if self._unpaid:
            return self._unpaid.pop(0)
        if self._recheck and self._can_pay(width := self._recheck.pop(0)):
            self._is_fixed = True
            return width
        if self._speculating:
            return self._speculate()
        return self._probe() if self._probe_left else self._wait()

    def _speculate(self) -> int:
        gains = self._payable(self._gains(self.acceptance.rates()))
        best = max(gains, key=gains.__getitem__, default=1)
        if gains.get(best, 0.0) < LEAVE:
            self._speculating, self._waited = False, 0
            self._interval = PROBE_AFTER if self._has_earned else self._interval
            return 1
        self._since_recheck += 1
        if self._since_recheck > RECHECK_AFTER:
            self._since_recheck = 0
            self._recheck = [1, 1, self.widths[-1], self.widths[-1]]
            return 1
        return best if gains[best] > CHANGE * gains.get(self._width, 0.0) else self._width

    def _probe(self) -> int:
        """One block of a probe is over: speculate from now on, go on probing, or give up."""
        self._probe_left -= 1
        gains = self._payable(self._gains(self.acceptance.rates()))
        best = max(gains, key=gains.__getitem__, default=1)
        if gains.get(best, 0.0) > ENTER:
            self._speculating, self._has_earned, self._probe_left = True, False, 0
            return best
        if self._probe_left and self._width in gains:
            return self._width
        could_pay = max(self._gains_if(PROBE_BEST).values()) > ENTER
        self._interval = min(2 * self._interval, PROBE_AFTER_MOST if could_pay else PROBE_AFTER_NEVER)
        self._probe_left = self._waited = 0
        return 1

    def _wait(self) -> int:
        """A plain step, or the first block of a probe where one is due and paid for even if nothing is accepted."""
        self._waited += 1
        if self._waited <= self._interval:
            return 1
        hoped = self._gains_if(PROBE_HOPE)
        width = max(hoped, key=hoped.__getitem__)
        if width not in self._payable(hoped):
            return 1
        self.acceptance.limit(PROBE_WEIGHT)
        self._probe_left = PROBE_BLOCKS
        return width
