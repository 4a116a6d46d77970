"""What a training run leaves for others: the best drafter so far with its card, and the curve at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dflash_cli.bench.machine import in_words, machine
from dflash_cli.errors import DFlashError
from dflash_cli.train.card import Trained
from dflash_cli.train.curve import Point, show_curve
from dflash_cli.train.data import Data
from dflash_cli.train.draft_vocabulary import most_frequent
from dflash_cli.train.metrics import Metrics
from dflash_cli.train.output import holds, write_card, write_drafter
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.sittings import from_dicts, later, whole_curve

if TYPE_CHECKING:
    from dflash_cli.model import Model


@dataclass
class State:
    """Where a run stands. `tokens`: answer tokens of the documents used so far; `seconds`: spent in steps.

    `measured`: the step that was last measured. `curve`: (step, tokens, tau) of each measurement. `best`: when the
    weights that are to be shipped were measured, and their figures. `earlier`: the sittings of the drafter it began
    with. `given_up`: (step, steps in all that were planned until then) of each change of the run's length.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_tau: float = 0.0
    best_step: int | None = None
    measured: int | None = None
    curve: list[Point] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    given_up: list[tuple[int, int]] = field(default_factory=list)


class Shipping:
    """Writes the folder that `--draft` takes, and keeps its card true to the run."""

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        raw: dict[str, Any],
        data: Data,
        out: Path,
        metrics: Metrics,
        report: Reporter,
        num_steps: int,
        device: str,
    ) -> None:
        self.recipe, self.model, self.raw, self.data = recipe, model, raw, data
        self.out, self.metrics, self.report = out, metrics, report
        self.num_steps, self.device = num_steps, device
        self.draft_ids = self._draft_ids()

    def _draft_ids(self) -> list[int] | None:
        """What the drafter is to draft, None for the whole vocabulary."""
        size, vocab_size = self.recipe.draft_vocabulary, self.model.target.config.vocab_size
        if size is None or size >= vocab_size:
            return None
        return most_frequent(self.data.answers, size, vocab_size, self.model.codec.stop_ids)

    def ship(self, state: State, weights: dict[str, Tensor]) -> bool:
        """Write the weights that are the best of `state`.

        False where the disk does not take them; at the end of the run that raises DFlashError.
        """
        try:
            self._write(state, weights)
        except DFlashError as error:
            if state.step >= self.num_steps:
                raise  # the same command ships these weights again
            self.report.tell(f"warning: {error}; training goes on")
            return False
        return True

    def make_up(self, state: State, weights: dict[str, Tensor]) -> None:
        """Write what was saved as the best and, since the run was killed then, not shipped. Raises DFlashError.

        `weights`: those of `state.step`.
        """
        if state.best and state.best_step == state.step and not holds(self.out, state.step):
            self._write(state, weights)

    def _write(self, state: State, weights: dict[str, Tensor]) -> None:
        write_drafter(self.out, self.raw, weights, self._trained(state), self.draft_ids)

    def conclude(self, state: State) -> None:
        """Show the curve, and let the card know the whole run."""
        self.metrics.close()
        earlier, entries = from_dicts(state.earlier), self.metrics.entries()
        picture = self.metrics.path.with_name("curve.svg")
        show_curve(whole_curve(earlier, state.curve), later(earlier, entries), picture, self.report)
        # Killed where no checkpoint could be written, a run goes on from before the weights that it left.
        if not state.best or not holds(self.out, state.best["step"]):
            return
        try:
            write_card(self.out, self.raw, self._trained(state))
        except DFlashError as error:
            self.report.tell(f"warning: {error}; the model card does not know the end of the run")

    def _trained(self, state: State) -> Trained:
        best = state.best
        return Trained(
            config=self.model.config,
            target=self.model.pair.target,
            thinking=self.model.thinking,
            machine=in_words(machine(self.device)),
            recipe=self.recipe,
            data=self.data,
            step=best["step"],
            tokens=best["tokens"],
            seconds=best["seconds"],
            measured=best["figures"],
            curve=state.curve,
            entries=self.metrics.entries(),
            earlier=from_dicts(state.earlier),
            given_up=state.given_up,
        )
