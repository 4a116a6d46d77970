"""From settings to a loaded pair: find, fetch, check, measure the memory, then load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from backends.config import DrafterConfig, TargetConfig
from backends.draft_vocabulary import DraftHead, read_draft_ids
from backends.weights import load_drafter, load_target, read_json, stored_dtype
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.fetch import fetch
from dflash_cli.free_memory import free_memory
from dflash_cli.memory import MemoryPlan, plan_memory
from dflash_cli.memory_fit import check_fits
from dflash_cli.model import SAMPLING, Model
from dflash_cli.models import Pair, default_alias, find_pair
from dflash_cli.pairing import check_pair
from dflash_cli.sampling import SamplingParams
from dflash_cli.text import TextCodec

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.drafter import Drafter
    from backends.target import Target

CONTEXT_CAP = 8192  # tokens of context where none is asked for: more is memory most conversations never use


@dataclass(frozen=True)
class Found:
    """The files of a pair, read but for the weights, and how it is going to be computed."""

    pair: Pair
    device: torch.device
    dtype: torch.dtype
    quantize: str
    max_len: int
    codec: TextCodec
    target_folder: Path
    target: TargetConfig
    drafter_folder: Path | None
    drafter: DrafterConfig | None
    draft_ids: torch.Tensor | None = None
    """[N] what is drafted; None: the whole vocabulary."""


def load(
    config: Config, *, batch_size: int = 1, reuse: Model | None = None, tell: Callable[[str], None] = lambda _: None
) -> Model:
    """Load the pair that `config` names. `tell` takes remarks for people. Raises DFlashError or ValueError.

    Weights that `reuse` holds in the same precision and place are taken from it, not loaded again.
    """
    found = _find(config)
    target, drafter = (None, None) if reuse is None else _held(reuse, found)
    has_head = target is not None and drafter is not None and _drafts(drafter, found.draft_ids)
    plan = _plan(found, batch_size, (target is not None, drafter is not None), has_head=has_head)
    check_fits(plan, free_memory(str(found.device)), device=str(found.device))
    if target is None or (drafter is None and found.drafter_folder is not None):
        tell(_loading_line(found, plan.total))
    if target is None:
        target = load_target(found.target_folder, found.dtype, found.device, found.quantize)
    if drafter is None and found.drafter_folder is not None:
        drafter = load_drafter(found.drafter_folder, found.dtype, found.device)
    if drafter is not None and not has_head:
        drafter = drafter.with_head(None if found.draft_ids is None else DraftHead(target, found.draft_ids))
    defaults = checkpoint_sampling(_generation_config(found.target_folder))
    return Model(found.pair, config, found.codec, target, drafter, defaults, found.max_len)


def shares_target(model: Model, config: Config) -> bool:
    """Whether `load(config, reuse=model)` takes the target's weights from `model`. Raises what `load` does."""
    device = pick_device(config.device)
    pair = find_pair(config.model or _default_model(device), config.draft)
    dtype = pick_dtype(config.dtype, device)
    same = pair.target == model.pair.target and model.target.quantize == config.quantize
    return same and _lies_on(model.target, device, dtype)


def estimated_bytes(model: Model, config: Config) -> int:
    """About the memory that letting go of `model` sets free for the pair of `config`: all but what both share."""
    weight = model.target.model.embed_tokens.weight
    drafter = None if model.drafter is None else model.drafter.config
    plan = plan_memory(
        model.target.config,
        drafter,
        dtype_bytes=weight.dtype.itemsize,
        context=model.max_len,
        device=weight.device.type,
        loaded=(shares_target(model, config), False),
        quantize=model.target.quantize,
        draft_ids=0 if model.drafter is None or model.drafter.head is None else len(model.drafter.head.ids),
    )
    return plan.total


def _find(config: Config) -> Found:
    device = pick_device(config.device)
    pair = find_pair(config.model or _default_model(device), config.draft)
    target_folder = fetch(pair.target, offline=config.offline, quiet=config.quiet)
    drafter_folder = fetch(pair.drafter, offline=config.offline, quiet=config.quiet) if pair.drafter else None
    target = TargetConfig.from_dict(read_json(target_folder / "config.json"))
    codec = TextCodec.from_folder(target_folder, chat_template=config.read_chat_template())
    drafter = draft_ids = None
    if drafter_folder is not None:
        drafter = DrafterConfig.from_dict(read_json(drafter_folder / "config.json"))
        check_pair(pair, target, drafter, _fingerprints(codec, drafter_folder))
        _check_block(config, drafter)
        if config.draft_vocabulary == "auto":
            draft_ids = read_draft_ids(drafter_folder, target.vocab_size)
    max_len, dtype = pick_context(config.context, target), pick_dtype(config.dtype, device)
    return Found(
        pair, device, dtype, config.quantize, max_len, codec, target_folder, target, drafter_folder, drafter, draft_ids
    )


