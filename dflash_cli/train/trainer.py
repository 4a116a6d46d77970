"""The training loop: steps that depend on their number alone, so that a run goes on exactly where it was saved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from backends.drafter import Drafter
from dflash_cli.errors import DFlashError
from dflash_cli.train.checkpoint import load_checkpoint, save_checkpoint
from dflash_cli.train.data import Data
from dflash_cli.train.documents import shuffled
from dflash_cli.train.evaluate import Measured, inference_copy, measure
from dflash_cli.train.feature_cache import FeatureCache
from dflash_cli.train.features import FeatureReader, Features
from dflash_cli.train.learner import Learner
from dflash_cli.train.metrics import Metrics
from dflash_cli.train.output import Trained, write_drafter
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter, peak_memory
from dflash_cli.train.signals import Stop

if TYPE_CHECKING:
    from dflash_cli.model import Model

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class State:
    """Where a run stands. `tokens`: answer tokens of the documents used so far; `seconds`: spent in steps.

    `measured`: the step that was last measured. `curve`: (step, tokens, tau) of each measurement.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_tau: float = 0.0
    best_step: int | None = None
    measured: int | None = None
    curve: list[tuple[int, int, float]] = field(default_factory=list)


class Trainer:
    """A run in a folder: `learner` for the steps, documents by their number, measuring, shipping and saving."""

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        drafter: Drafter,
        raw: dict[str, Any],
        data: Data,
        out: Path,
        report: Reporter,
    ) -> None:
        self.recipe, self.model, self.drafter, self.raw, self.data = recipe, model, drafter, raw, data
        self.out, self.report = out, report
        self.num_steps = count_steps(recipe, data)
        max_len = max(len(document.ids) for document in data.train)
        self.learner = Learner(recipe, drafter, model, max_len, self.num_steps)
        taps = drafter.config.target_layer_ids
        self.reader = FeatureReader(model.target, taps, max_len, wants_final=recipe.loss == "kl")
        self.read: Callable[[list[int]], list[Features]] = self._read_now
        self.ema = {name: each.detach().clone() for name, each in self.learner.named.items()} if recipe.ema else {}
        self.state = State()
        self._saved_at = 0
        self.work = out / "work"
        self.metrics = Metrics(self.work / "metrics.jsonl", report)

    def cache_features(self, stop: Stop) -> None:
        """Put the features of all documents on disk and read them from there. Raises as `FeatureCache.make` does."""
        cache = FeatureCache(self.work / "features", self.reader, self.data.train)
        cache.make(self.report, stop)
        self.read = cache

    def resume(self) -> bool:
        """Go on from the checkpoint of the folder, if there is one. Raises DFlashError where it is another run's."""
        path = self.work / CHECKPOINT
        if not path.is_file():
            self.metrics.cut(0)
            return False
        groups, saved = load_checkpoint(path)
        if differing := self.recipe.differences(saved["recipe"]):
            name = differing[0]
            raise DFlashError(
                f"{self.out} holds a run with {name} {saved['recipe'].get(name)!r}, now it is "
                f"{self.recipe.as_dict()[name]!r}; use another --out, or begin there with --warm-start {self.out}"
            )
        if saved["data"] != self.data.fingerprint or saved["config"] != self.raw:
            raise DFlashError(f"the data or the target of the run in {self.out} has changed; use another --out")
        with torch.no_grad():
            for name, parameter in self.learner.named.items():
                parameter.copy_(groups["weights"][name])
            for name, average in self.ema.items():
                average.copy_(groups["ema"][name])
        self.learner.optimizers.load(groups.get("optimizer", {}))
        self.state = State(**saved["state"])
        self._saved_at = self.state.step
        self.metrics.cut(self.state.step)
        return True

    def save(self) -> None:
        """Write the checkpoint. Raises DFlashError, and then the one before it is still there."""
        state = {
            "state": asdict(self.state),
            "recipe": self.recipe.as_dict(),
            "data": self.data.fingerprint,
            "config": self.raw,
        }
        tensors = {"weights": {name: each.detach() for name, each in self.learner.named.items()}, "ema": self.ema}
        save_checkpoint(self.work / CHECKPOINT, tensors | {"optimizer": self.learner.optimizers.state()}, state)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Train to the end, or until `stopped()`; then save and raise KeyboardInterrupt."""
        with self.report.stage("training", self.num_steps, self.state.step) as advance:
            while not stopped():
                if self._measurement_is_due() and not self._measure(stopped):
                    break
                self._save_if_due()
                if self.state.step >= self.num_steps:
                    break
                self._step(advance)
        self.save()
        if stopped():
            self.report.tell(f"saved at step {self.state.step}")
            raise KeyboardInterrupt

    def weights(self) -> dict[str, Tensor]:
        """The weights that are measured and shipped."""
        return self.ema or {name: each.detach() for name, each in self.learner.named.items()}

    def _step(self, advance: Callable[[int, str], None]) -> None:
        begun, step = time.perf_counter(), self.state.step
        chosen = indices(step, self.recipe, len(self.data.train))
        documents = [(epoch, index, self.data.train[index]) for epoch, index in chosen]
        features = self.read([index for _, index in chosen])
        figures, norm = self.learner.learn(self.learner.rows(documents), features, step)
        if not math.isfinite(figures.loss) or not math.isfinite(norm):
            raise DFlashError(self._diverged(step, figures.loss))
        self._average(step)
        self.state.step += 1
        self.state.tokens += sum(len(each.ids) - each.start for _, _, each in documents)
        self.state.seconds += time.perf_counter() - begun
        told = figures.as_dict()
        rate = self.learner.optimizers.parts[0].param_groups[0]["lr"]
        entry = {"step": self.state.step, "tokens": self.state.tokens, **told, "lr": rate, "norm": round(norm, 4)}
        self.metrics.add(entry | {"seconds": round(self.state.seconds, 2)})
        pace, memory = self.state.seconds / self.state.step, peak_memory() / 1e9
        advance(
            self.state.step,
            f"loss {told['loss']:.3f} · training τ {told['proxy_tau']:.2f} · {pace:.2f} s a step · {memory:.1f} GB",
        )

    def _diverged(self, step: int, loss: float) -> str:
        kept = self.work / CHECKPOINT
        where = f"the last good checkpoint is kept in {kept}" if kept.is_file() else "nothing was saved yet"
        lower = self.recipe.learning_rate / 2
        return (
            f"the loss is {loss} at step {step + 1}: training has diverged; {where}. "
            f"Try --lr {lower:g} in another --out"
        )

    def _read_now(self, chosen: list[int]) -> list[Features]:
        return self.reader.read([self.data.train[index] for index in chosen])

    def _average(self, step: int) -> None:
        # Early on the mean moves faster, or it would be of the first weights for long.
        share = 1 - min(self.recipe.ema, (1 + step) / (10 + step))
        for name, average in self.ema.items():
            average.lerp_(self.learner.named[name].detach(), share)

    def _measurement_is_due(self) -> bool:
        step = self.state.step
        if self.state.measured == step or (step == 0 and self.recipe.warm_start is None):
            return False
        return step % self.recipe.eval_every == 0 or step >= self.num_steps

    def _measure(self, stopped: Callable[[], bool]) -> bool:
        """Measure, keep the best; False where it was stopped meanwhile."""
        dtype = self.model.target.model.embed_tokens.weight.dtype
        drafter = inference_copy(self.weights(), self.drafter, dtype)
        measured = measure(self.model, drafter, self.data.held, self.recipe.measured_tokens, stopped)
        if measured is None:
            return False
        state, tau = self.state, measured.all.tau
        state.measured = state.step
        state.curve.append((state.step, state.tokens, round(tau, 4)))
        self.metrics.add({"step": state.step, "tokens": state.tokens, **measured.as_dict()})
        slots = " ".join(f"{each:.2f}" for each in measured.all.positions)
        parts = ", ".join(f"{source} {figures.tau:.2f}" for source, figures in measured.sources.items())
        self.report.tell(f"step {state.step}: τ {tau:.2f} ({parts}) · accepted by slot {slots}")
        if tau > state.best_tau:
            self._ship(measured)
        return True

    def _ship(self, measured: Measured) -> None:
        state = self.state
        trained = Trained(
            self.model.pair.target,
            self.model.thinking,
            self.recipe,
            self.data,
            state.step,
            state.tokens,
            state.seconds,
            measured,
            state.curve,
        )
        try:
            write_drafter(self.out, self.raw, self.weights(), trained)
        except DFlashError as error:
            self.report.tell(f"warning: {error}; training goes on")
            return
        state.best_tau, state.best_step = measured.all.tau, state.step

    def _save_if_due(self) -> None:
        """After the measurement of a step, if any: so a run that goes on does not measure it again."""
        step = self.state.step
        if step in (0, self._saved_at, self.num_steps) or step % self.recipe.save_every:
            return
        self._saved_at = step
        try:
            self.save()
        except DFlashError as error:
            self.report.tell(f"warning: {error}; training goes on with the checkpoint before it")


def count_steps(recipe: Recipe, data: Data) -> int:
    """Steps of a run: asked for, or so many that each document is used `epochs` times."""
    return recipe.steps or math.ceil(len(data.train) * recipe.epochs / recipe.batch)


def indices(step: int, recipe: Recipe, count: int) -> list[tuple[int, int]]:
    """(epoch, index) of the documents of a step: epoch after epoch, each in an order of its own."""
    places = range(step * recipe.batch, (step + 1) * recipe.batch)
    orders = {epoch: shuffled(count, recipe.seed, epoch) for epoch in {place // count for place in places}}
    return [(place // count, orders[place // count][place % count]) for place in places]
