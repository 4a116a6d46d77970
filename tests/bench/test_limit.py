"""The limit counts the bytes that the modules really hold."""

from __future__ import annotations

import pytest

from backends.config import DrafterConfig, EagleConfig, TargetConfig
from dflash_cli.bench.limit import Limit
from tests.tiny import NO_CONTEXT, drafter_dict, eagle_dict, make_drafter, make_eagle, make_target, target_dict


@pytest.mark.parametrize("kind", ["qwen3", "llama"])  # the second one's embedding is its head
def test_bytes_are_those_of_the_weights(kind: str) -> None:
    target, drafter = make_target(kind), make_drafter()
    limit = Limit(target.config, drafter.config, 4, 1e9)
    weights = 4 * sum(each.numel() for each in target.parameters())
    embedding = 0 if kind == "llama" else 4 * target.model.embed_tokens.weight.numel()
    assert limit.target_bytes == weights - embedding
    assert limit.drafter_bytes == 4 * sum(each.numel() for each in drafter.parameters())
    assert limit.head_bytes == 4 * target.lm_head.weight.numel()


def test_a_draft_of_some_ids_reads_their_rows_alone() -> None:
    config, drafter = TargetConfig.from_dict(target_dict()), DrafterConfig.from_dict(drafter_dict())
    whole, part = (Limit(config, drafter, 2, 1e6, draft_ids=ids) for ids in (None, 100))
    assert whole.draft_bytes(50) - part.draft_bytes(50) == (config.vocab_size - 100) * config.hidden_size * 2
    assert whole.verify_bytes(50) == part.verify_bytes(50)
    assert (part.as_dict()["draft_head_mb"], part.as_dict()["head_mb"]) == (0.01, 0.02)


def test_a_step_grows_with_context_batch_and_drafts() -> None:
    config, drafter = TargetConfig.from_dict(target_dict()), DrafterConfig.from_dict(drafter_dict())
    limit = Limit(config, drafter, 2, 1e6)
    plain = limit.step_ms(100)
    kv = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 2
    assert limit.step_ms(100, batch=3) - plain == pytest.approx(200 * kv / 1e6 * 1e3)
    assert limit.step_ms(100, drafted=1.0) - plain == pytest.approx(limit.draft_bytes(100) / 1e6 * 1e3)
    assert limit.step_ms(100, drafted=0.5) - plain == pytest.approx(limit.draft_bytes(100) / 1e6 * 1e3 / 2)
    assert Limit(config, None, 2, 1e6).as_dict()["dflash_step_ms"] is None


def test_an_autoregressive_drafter_is_read_once_for_each_draft() -> None:
    target, drafter = make_target(), make_eagle()
    limit = Limit(target.config, drafter.config, 4, 1e6)
    fc = 4 * drafter.fc.weight.numel()
    layer = 4 * sum(each.numel() for each in drafter.parameters()) - fc
    drafts, head = drafter.config.block_size - 1, 4 * target.lm_head.weight.numel()
    assert limit.draft_bytes(0) == fc + drafts * (layer + head)
    row = 4 * 2 * drafter.config.num_kv_heads * drafter.config.head_dim
    assert limit.draft_bytes(100, batch=3) - limit.draft_bytes(0) == drafts * 300 * row
    narrower = EagleConfig.from_dict(eagle_dict(block_size=2))
    assert Limit(target.config, narrower, 4, 1e6).draft_bytes(0) == fc + layer + head


def test_a_drafter_that_sees_no_text_reads_no_cache() -> None:
    config, drafter = TargetConfig.from_dict(target_dict()), DrafterConfig.from_dict(drafter_dict(**NO_CONTEXT))
    limit = Limit(config, drafter, 2, 1e6)
    assert limit.draft_bytes(5000, batch=4) == limit.draft_bytes(0) == limit.drafter_bytes + limit.draft_head_bytes
