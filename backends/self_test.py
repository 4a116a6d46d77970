"""One block of a backend against eager: what is shown to be equal may be trusted with the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.base import BackendUnavailable, likeliest
from backends.engine import Engine

PROMPT_ROWS = 24
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 8e-2, torch.float16: 2e-2}
"""By dtype: the largest difference of two logits that is rounding, as a share of the largest logit."""


def self_test(backend: Engine, eager: Engine, tolerance: float | None = None) -> dict[str, float]:
    """Compare prefill, draft and verify of one block, and a plain step; what `backend`'s caches hold is kept.

    `eager` has the same target and drafter, and at least one batch row. A context of one row holds a block and no
    prompt, so there no prefill is compared. Returns the largest difference of each pass, as a share of its largest
    logit. Raises BackendUnavailable, with the figures, where one is above `tolerance`.
    """
    tolerance = TOLERANCE[eager.dtype] if tolerance is None else tolerance
    num_rows = min(PROMPT_ROWS, backend.max_len - 1, eager.max_len - 1)
    ids = _ids(eager.target.config.vocab_size, num_rows + eager.block_size).to(eager.device)
    with backend.rows_kept(0, num_rows + backend.block_size):
        got = _passes(backend, ids, num_rows)
    expected = _passes(eager, ids, num_rows)
    if eager.drafter is not None and eager.drafter.is_chain:
        rows = _same_chain(got["draft"], expected["draft"])
        got["draft"], expected["draft"] = got["draft"][:rows], expected["draft"][:rows]
    differences = {name: _difference(got[name], expected[name]) for name in expected}
    # Written so that a NaN fails, too.
    if wrong := [name for name, difference in differences.items() if not difference <= tolerance]:
        figures = ", ".join(f"{name} by {differences[name]:.3g}" for name in wrong)
        raise BackendUnavailable(
            f"the {backend.name} backend computes something else than eager on this machine: {figures} of the largest "
            f"logit (at most {tolerance:g} is rounding in {str(eager.dtype).removeprefix('torch.')}); "
            "use --backend eager"
        )
    return differences


def _ids(vocab_size: int, count: int) -> Tensor:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(0))


def _passes(backend: Engine, ids: Tensor, num_rows: int) -> dict[str, Tensor]:
    """Logits of the passes of a block after a prompt in batch row 0, copied; other rows compute junk."""
    start = [num_rows] + [0] * (backend.batch_size - 1)
    block = ids[num_rows:].repeat(backend.batch_size, 1)
    logits: dict[str, Tensor] = {}
    if num_rows:
        logits["prefill"] = _copied(backend.prefill(ids[:num_rows], 0))
    if backend.block_size > 1:
        logits["draft"] = _copied(backend.draft(block[:, 0].contiguous(), start)[0])
    logits["verify"] = _copied(backend.verify(block, start)[0])
    if backend.block_size > 1:  # a pass of one row has code of its own
        logits["plain step"] = _copied(backend.verify(block[:, :1].contiguous(), start)[0])
    return logits


def _copied(logits: Tensor) -> Tensor:
    """In float32, and the caller's own: the next pass may write over what a backend gives."""
    return logits.to(torch.float32, copy=True)


def _same_chain(got: Tensor, expected: Tensor) -> int:
    """Draft logits [b - 1, N] -> how many rows follow the same drafts: where two are as likely rounding picks one, and
    all that comes after depends on it."""
    same = likeliest(got) == likeliest(expected)
    return int(same.int().cumprod(0)[:-1].sum()) + 1


def _difference(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max())
