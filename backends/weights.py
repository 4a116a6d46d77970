"""Checkpoint folders: strict loading of safetensors into a model, memory mapped, never pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from backends import DRAFT_VOCABULARY
from backends.config import CheckpointError, DrafterConfig, TargetConfig
from backends.drafter import Drafter
from backends.drafter_kinds import new_drafter
from backends.linears import fuse_for_inference
from backends.quantize import quantise
from backends.target import Target

INDEX = "model.safetensors.index.json"
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
FLOAT_NAMES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
EMBEDDING = "model.embed_tokens.weight"
QUANTISED = ("_proj.weight", "lm_head.weight")  # ends of the names of what is quantised


@dataclass(frozen=True)
class Checkpoint:
    """A folder's `config.json` and the file each tensor lies in."""

    folder: Path
    config: dict[str, Any]
    files: dict[str, Path]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError for a missing or garbled one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}: it is not a checkpoint folder") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); fetch the checkpoint again") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}; expected an object")
    return value


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read config and tensor names of a folder with single or sharded safetensors. Raises CheckpointError."""
    config = read_json(folder / "config.json")
    if (folder / INDEX).is_file():
        weight_map = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise CheckpointError(f"{folder / INDEX} has no weight_map; fetch the checkpoint again")
        shards = sorted({str(name) for name in weight_map.values()})
    else:
        single = folder / "model.safetensors"
        named = sorted(path.name for path in folder.glob("*.safetensors") if path.name != DRAFT_VOCABULARY)
        shards = [single.name] if single.is_file() else named
    if not shards:
        pickles = sorted(path.name for path in [*folder.glob("*.bin"), *folder.glob("*.pt")])
        hint = f"; {pickles[0]} is a pickle file, which is never loaded: convert it to safetensors" if pickles else ""
        raise CheckpointError(f"{folder} has no *.safetensors weights{hint}")
    files: dict[str, Path] = {}
    for shard in shards:
        if Path(shard).name != shard:
            raise CheckpointError(f"{folder / INDEX} points outside its folder: {shard!r}")
        names = _tensor_names(folder / shard)
        if twice := sorted(files.keys() & set(names)):
            raise CheckpointError(f"{folder} stores {twice[0]} in {files[twice[0]].name} and in {shard}: remove one")
        files |= dict.fromkeys(names, folder / shard)
    return Checkpoint(folder, config, files)


def _tensor_names(path: Path) -> list[str]:
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged or partial: fetch it again") from None


def stored_dtype(folder: Path) -> torch.dtype | None:
    """The dtype the projections of a checkpoint are stored in; None where that is none it can be loaded from.

    Raises CheckpointError where the folder holds no readable weights.
    """
    files = open_checkpoint(folder).files
    name = next((name for name in files if name.endswith("proj.weight")), None)
    if name is None:
        return None
    with safe_open(files[name], framework="pt") as file:
        return FLOAT_NAMES.get(file.get_slice(name).get_dtype())


def load_target(folder: Path, dtype: torch.dtype, device: torch.device, quantize: str = "none") -> Target:
    """A target ready for inference; `quantize`: one of `backends.QUANTISATIONS`. Raises CheckpointError."""
    checkpoint = open_checkpoint(folder)
    config = TargetConfig.from_dict(checkpoint.config)
    with torch.device("meta"):
        target = Target(config)
    ignored = ("lm_head.weight",) if config.tie_word_embeddings else ()
    is_quantised = quantize != "none"
    load_weights(target, checkpoint, dtype, device, ignored, QUANTISED if is_quantised else ())
    if config.tie_word_embeddings:
        _check_tied(checkpoint)
        target.lm_head.weight = target.model.embed_tokens.weight
    if is_quantised:
        quantise(target, quantize, dtype, device)
    else:
        fuse_for_inference(target)
    return target.eval()


def load_drafter(folder: Path, dtype: torch.dtype, device: torch.device) -> Drafter:
    """A drafter in a format `DrafterConfig` reads, ready for inference. Raises CheckpointError."""
    checkpoint = open_checkpoint(folder)
    with torch.device("meta"):
        drafter = new_drafter(DrafterConfig.from_dict(checkpoint.config))
    load_weights(drafter, checkpoint, dtype, device)
    fuse_for_inference(drafter)
    return drafter.eval()


def load_weights(
    module: nn.Module,
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: torch.device,
    ignored: tuple[str, ...] = (),
    as_stored: tuple[str, ...] = (),
) -> None:
    """Give every parameter its tensor: none missing, none left over, each of its shape. Raises CheckpointError.

    A tensor that already has the dtype and device is the mapped file itself. `ignored` may be present or not. Those
    whose names end in one of `as_stored` stay the mapped file in any case.
    """
    wanted = {name: p.shape for name, p in module.named_parameters(remove_duplicate=False) if name not in ignored}
    found = [name for name in checkpoint.files if not name.endswith("rotary_emb.inv_freq") and name not in ignored]
    _check_names(checkpoint.folder, set(wanted), set(found))
    for name, tensor in _tensors(checkpoint, found):
        if tensor.shape != wanted[name]:
            raise CheckpointError(
                f"{checkpoint.folder}: {name} has shape {list(tensor.shape)}; config.json asks for {list(wanted[name])}"
            )
        if tensor.dtype not in FLOATS:
            raise CheckpointError(f"{checkpoint.folder}: {name} is {tensor.dtype}; quantised weights are not supported")
        parent, _, leaf = name.rpartition(".")
        placed = tensor if name.endswith(as_stored) else tensor.to(device, dtype)
        parameter = nn.Parameter(placed, requires_grad=False)
        setattr(module.get_submodule(parent), leaf, parameter)


def _tensors(checkpoint: Checkpoint, names: list[str]) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(set(checkpoint.files.values())):
        with safe_open(path, framework="pt") as file:
            yield from ((name, file.get_tensor(name)) for name in names if checkpoint.files[name] == path)


def _check_tied(checkpoint: Checkpoint) -> None:
    """A head that is stored although it is tied must be the embedding: another one would be ignored in silence."""
    tensors = dict(_tensors(checkpoint, [n for n in ("lm_head.weight", EMBEDDING) if n in checkpoint.files]))
    if "lm_head.weight" in tensors and not torch.equal(tensors["lm_head.weight"], tensors[EMBEDDING]):
        raise CheckpointError(
            f"{checkpoint.folder} stores a head that differs from the embedding, but its config.json ties them; "
            "set tie_word_embeddings to false"
        )


def _check_names(folder: Path, wanted: set[str], found: set[str]) -> None:
    problems = []
    for what, names in (("missing", sorted(wanted - found)), ("left over", sorted(found - wanted))):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            problems.append(f"{what}: {', '.join(names[:3])}{more}")
    if problems:
        raise CheckpointError(f"{folder} does not hold the model its config.json describes; {'; '.join(problems)}")
