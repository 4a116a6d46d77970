"""Flex Attention: its masks are the rule's, only live blocks are listed, and all passes equal eager's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from backends import create_backend, flex
from backends.attention import Rule
from backends.base import BackendUnavailable
from backends.engine import Engine
from backends.flex import BLOCK, UNCOMPILED, FlexAttention, block_mask
from tests.compilers import artefacts, needs_compiler
from tests.test_drafter import KINDS
from tests.tiny import VOCAB, make_drafter, make_engine, make_target

__all__ = ["artefacts"]
IDS = torch.randint(0, VOCAB, (700,), generator=torch.Generator().manual_seed(1))
RULES = [Rule(True), Rule(False), Rule(True, 40), Rule(False, 40)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("start", [[0], [250], [3, 400]], ids=str)
@pytest.mark.parametrize("num_rows", [1, 6, BLOCK, 4 * BLOCK])
def test_a_block_mask_is_the_rule(rule: Rule, start: list[int], num_rows: int) -> None:
    positions = torch.tensor(start)[:, None] + torch.arange(num_rows)
    mask = block_mask(rule, positions, 920)
    table = rule.table(positions, 920)
    assert torch.equal(create_mask(mask.mask_mod, len(start), 1, num_rows, 920, device="cpu")[:, 0], table)
    padded = torch.nn.functional.pad(table, (0, 1024 - 920))
    blocks = padded.unflatten(2, (8, BLOCK)).unflatten(1, (-1, min(num_rows, BLOCK)))
    assert torch.equal(mask.to_dense()[:, 0].bool(), blocks.any(-1).any(2))
    assert mask.full_kv_num_blocks is not None
    assert torch.equal(mask.full_kv_num_blocks[:, 0], blocks.all(-1).all(2).sum(-1).int())


def test_blocks_past_the_text_are_not_read() -> None:
    positions = torch.tensor([[300, 301]])
    mask = block_mask(Rule(True), positions, 8200)
    assert mask.kv_num_blocks.item() + mask.full_kv_num_blocks.item() == 3  # type: ignore[union-attr]
    window = block_mask(Rule(True, 20), positions, 8200)
    assert window.kv_num_blocks.item() + window.full_kv_num_blocks.item() == 1  # type: ignore[union-attr]


def reference(kind: str, batch_size: int = 1, max_len: int = 690) -> tuple[Engine, Engine]:
    """Flex Attention uncompiled in an eager engine, and eager."""
    target, drafter = make_target(seed=3), make_drafter(seed=4, **KINDS[kind])
    attention = FlexAttention(drafter.config.block_size, UNCOMPILED)
    sizes = {"max_len": max_len, "batch_size": batch_size}
    return Engine(target, drafter, attention, name="flex", **sizes), make_engine(target, drafter, **sizes)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_equals_eager(kind: str) -> None:
    """Prefill in chunks, rows with other starts, a narrow block, an idle row that computes junk, a rewind."""
    both = reference(kind, batch_size=3)
    starts = [600, 30, 0]
    steps = [
        lambda engine: engine.prefill(IDS[:600], 0, 0),
        lambda engine: engine.prefill(IDS[:30], 0, 1),
        lambda engine: engine.draft(IDS[torch.tensor(starts)], starts)[:2],
        lambda engine: engine.verify(torch.stack([IDS[at : at + 6] for at in starts]), starts)[:2],
        lambda engine: engine.verify(torch.stack([IDS[at + 6 : at + 8] for at in starts]), [606, 36, 0])[:2],
        lambda engine: engine.prefill(IDS[100:108], 20, 1),
        lambda engine: engine.draft(IDS[torch.tensor(starts)], [608, 28, 0])[:2],
    ]
    for step in steps:
        got, expected = (step(engine) for engine in both)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@needs_compiler
def test_compiled_passes_equal_eager_and_one_graph_serves_every_length(artefacts: Path) -> None:
    target = make_target("llama", seed=3, num_hidden_layers=2, head_dim=16)  # its layers have other parts
    one_layer = {"num_hidden_layers": 1, "layer_types": ["full_attention"], "num_target_layers": 2}
    drafter = make_drafter(seed=4, dflash_config={"mask_token_id": 271, "target_layer_ids": [0, 1]}, **one_layer)
    eager = make_engine(target, drafter, max_len=400)
    fast = create_backend("flex", target, drafter, max_len=400, artefacts=artefacts, widths=[6])
    assert isinstance(fast, flex.FlexEngine)
    for at in (120, 20, 70):
        for name, ids in (("prefill", IDS[:at]), ("draft", IDS[at : at + 1]), ("verify", IDS[None, at : at + 6])):
            where = 0 if name == "prefill" else [at]
            got, expected = (getattr(engine, name)(ids, where) for engine in (fast, eager))
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        fast.is_warm = True
    assert fast.recompiles == 0


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendUnavailable, match=r"not torch\.float64"):
        create_backend("flex", make_target().double(), None, max_len=10)
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(BackendUnavailable, match=r"flex backend cannot run here: .* AVX2 and Linux"):
        create_backend("flex", make_target(), None, max_len=10)
