"""What a run would take: parameters, memory, disk and time, from shapes and one short measurement of the machine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from backends.config import DFlashConfig, DrafterConfig
from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import megabytes
from dflash_cli.memory import drafter_parameters, target_parameters
from dflash_cli.train.data import answer_file, collect, missing_answers
from dflash_cli.train.loss import CHUNK_VALUES
from dflash_cli.train.report import duration
from dflash_cli.train.shape import drafter_shape
from dflash_cli.train.shared_answers import parts
from dflash_cli.train.synthesis import MOST_TOKENS, SOURCE

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.corpus import Wanted
    from dflash_cli.train.data import Data
    from dflash_cli.train.documents import Document
    from dflash_cli.train.reading import Read
    from dflash_cli.train.recipe import Recipe

MUON_STEPS = 5
# Shares of the rate of a large matrix product that each stage reached where it was measured, on two CPU cores.
SERVING_SHARE = 0.03  # a step of many rows reads all weights and caches for one token each
READING_SHARE = 0.25
LEARNING_SHARE = 0.15
KEPT = 2.0  # tokens a verify pass while it is learned


def matmul_rate(like: torch.Tensor) -> float:
    """Floating-point operations a second of a matrix product of the sizes used here, on the device of `like`."""
    a, b = (torch.randn(1024, 1024, device=like.device).to(like.dtype) for _ in range(2))
    torch.matmul(a, b)
    begun, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < 0.2:
        torch.matmul(a, b)[0, 0].item()
        count += 1
    return count * 2 * 1024**3 / passed


@dataclass(frozen=True)
class Stage:
    """A part of a run: what it is, its size and about how many seconds it takes; None where that is not known here."""

    text: str
    seconds: float | None = 0.0

    @property
    def line(self) -> str:
        """As a person reads it."""
        return f"{self.text}, about {duration(self.seconds)}" if self.seconds else self.text


class Plan:
    """The stages of a run of `num_steps` on this machine, whose speed is measured."""

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        raw: dict[str, Any],
        documents: list[Document],
        num_held: int,
        num_steps: int,
    ) -> None:
        """`documents`: what there is already to train on; `num_held`: prompts to measure on."""
        self.recipe, self.model, self.documents = recipe, model, documents
        self.num_held, self.num_steps = num_held, num_steps
        self.drafter = DrafterConfig.from_dict(raw)
        self.target, self.weight = model.target.config, model.target.model.embed_tokens.weight
        self.rate = rate = matmul_rate(self.weight)
        self.lengths = [len(document.ids) for document in documents] or [recipe.answer_tokens * 2]
        self.mean = sum(self.lengths) / len(self.lengths)
        body = target_parameters(self.target) - self.target.vocab_size * self.target.hidden_size
        self.reading = 2 * body / (rate * READING_SHARE)
        """Seconds to read a token."""
        self.saying = 2 * target_parameters(self.target) / (rate * SERVING_SHARE)
        """Seconds to say a token, one of many rows."""

    def head(self) -> list[str]:
        """Target and drafter."""
        size = drafter_parameters(self.drafter)
        return [
            f"target {self.model.pair.target}: {target_parameters(self.target) / 1e6:.0f} M weights, "
            f"{str(self.weight.dtype)[6:]}, {self.weight.device}, {self.rate / 1e9:.0f} GFLOP/s measured",
            f"drafter: {_shape(self.drafter)}: {size / 1e6:.1f} M weights, {megabytes(2 * size)} shipped",
        ]

    def stages(self, to_write: int, missing: Sequence[Wanted]) -> list[Stage]:
        """All that is done, in order. `to_write`: prompts that the target has to write, which it answers then, too."""
        return [
            *([self._prompts(to_write)] if to_write else []),
            self._answers(to_write, missing),
            self._documents(),
            self._features(to_write + len(missing)),
            self._training(),
            self._measuring(),
        ]

    def _prompts(self, to_write: int) -> Stage:
        text = f"prompts to write: {to_write}, {MOST_TOKENS} tokens each where none ends sooner"
        return Stage(text, to_write * MOST_TOKENS * self.saying)

    def _answers(self, to_write: int, missing: Sequence[Wanted]) -> Stage:
        recipe, count = self.recipe, to_write + len(missing)
        if not count:
            return Stage("answers to make: 0")
        text = f"answers to make: {count}, {recipe.answer_tokens} tokens each where none ends sooner"
        if recipe.engine is not None:
            return Stage(f"{text}, by the server {recipe.engine}", None)
        prompts = to_write * MOST_TOKENS + sum(len(each.prompt_ids) for each in missing)
        return Stage(f"{text}, {prompts:,} of prompts before them", prompts * self.reading + self._said(count))

    def _said(self, count: int) -> float:
        return count * self.recipe.answer_tokens * self.saying

    def _documents(self) -> Stage:
        shape = f"{self.mean:.0f} on average, about {self.blocks:.0f} blocks each"
        if not self.documents:
            return Stage(f"documents: none yet; taken to have tokens {shape}")
        return Stage(f"documents: {len(self.documents)}, {sum(self.lengths):,} tokens, {shape}")

    def _features(self, to_come: int) -> Stage:
        if not self.recipe.cache_features:
            return Stage("features: on the fly, in each step")
        tokens = (len(self.documents) + to_come) * self.mean
        width = (len(self.drafter.target_layer_ids) + (self.recipe.loss == "kl")) * self.target.hidden_size
        text = f"features: cached, {megabytes(int(tokens * width * self.weight.itemsize))} on disk"
        return Stage(text, tokens * self.reading)

    def _training(self) -> Stage:
        recipe, num_steps = self.recipe, self.num_steps
        vocab_size = min(recipe.loss_vocabulary or self.target.vocab_size, self.target.vocab_size)
        learned = step_operations(self.drafter, recipe, self.mean, self.blocks, vocab_size)
        seconds = learned / (self.rate * LEARNING_SHARE)
        if not recipe.cache_features:
            seconds += recipe.batch * self.mean * self.reading
        return Stage(
            f"training: {num_steps} steps of {recipe.batch} documents, {recipe.optimizer} {recipe.learning_rate:g}, "
            f"loss {recipe.loss}"
            + ("" if recipe.loss == "d-pace" else f", gamma {recipe.decay(self.drafter.block_size):g}"),
            num_steps * seconds,
        )

    def _measuring(self) -> Stage:
        recipe = self.recipe
        times = math.ceil(self.num_steps / recipe.eval_every) + (recipe.warm_start is not None)
        passes = self.num_held * recipe.measured_tokens / KEPT
        return Stage(
            f"measuring: {times} times, {self.num_held} prompts, at most {recipe.measured_tokens} tokens each",
            times * passes * self.drafter.block_size * self.saying,
        )

    @property
    def blocks(self) -> float:
        """Of a document, on average."""
        counts = [min(self.recipe.anchors, each.num_anchors) for each in self.documents]
        return sum(counts) / max(1, len(counts)) or self.recipe.anchors

    def memory(self) -> str:
        """What is held at once, and what a checkpoint takes."""
        held = peak_bytes(self.recipe, self.drafter, self.model, max(self.lengths))
        saved = checkpoint_bytes(self.recipe, drafter_parameters(self.drafter))
        return f"memory: about {megabytes(held)} at the peak; a checkpoint: {megabytes(saved)}"


def _shape(drafter: DrafterConfig) -> str:
    taps = ", ".join(map(str, drafter.target_layer_ids))
    parts = [f"{drafter.num_layers} layers", f"block {drafter.block_size}", f"taps {taps}" if taps else "no context"]
    parts.append(f"mask id {drafter.mask_token_id}" if isinstance(drafter, DFlashConfig) else "autoregressive")
    return ", ".join(parts)


def plan(recipe: Recipe, model: Model, read: Read, work: Path, to_write: int) -> list[str]:
    """The plan of a run, a line each; nothing is written. `to_write`: prompts the target still has to write."""
    made = dict(answer_file(recipe, model, work).answers)
    for part in parts(recipe, model, work):
        made |= part.answers
    missing = missing_answers(read, made)
    data = _so_far(read, made, recipe, is_all=not missing and not to_write)
    documents = data.train if data else []
    raw, _ = drafter_shape(recipe, model, documents)
    sources = [each.source for each in documents] + [each.source for each in missing]
    sources += [SOURCE] * to_write
    draws = sum(recipe.source_weights.get(each, 1.0) for each in sources)
    num_steps = recipe.steps or math.ceil(draws * recipe.epochs / recipe.batch)
    num_held = len(data.held) if data else len(read.measured_on) or recipe.holdout
    planned = Plan(recipe, model, raw, documents, num_held, num_steps)
    stages = planned.stages(to_write, missing)
    known = sum(each.seconds or 0 for each in stages)
    besides = ", besides what the server takes" if any(each.seconds is None for each in stages) else ""
    total = f"in all: about {duration(known)}{besides}"
    return [*planned.head(), *(each.line for each in stages), planned.memory(), total, _outputs(recipe)]


def _so_far(read: Read, made: dict[str, list[int]], recipe: Recipe, *, is_all: bool) -> Data | None:
    """The data there is already; None where it is too little yet. Raises DFlashError where it is and `is_all`."""
    try:
        return collect(read, made, recipe)
    except DFlashError:
        if is_all:
            raise
        return None


def _outputs(recipe: Recipe) -> str:
    parts = ["drafter and model card"]
    if recipe.tensorboard:
        parts.append("figures for TensorBoard")
    if recipe.push_to_hub is not None:
        parts.append(f"pushed to {recipe.push_to_hub} on the hub, {'public' if recipe.public else 'private'}")
    return f"output: {', '.join(parts)}"


def step_operations(drafter: DrafterConfig, recipe: Recipe, mean: float, blocks: float, vocab_size: int) -> float:
    """Floating-point operations of a step without the target's pass: drafter, head, optimiser."""
    size, width = drafter_parameters(drafter), drafter.hidden_size
    slots = recipe.batch * blocks * drafter.block_size
    fuse = len(drafter.target_layer_ids) * width * width
    kv = drafter.num_layers * 2 * width * drafter.num_kv_heads * drafter.head_dim * drafter.target_context
    passes = 6 * (slots * (size - fuse) + recipe.batch * mean * (fuse + kv))
    head = 4 * slots * vocab_size * width
    # Newton-Schulz: three products a step, about 2.4 times the weights times the short side each.
    muon = MUON_STEPS * 5 * size * width if recipe.optimizer == "muon" else 0
    return passes + head + muon


