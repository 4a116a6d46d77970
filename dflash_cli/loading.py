"""From settings to a loaded pair: find, fetch, check, measure the memory, then load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from backends.config import DrafterConfig, TargetConfig
from backends.weights import load_drafter, load_target, read_json
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.fetch import fetch
from dflash_cli.memory import check_fits, free_memory, plan_memory
from dflash_cli.model import Model
from dflash_cli.models import Pair, default_alias, find_pair
from dflash_cli.pairing import check_pair
from dflash_cli.sampling import SamplingParams
from dflash_cli.text import TextCodec

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXT_CAP = 8192  # tokens of context where none is asked for: more is memory most conversations never use
SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "seed")


def load(config: Config, *, batch_size: int = 1, tell: Callable[[str], None] = lambda _: None) -> Model:
    """Load the pair that `config` names. `tell` takes remarks for people. Raises DFlashError or ValueError."""
    device = pick_device(config.device)
    dtype = pick_dtype(config.dtype, device)
    pair = find_pair(config.model or _default_model(device), config.draft)
    target_folder = fetch(pair.target, offline=config.offline, quiet=config.quiet)
    drafter_folder = fetch(pair.drafter, offline=config.offline, quiet=config.quiet) if pair.drafter else None
    target_config = TargetConfig.from_dict(read_json(target_folder / "config.json"))
    codec = TextCodec.from_folder(target_folder, chat_template=config.read_chat_template())
    drafter_config = None
    if drafter_folder is not None:
        drafter_config = DrafterConfig.from_dict(read_json(drafter_folder / "config.json"))
        check_pair(pair, target_config, drafter_config, _fingerprints(codec, drafter_folder))
        _check_block(config, drafter_config)
    max_len = pick_context(config.context, target_config)
    plan = plan_memory(
        target_config,
        drafter_config,
        dtype_bytes=dtype.itemsize,
        context=max_len,
        batch=batch_size,
        device=device.type,
    )
    check_fits(plan, free_memory(str(device)), device=str(device))
    tell(_loading_line(pair, device, dtype, plan.total))
    target = load_target(target_folder, dtype, device)
    drafter = load_drafter(drafter_folder, dtype, device) if drafter_folder is not None else None
    params = sampling_params(config, _generation_config(target_folder))
    return Model(pair, config, codec, target, drafter, params, max_len)


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
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
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


def sampling_params(config: Config, defaults: dict[str, Any]) -> SamplingParams:
    """Settings over the checkpoint's `generation_config.json`, which samples only where `do_sample` says so."""
    values = {key: defaults[key] for key in SAMPLING_KEYS if defaults.get(key) is not None}
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DFlashError(f"generation_config.json has {key} {value!r}; expected a number: correct or remove it")
    values["temperature"] = values.get("temperature", 1.0) if defaults.get("do_sample", False) else 0.0
    asked = {key: getattr(config, key) for key in SAMPLING_KEYS if getattr(config, key) is not None}
    return replace(SamplingParams(), **(values | asked))


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


def _loading_line(pair: Pair, device: torch.device, dtype: torch.dtype, num_bytes: int) -> str:
    how = f"drafter {pair.drafter}" if pair.drafter else "no drafter, plain decoding"
    return f"{pair.name}: {how}; {device}, {name_of(dtype)}, about {num_bytes / 2**20:,.0f} MiB"
