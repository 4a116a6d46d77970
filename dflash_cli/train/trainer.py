"""The training loop: steps that depend on their number alone, so that a run goes on exactly where it was saved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from backends.draft_vocabulary import DraftHead
from backends.drafter import Drafter
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.stats_store.checkpoint import checkpoint_hash
from dflash_cli.train.checkpoint import load_checkpoint, save_checkpoint
from dflash_cli.train.data import Data
from dflash_cli.train.documents import Document
from dflash_cli.train.evaluate import inference_copy
from dflash_cli.train.feature_cache import FeatureCache
from dflash_cli.train.features import FeatureReader, Features
from dflash_cli.train.learner import Learner
from dflash_cli.train.loss_vocabulary import LossVocabulary
from dflash_cli.train.metrics import Metrics
from dflash_cli.train.order import LENGTHS, count_steps, indices
from dflash_cli.train.precision import other_threads
from dflash_cli.train.push import check_sittings
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.run_facts import RunFacts
from dflash_cli.train.shared_measure import measure_together
from dflash_cli.train.shipping import Shipping, State
from dflash_cli.train.signals import Stop
from dflash_cli.train.sittings import as_dicts, from_dicts, read_sittings
from dflash_cli.train.tensorboard import Board

if TYPE_CHECKING:
    from dflash_cli.model import Model

CHECKPOINT = "checkpoint.safetensors"


class Trainer:
    """A run in a folder: `learner` for the steps, documents by their number, measuring, shipping and saving.

    Of several processes each has one; the first alone writes into the folder.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        drafter: Drafter,
        raw: dict[str, Any],
        data: Data,
        out: Path,
        report: Reporter,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.recipe, self.model, self.drafter, self.raw, self.data = recipe, model, drafter, raw, data
        self.out, self.report = out, report
        self.num_steps = count_steps(recipe, data)
        max_len = max(len(document.ids) for document in data.train)
        vocabulary = LossVocabulary.of_answers(
            model.target.head_weight(), recipe.loss_vocabulary, data.answers, model.codec.stop_ids
        )
        self.learner = Learner(recipe, drafter, model, max_len, self.num_steps, self.ranks, vocabulary, report.tell)
        taps = drafter.config.target_layer_ids
        self.reader = FeatureReader(model.target, taps, max_len, wants_final=recipe.loss == "kl")
        self.read: Callable[[list[int]], list[Features]] = self._read_now
        self.ema = {name: each.detach().clone() for name, each in self.learner.named.items()} if recipe.ema else {}
        begun_with = [] if recipe.warm_start is None else read_sittings(Path(recipe.warm_start))
        self.state = State(earlier=as_dicts(begun_with))
        self._saved_at = 0
        self.checkpoint = checkpoint_hash(model.pair.target)
        self.work = out / "work"
        board = Board(self.work / "tensorboard") if recipe.tensorboard and self.ranks.first else None
        self.metrics = Metrics(self.work / "metrics.jsonl", report, board)
        device = str(self.learner.head.device)
        self.shipping = Shipping(recipe, model, raw, data, out, self.metrics, report, self.num_steps, device)

    def cache_features(self, stop: Stop) -> None:
        """Put the features of all documents on disk and read them from there. Raises as `FeatureCache.make` does."""
        cache = FeatureCache(self.work / "features", self.reader, self.data.train, self.checkpoint)
        cache.make(self.report, stop, self.ranks)
        self.read = cache

    def resume(self) -> bool:
        """Go on from the checkpoint of the folder, if there is one.

        Raises DFlashError where it is another run's, UsageError for saved chats in what everyone will see.
        """
        path = self.work / CHECKPOINT
        if not path.is_file():
            self._forget(-1)
            return False
        groups, saved = load_checkpoint(path)
        self._facts().check(saved, self.out)
        before = count_steps(replace(self.recipe, **{key: saved["recipe"][key] for key in LENGTHS}), self.data)
        if remark := other_threads(saved.get("threads"), self.learner.head.device):
            self.report.tell(remark)
        # Those that are saved: the other folder may hold more by now. An older version saved none.
        state = State(**{"earlier": self.state.earlier} | saved["state"])
        check_sittings(from_dicts(state.earlier), self.out, public=self.recipe.public)
        self._check_length(state, before)
        self._take(groups, state)
        return True

    def _check_length(self, state: State, before: int) -> None:
        """Another length than `before` is noted, and told. Raises UsageError for one that is over already."""
        if self.num_steps == before:
            return
        if self.num_steps < state.step:
            raise UsageError(
                f"the run in {self.out} is at step {state.step}, past the {self.num_steps} asked for; pass more "
                "--steps, or use another --out"
            )
        state.given_up.append((state.step, before))
        self.report.tell(
            f"the run was to take {before} steps, now {self.num_steps}: from here on the learning rate falls to its "
            "end there"
        )

    def _facts(self) -> RunFacts:
        return RunFacts(self.recipe, self.data.fingerprint, self.raw, self.model.target, self.checkpoint)

    def _take(self, groups: dict[str, dict[str, Tensor]], state: State) -> None:
        with torch.no_grad():
            for name, parameter in self.learner.named.items():
                parameter.copy_(groups["weights"][name])
            for name, average in self.ema.items():
                average.copy_(groups["ema"][name])
        self.learner.optimizers.load(groups.get("optimizer", {}))
        self.state, self._saved_at = state, state.step
        self._forget(state.step)
        if self.ranks.first:
            self.shipping.make_up(state, self.weights())

    def _forget(self, step: int) -> None:
        """Of the metrics, what is later than `step`."""
        if self.ranks.first:
            self.metrics.cut(step)

    def save(self) -> None:
        """Write the checkpoint. Raises DFlashError, and then the one before it is still there."""
        if not self.ranks.first:
            return
        state = {"state": asdict(self.state), **self._facts().as_dict()}
        tensors = {"weights": {name: each.detach() for name, each in self.learner.named.items()}, "ema": self.ema}
        save_checkpoint(self.work / CHECKPOINT, tensors | {"optimizer": self.learner.optimizers.state()}, state)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Train to the end, or until `stopped()`; then save and raise KeyboardInterrupt. Either way show the curve."""
        self.ranks.agree((self.data.fingerprint, self.raw, self.state.step, self.num_steps))
        try:
            self._run(stopped)
            self.save()
        except DFlashError:
            self._conclude()
            raise
        self._conclude()
        if self.ranks.any(stopped()):
            self.report.tell(f"saved at step {self.state.step}")
            raise KeyboardInterrupt

    def _run(self, stopped: Callable[[], bool]) -> None:
        with self.report.stage("training", self.num_steps, self.state.step) as advance:
            while not self.ranks.any(stopped()):
                if self._measurement_is_due() and not self._measure(stopped):
                    break
                self._save_if_due()
                if self.state.step >= self.num_steps:
                    break
                self._step(advance)

    def _conclude(self) -> None:
        if self.ranks.first:
            self.shipping.conclude(self.state)

    def weights(self) -> dict[str, Tensor]:
        """The weights that are measured and shipped."""
        return self.ema or {name: each.detach() for name, each in self.learner.named.items()}

    def _step(self, advance: Callable[[int, str], None]) -> None:
        begun, step = time.perf_counter(), self.state.step
        chosen = indices(step, self.recipe, self.data.mixture)
        documents = [(epoch, index, self.data.train[index]) for epoch, index in chosen]
        mine = [documents[place] for place in self.ranks.share([self._work(each) for _, _, each in documents])]
        features = self.read([index for _, index, _ in mine])
        figures, norm = self.learner.learn(self.learner.rows(mine), features, step)
        if not math.isfinite(figures.loss) or not math.isfinite(norm):
            raise DFlashError(self._diverged(step, figures.loss))
        self._average(step)
        self.state.step += 1
        self.state.tokens += sum(len(each.ids) - each.start for _, _, each in documents)
        self.state.seconds += time.perf_counter() - begun
        told = figures.as_dict()
        rate = self.learner.optimizers.parts[0].param_groups[0]["lr"]
        entry = {"step": self.state.step, "tokens": self.state.tokens, **told, "lr": rate, "norm": round(norm, 4)}
        self._note(entry | {"seconds": round(self.state.seconds, 2)})
        advance(self.state.step, f"loss {told['loss']:.3f} · training τ {told['proxy_tau']:.2f}")

    def _work(self, document: Document) -> int:
        """About how long a step works on a document: its tokens and the slots of its blocks."""
        return len(document.ids) + min(self.recipe.anchors, document.num_anchors) * self.learner.block

    def _note(self, entry: dict[str, Any]) -> None:
        if self.ranks.first:
            self.metrics.add(entry)

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
        if (ids := self.shipping.draft_ids) is not None:  # as it is shipped
            drafter = drafter.with_head(DraftHead(self.model.target, torch.tensor(ids)))
        measured = measure_together(
            self.model, drafter, self.data.held, self.recipe.measured_tokens, stopped, self.ranks, self.report
        )
        if measured is None:
            return False
        state, figures = self.state, measured.as_dict()
        self._note({"step": state.step, "tokens": state.tokens, **figures})
        slots = " ".join(f"{each:.2f}" for each in measured.all.positions)
        parts = ", ".join(f"{source} {each.tau:.2f}" for source, each in measured.sources.items())
        self.report.tell(f"step {state.step}: τ {measured.all.tau:.2f} ({parts}) · kept by slot {slots}")
        state.measured = state.step
        state.curve = [*state.curve, (state.step, state.tokens, round(measured.all.tau, 4))]
        if measured.all.tau > state.best_tau and self.ranks.first:
            self._keep(measured.all.tau, figures)
        return True

    def _keep(self, tau: float, figures: dict[str, Any]) -> None:
        """Save the weights as the best so far, then ship them: killed in between, the run that goes on ships them."""
        state = self.state
        before = (state.best_tau, state.best_step, state.best)
        state.best_tau, state.best_step = tau, state.step
        state.best = {"step": state.step, "tokens": state.tokens, "seconds": state.seconds, "figures": figures}
        self._save_or_tell()
        if not self.shipping.ship(state, self.weights()):
            state.best_tau, state.best_step, state.best = before

    def _save_if_due(self) -> None:
        """After the measurement of a step, if any: so a run that goes on does not measure it again."""
        step = self.state.step
        if step not in (0, self._saved_at, self.num_steps) and step % self.recipe.save_every == 0:
            self._save_or_tell()

    def _save_or_tell(self) -> None:
        self._saved_at = self.state.step
        try:
            self.save()
        except DFlashError as error:
            self.report.tell(f"warning: {error}; training goes on with the checkpoint before it")
