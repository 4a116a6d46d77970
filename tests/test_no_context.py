"""The drafter without context: it drafts from the anchor alone, wherever that stands, and changes no text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backends.config import CheckpointError, DFlashConfig
from backends.engine import Engine
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from tests.tiny import MASK_ID, NO_CONTEXT, VOCAB, drafter_dict, make_drafter, make_engine, make_target, said_by

TARGET = make_target(seed=3)
DRAFTER = make_drafter(seed=4, **NO_CONTEXT)
IDS = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(8))


def engine(batch_size: int = 1) -> Engine:
    return make_engine(TARGET, DRAFTER, max_len=64, batch_size=batch_size)


def test_a_draft_depends_on_the_anchor_alone() -> None:
    each = engine()
    first = each.draft(torch.tensor([7]), [0]).clone()
    for start, ids in ((1, IDS[:1]), (20, IDS[:20]), (50, IDS[5:55])):
        each.prefill(ids, 0)
        assert torch.equal(each.draft(torch.tensor([7]), [start]), first)
    assert not torch.equal(each.draft(torch.tensor([8]), [50]), first)


def test_rows_of_a_batch_may_stand_anywhere() -> None:
    both = engine(2)
    got = both.draft(torch.tensor([7, 9]), [30, 4]).clone()
    for row, anchor in enumerate((7, 9)):
        torch.testing.assert_close(got[row], engine().draft(torch.tensor([anchor]), [0])[0], atol=1e-6, rtol=1e-6)


def test_no_context_is_written() -> None:
    each = engine()
    each.prefill(IDS[:40], 0)
    for at in range(40, 45):
        each.verify(IDS[None, at : at + 1], [at])
    assert each.drafter_cache is not None
    assert not each._waiting
    assert not any(buffer.any() for buffer in each.drafter_cache.buffers)
    each.draft(IDS[45:46], [45])
    assert not any(buffer[:, :, DRAFTER.config.block_size :].any() for buffer in each.drafter_cache.k)


def test_there_are_no_weights_to_fuse_what_is_not_seen() -> None:
    names = {name.split(".")[0] for name, _ in DRAFTER.named_parameters()}
    assert names == {"layers", "norm"}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_is_said_is_the_targets_own(temperature: float) -> None:
    request = Request(IDS[:5].tolist(), SamplingParams(temperature=temperature, seed=3), max_new_tokens=40)
    said = said_by(TARGET, DRAFTER, request)
    assert said == said_by(TARGET, None, request)


@pytest.mark.parametrize(
    "dflash",
    [
        {"target_layer_ids": [1, 3], "target_context": False},
        {"target_layer_ids": [], "target_context": 0},
        {"target_layer_ids": [1], "target_context": "no"},
    ],
    ids=str,
)
def test_a_context_that_is_neither_there_nor_not_is_an_error(dflash: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="expected true, or false and an empty array"):
        DFlashConfig.from_dict(drafter_dict(dflash_config={"mask_token_id": MASK_ID, **dflash}))
