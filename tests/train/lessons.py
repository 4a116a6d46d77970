"""Small things to train on: a tiny pair in memory, documents with random ids, a target that can be foreseen."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from backends.drafter import Drafter
from backends.target import Target
from dflash_cli.config import Config
from dflash_cli.model import Model
from dflash_cli.models import Pair
from dflash_cli.sampling import SamplingParams
from dflash_cli.text import TextCodec
from dflash_cli.train.documents import Document
from dflash_cli.train.recipe import Recipe
from tests.byte_tokenizer import make_byte_tokenizer_folder
from tests.tiny import make_target, target_dict

PAIR = Pair(name="tiny", target="tiny", drafter=None, thinking=None, expected=(), note="")
RECIPE = Recipe(
    prompts=("p",), block=6, taps=(1, 3), layers=2, anchors=8, batch=4, row_tokens=200, eval_tokens=16, seed=3
)


def documents(count: int = 5, seed: int = 0, top: int = 250) -> list[Document]:
    """Documents of 12 to 40 random ids below `top`, a third of each the prompt."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(12, 40, (count,), generator=random).tolist()
    return [
        Document(array("i", torch.randint(0, top, (n,), generator=random).tolist()), n // 3, f"s{i % 2}")
        for i, n in enumerate(lengths)
    ]


def plain_target(seed: int = 0, **changes: Any) -> Target:
    """A target whose next id depends mostly on the last one, so that a drafter can learn to foresee it."""
    target = make_target(seed=seed, **changes)
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            if "layers" in name and parameter.ndim == 2:
                parameter.mul_(0.2)
    return target


def make_model(folder: Path, target: Target, **config: Any) -> Model:
    """A loaded target with the byte tokenizer."""
    codec = TextCodec.from_folder(make_byte_tokenizer_folder(folder))
    return Model(PAIR, Config(quiet=True, **config), codec, target, None, SamplingParams(), max_len=256)


def write_target(folder: Path, seed: int = 0) -> Path:
    """`plain_target` as a checkpoint folder."""
    make_byte_tokenizer_folder(folder)
    (folder / "config.json").write_text(json.dumps(target_dict()))
    tensors = {name: each.detach().contiguous() for name, each in plain_target(seed).named_parameters()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_prompts(path: Path, count: int = 40) -> Path:
    """Different short prompts, one a line."""
    path.write_text(
        "".join(json.dumps({"prompt": f"{i * 37 % 100} and {i}", "source": "sums"}) + "\n" for i in range(count))
    )
    return path


def weights(drafter: Drafter) -> dict[str, torch.Tensor]:
    """Copies of a drafter's weights."""
    return {name: each.detach().clone() for name, each in drafter.named_parameters()}
