"""In what precision a target's weights are: in another one it is another target, with other answers and features.

And with how many threads sums are made: that moves their last bits only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dflash_cli.errors import DFlashError

if TYPE_CHECKING:
    from backends.target import Target


def precision(target: Target) -> dict[str, str]:
    """`dtype` and `quantize`, as the flags of these names take them."""
    return {
        "dtype": str(target.model.embed_tokens.weight.dtype).removeprefix("torch."),
        "quantize": target.quantize,
    }


def quantised(target: Target) -> str | None:
    """How a target is quantised; None where it is not, which is what files say that are older than the choice."""
    return None if target.quantize == "none" else target.quantize


def check_precision(saved: dict[str, str], target: Target, out: Path) -> None:
    """Raises DFlashError where the run in `out` has its target in another one; what it did not save counts as equal."""
    for name, now in precision(target).items():
        if saved.get(name, now) != now:
            raise DFlashError(
                f"{out} holds a run whose target has {name} {saved[name]!r}, now it has {now!r}; "
                f"pass --{name} {saved[name]}, or use another --out"
            )


def other_threads(before: int | None, device: torch.device) -> str | None:
    """What to say where a run was saved with another number of CPU threads than it goes on with, None for nothing.

    Each thread adds up a part of a sum, and another number of parts rounds in another way.
    """
    now = torch.get_num_threads()
    if device.type != "cpu" or before in (None, now):
        return None
    return (
        f"the run was saved with {before} CPU threads and goes on with {now}: from here on it is no longer bit for bit "
        f"the run that it would have been; pass --threads {before} for that"
    )
