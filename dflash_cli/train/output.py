"""The trained drafter as others load it: `config.json`, `model.safetensors` and a model card."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from dflash_cli import __version__
from dflash_cli.paths import ensure_private, write_private
from dflash_cli.train.data import Data
from dflash_cli.train.evaluate import Measured
from dflash_cli.train.recipe import CHOICES, Recipe
from dflash_cli.train.report import duration


@dataclass(frozen=True)
class Trained:
    """What the card says of how the weights came to be. `curve`: (step, answer tokens trained on, tau)."""

    target: str
    thinking: bool | None
    recipe: Recipe
    data: Data
    step: int
    tokens: int
    seconds: float
    measured: Measured
    curve: list[tuple[int, int, float]]


def write_drafter(folder: Path, raw: dict[str, Any], weights: dict[str, Tensor], trained: Trained) -> None:
    """Write the folder that `--draft FOLDER` takes, bfloat16. Raises DFlashError where it cannot be written."""
    ensure_private(folder)
    tensors = {name: each.detach().to("cpu", torch.bfloat16).contiguous() for name, each in weights.items()}
    write_private(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    write_private(folder / "config.json", (json.dumps(raw, indent=2) + "\n").encode())
    write_private(folder / "README.md", card(raw, trained).encode())


def card(raw: dict[str, Any], trained: Trained) -> str:
    """The model card, Markdown."""
    dflash, measured = raw["dflash_config"], trained.measured
    shape = (
        f"{raw['num_hidden_layers']} layers, block {raw['block_size']}, taps "
        f"{', '.join(map(str, dflash['target_layer_ids']))}, mask id {dflash['mask_token_id']}, bfloat16"
    )
    lines = [
        f"# DFlash drafter for {trained.target}",
        "",
        f"A block-diffusion drafter (arXiv 2602.06036): {shape}. It drafts; what is said is the target's own text.",
        "Use it with `dflash chat --model TARGET --draft THIS_FOLDER`.",
        "",
        "## Measured",
        "",
        f"Acceptance length τ (tokens committed a verify pass), greedy, {len(trained.data.held)} prompts that were not "
        f"trained on, at most {trained.recipe.measured_tokens} tokens each, by the decoder of dflash {__version__}:",
        "",
        "| prompts | τ |",
        "|---|---|",
        *(f"| {source} | {figures.tau:.2f} |" for source, figures in measured.sources.items()),
        f"| all | {measured.all.tau:.2f} |",
        "",
        "Share of drafts accepted by slot: " + ", ".join(f"{each:.2f}" for each in measured.all.positions) + ".",
        "",
        "## Training",
        "",
        f"{trained.step} steps, {trained.tokens:,} answer tokens, {duration(trained.seconds)}. Answers are the "
        + ("target's own." if not trained.recipe.keep_answers else "files' or the target's (`keep_answers`).")
        + (f" Thinking {'on' if trained.thinking else 'off'}." if trained.thinking is not None else ""),
        "",
        "| data | documents |",
        "|---|---|",
        *(f"| {source} | {count} |" for source, count in trained.data.sources.items()),
        "",
        "| choice | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in _choices(trained.recipe)),
        "",
        "| step | answer tokens | τ |",
        "|---|---|---|",
        *(f"| {step} | {tokens:,} | {tau:.2f} |" for step, tokens, tau in trained.curve),
        "",
    ]
    return "\n".join(lines)


def _choices(recipe: Recipe) -> list[tuple[str, object]]:
    """The choices that training depends on; of files only the names."""
    shown: list[tuple[str, object]] = []
    for name, value in recipe.as_dict().items():
        if value is None or value == []:
            continue
        many, path = CHOICES[name].many, CHOICES[name].kind.metavar == "FILE"
        if path:
            value = ", ".join(Path(each).name for each in value) if many else Path(value).name
        shown.append((name, recipe.learning_rate if name == "lr" else value))
    if recipe.lr is None:
        shown.append(("lr", recipe.learning_rate))
    return shown
