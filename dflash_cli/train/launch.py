"""From what `torchrun` says in the environment to the processes of a run. Imports no torch before there are several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError, UsageError

if TYPE_CHECKING:
    from dflash_cli.train.ranks import Ranks

CONNECT_S = 120  # until all processes have come
ADVICE = "start with `torchrun --nproc-per-node N -m dflash_cli train-drafter ...`, or unset WORLD_SIZE for one process"


@dataclass(frozen=True)
class Place:
    """Which of the processes this is: `rank` of `size` in all, `local` on its machine; `address`: where they meet."""

    rank: int
    size: int
    local: int
    address: str


def read_place(environ: Mapping[str, str]) -> Place | None:
    """The place of this process, None for one alone. Raises UsageError for an environment that is not whole."""
    size = _number(environ, "WORLD_SIZE", 1) if "WORLD_SIZE" in environ else 1
    if size == 1:
        return None
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in environ:
            raise UsageError(f"WORLD_SIZE is {size} and {name} is not set; {ADVICE}")
    rank, local = _number(environ, "RANK", 0), _number(environ, "LOCAL_RANK", 0)
    port = _number(environ, "MASTER_PORT", 1)
    if rank >= size:
        raise UsageError(f"RANK is {rank}, expected less than WORLD_SIZE, which is {size}; {ADVICE}")
    return Place(rank, size, local, f"{environ['MASTER_ADDR']}:{port}")


def _number(environ: Mapping[str, str], name: str, least: int) -> int:
    text = environ[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least):
        raise UsageError(f"{name} is {environ[name]!r}, expected a whole number of at least {least}; {ADVICE}")
    return int(text)


def device_for(place: Place, asked: str) -> str:
    """The device of a process, one a process. Raises UsageError where there are too few, or one for all was named."""
    import torch

    if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if asked not in ("auto", "cuda"):
        raise UsageError(f"--device {asked} is one device for {place.size} processes; expected auto, cuda or cpu")
    if not torch.cuda.is_available():
        return "cuda"  # loading says what is missing
    if place.local >= torch.cuda.device_count():
        raise UsageError(
            f"process {place.local} of this machine (counted from 0) has no GPU of its own: torch sees "
            f"{torch.cuda.device_count()}; start as many processes as there are GPUs with --nproc-per-node"
        )
    return f"cuda:{place.local}"


def join(place: Place, device: str) -> Ranks:
    """Find the other processes: gloo between CPUs, NCCL besides between GPUs. Raises DFlashError where they stay away.

    A process that dies breaks gloo's connections at once; one that hangs is given up after the patience of the notes.
    """
    from datetime import timedelta

    import torch
    from torch import distributed
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from dflash_cli.train.notes import PATIENCE_S, Notes
    from dflash_cli.train.ranks import Ranks

    patience, backend = timedelta(seconds=PATIENCE_S), "gloo"
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, *_ = next(rendezvous("env://", timeout=timedelta(seconds=CONNECT_S)))
        store.set_timeout(patience)
        distributed.init_process_group(
            backend,
            store=PrefixStore("group", store),
            rank=place.rank,
            world_size=place.size,
            timeout=patience,
        )
    except (RuntimeError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise DFlashError(
            f"process {place.rank} of {place.size} did not reach the others at {place.address} ({why}); {ADVICE}"
        ) from error
    return Ranks(place.rank, Notes(PrefixStore("notes", store), place.rank, place.size))
