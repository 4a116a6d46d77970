"""What a run would take: parameters, memory, disk and time, from shapes and one short measurement of the machine."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from backends.config import DFlashConfig, DrafterConfig
from dflash_cli.fetch_progress import megabytes
from dflash_cli.memory import drafter_parameters, target_parameters
from dflash_cli.train.data import ANSWERS, answer_file, collect, missing_answers
from dflash_cli.train.loss import CHUNK_VALUES
from dflash_cli.train.report import duration
from dflash_cli.train.shape import drafter_shape

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.data import Read
    from dflash_cli.train.documents import Document
    from dflash_cli.train.recipe import Recipe

MUON_STEPS = 5
# Shares of the rate of a large matrix product that each stage reached where it was measured, on two CPU cores.
SERVING_SHARE = 0.03  # a step of many rows reads all weights and caches for one token each
READING_SHARE = 0.25
LEARNING_SHARE = 0.15


def matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations a second of a matrix product of the sizes used here."""
    a, b = (torch.randn(1024, 1024, device=device).to(dtype) for _ in range(2))
    torch.matmul(a, b)
    begun, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < 0.2:
        torch.matmul(a, b)[0, 0].item()
        count += 1
    return count * 2 * 1024**3 / passed


def plan_lines(
    recipe: Recipe, model: Model, raw: dict[str, Any], documents: list[Document], missing: int, num_steps: int
) -> list[str]:
    """The plan, a line each. `missing`: prompts whose answers have to be made first."""
    drafter, target = DrafterConfig.from_dict(raw), model.target.config
    weight = model.target.model.embed_tokens.weight
    rate = matmul_rate(weight.dtype, weight.device)
    size = drafter_parameters(drafter)
    lengths = [len(document.ids) for document in documents] or [recipe.answer_tokens * 2]
    mean = sum(lengths) / len(lengths)
    blocks = sum(min(recipe.anchors, each.num_anchors) for each in documents) / max(1, len(documents)) or recipe.anchors
    body = target_parameters(target) - target.vocab_size * target.hidden_size
    read = 2 * body * mean * recipe.batch
    learned = step_operations(drafter, recipe, mean, blocks, target.vocab_size)
    once = recipe.cache_features
    seconds = num_steps * (learned / LEARNING_SHARE + (0 if once else read / READING_SHARE)) / rate
    reading = len(documents) * 2 * body * mean / (rate * READING_SHARE) if once else 0.0
    answering = missing * recipe.answer_tokens * 2 * target_parameters(target) / (rate * SERVING_SHARE)
    features = (
        sum(lengths) * (len(drafter.target_layer_ids) + (recipe.loss == "kl")) * target.hidden_size * weight.itemsize
    )
    memory = peak_bytes(recipe, drafter, model, max(lengths))
    return [
        f"target {model.pair.target}: {target_parameters(target) / 1e6:.0f} M weights, {str(weight.dtype)[6:]}, "
        f"{weight.device}, {rate / 1e9:.0f} GFLOP/s measured",
        f"drafter: {_shape(drafter)}: {size / 1e6:.1f} M weights, {megabytes(2 * size)} shipped",
        f"answers to make: {missing}" + (_answering(recipe, answering) if missing else ""),
        f"documents: {len(documents)}, {sum(lengths):,} tokens, {mean:.0f} on average, about {blocks:.0f} blocks each",
        "features: " + (f"cached, {megabytes(features)} on disk, about {duration(reading)}" if once else "on the fly"),
        f"training: {num_steps} steps of {recipe.batch} documents, {recipe.optimizer} {recipe.learning_rate:g}, loss "
        f"{recipe.loss}, gamma {recipe.decay(drafter.block_size):g}, about {duration(seconds)}",
        f"memory: about {megabytes(memory)} at the peak; a checkpoint: {megabytes(checkpoint_bytes(recipe, size))}",
    ]


def _shape(drafter: DrafterConfig) -> str:
    taps = ", ".join(map(str, drafter.target_layer_ids))
    parts = [f"{drafter.num_layers} layers", f"block {drafter.block_size}", f"taps {taps}" if taps else "no context"]
    parts.append(f"mask id {drafter.mask_token_id}" if isinstance(drafter, DFlashConfig) else "autoregressive")
    return ", ".join(parts)


def _answering(recipe: Recipe, seconds: float) -> str:
    return f", about {duration(seconds)} at most" if recipe.engine is None else f", by the server {recipe.engine}"


def plan(recipe: Recipe, model: Model, read: Read, work: Path, to_write: int) -> list[str]:
    """The plan of a run, a line each; nothing is written. `to_write`: prompts the target still has to write."""
    made = answer_file(recipe, model, work).answers if (work / ANSWERS).is_file() else {}
    missing = missing_answers(read, made)
    documents = collect(read, made, recipe).train if len(read.documents) + len(made) > 1 else []
    raw, _ = drafter_shape(recipe, model, documents)
    sources = [each.source for each in documents] + [each.source for each in missing]
    draws = sum(recipe.source_weights.get(each, 1.0) for each in sources)
    num_steps = recipe.steps or math.ceil((draws + to_write) * recipe.epochs / recipe.batch)
    lines = [f"prompts to write: {to_write}"] if to_write else []
    lines += plan_lines(recipe, model, raw, documents, len(missing) + to_write, num_steps)
    return [*lines, _outputs(recipe)]


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