def _held(model: Model, found: Found) -> tuple[Target | None, Drafter | None]:
    """Target and drafter of `model` as far as they are the ones found, in the same precision and place."""
    if not _lies_on(model.target, found.device, found.dtype):
        return None, None
    same = model.pair.target == found.pair.target and model.target.quantize == found.quantize
    return model.target if same else None, model.drafter if model.pair.drafter == found.pair.drafter else None


def _drafts(drafter: Drafter, ids: torch.Tensor | None) -> bool:
    """Whether these ids are what it drafts."""
    if drafter.head is None or ids is None:
        return drafter.head is None and ids is None
    return torch.equal(drafter.head.ids.cpu(), ids.long())


def _lies_on(target: Target, device: torch.device, dtype: torch.dtype) -> bool:
    weight = target.model.embed_tokens.weight
    is_there = weight.device == torch.empty(0, device=device).device
    return is_there and weight.dtype == dtype


def _plan(found: Found, batch_size: int, loaded: tuple[bool, bool], *, has_head: bool) -> MemoryPlan:
    drafter_folder = found.drafter_folder
    converted = (
        stored_dtype(found.target_folder) != found.dtype,
        drafter_folder is not None and stored_dtype(drafter_folder) != found.dtype,
    )
    return plan_memory(
        found.target,
        found.drafter,
        dtype_bytes=found.dtype.itemsize,
        context=found.max_len,
        batch=batch_size,
        device=found.device.type,
        converted=converted,
        loaded=loaded,
        quantize=found.quantize,
        draft_ids=0 if has_head or found.draft_ids is None else len(found.draft_ids),
    )


def pick_device(name: str) -> torch.device:
    """The device for `--device`; auto takes CUDA, then Apple's GPU, then the CPU. Raises DFlashError, UsageError."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}; expected auto, cpu, cuda, cuda:N or mps") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DFlashError(
            f"device {name} is not there: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices; "
            "use --device cpu, or install a CUDA build of torch"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DFlashError("device mps is not there: it needs an Apple GPU and a torch built for it; use --device cpu")
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype for `--dtype`; auto is bfloat16 where the device computes in it, else float16 or float32."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type == "mps":
        return torch.float16
    fast = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def name_of(dtype: torch.dtype) -> str:
    """`bfloat16` for torch.bfloat16."""
    return str(dtype).removeprefix("torch.")


def pick_context(asked: int | None, target: TargetConfig) -> int:
    """Cache rows a sequence may hold. Raises UsageError past what the target was made for."""
    if asked is not None and asked > target.max_position_embeddings:
        raise UsageError(
            f"--context {asked} is more than this target was made for; at most {target.max_position_embeddings}"
        )
    return asked or min(target.max_position_embeddings, CONTEXT_CAP)


def checkpoint_sampling(settings: dict[str, Any]) -> SamplingParams:
    """What the checkpoint's `generation_config.json` asks for; it samples only where `do_sample` says so."""
    values = {key: settings[key] for key in SAMPLING if settings.get(key) is not None}
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DFlashError(f"generation_config.json has {key} {value!r}; expected a number: correct or remove it")
    values["temperature"] = values.get("temperature", 1.0) if settings.get("do_sample", False) else 0.0
    try:
        return SamplingParams(**values)
    except ValueError as err:
        raise DFlashError(f"generation_config.json: {err}: correct or remove it") from None


def _default_model(device: torch.device) -> str:
    is_cuda = device.type == "cuda"
    return default_alias(is_cuda, torch.cuda.mem_get_info(device)[0] if is_cuda else 0)


def _check_block(config: Config, drafter: DrafterConfig) -> None:
    if config.block is not None and config.block > drafter.block_size:
        raise UsageError(
            f"--block {config.block} is more than this drafter was trained on; at most {drafter.block_size}"
        )


def _generation_config(folder: Path) -> dict[str, Any]:
    path = folder / "generation_config.json"
    return read_json(path) if path.is_file() else {}


def _fingerprints(codec: TextCodec, drafter_folder: Path) -> tuple[str, str] | None:
    if not (drafter_folder / "tokenizer.json").is_file():
        return None
    return codec.fingerprint, TextCodec.from_folder(drafter_folder).fingerprint


def _loading_line(found: Found, num_bytes: int) -> str:
    pair, kept = found.pair, "" if found.quantize == "none" else f" with {found.quantize} weights"
    how = f"drafter {pair.drafter}" if pair.drafter else "no drafter, plain decoding"
    return f"{pair.name}: {how}; {found.device}, {name_of(found.dtype)}{kept}, about {num_bytes / 2**20:,.0f} MiB"