def checkpoint_bytes(recipe: Recipe, size: int) -> int:
    """Weights and optimiser state in fp32."""
    return 4 * size * (2 + (recipe.optimizer == "adamw") + bool(recipe.ema))


def peak_bytes(recipe: Recipe, drafter: DrafterConfig, model: Model, longest: int) -> int:
    """Everything that is held at once in a step; a rough upper estimate."""
    target, bytes_each = model.target.config, model.target.model.embed_tokens.weight.itemsize
    weights = (target_parameters(target) + target.vocab_size * target.hidden_size) * bytes_each
    size = drafter_parameters(drafter)
    learned = checkpoint_bytes(recipe, size) * 2 + 4 * size + 2 * bytes_each * size
    document = longest + recipe.anchors * drafter.block_size
    row = max(recipe.row_tokens, document)
    layer = 8 * drafter.hidden_size + 4 * drafter.intermediate_size + 4 * drafter.num_heads * drafter.head_dim
    activations = row * layer * drafter.num_layers * bytes_each + document**2 * (bytes_each + 2)
    logits = CHUNK_VALUES * (bytes_each + 4 * 4)
    features = recipe.batch * longest * (len(drafter.target_layer_ids) + 1) * target.hidden_size * bytes_each
    interpreter = 400 * 2**20
    return weights + learned + activations + logits + features + interpreter
