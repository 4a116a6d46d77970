"""The training pass computes what the engine drafts, packed or not, and nothing leaks into a block."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import create_mask, flex_attention

from backends.attention import Rule
from backends.drafter import Drafter
from backends.linears import fuse_for_inference
from dflash_cli.train.blocks import Row, draw_anchors, generator, make_row
from dflash_cli.train.documents import Document
from dflash_cli.train.features import FeatureReader, Features, groups, joined
from dflash_cli.train.forward import TrainingForward
from dflash_cli.train.masks import Places, block_places, context_places, dense_mask, sees
from dflash_cli.train.row_attention import ByDocument, Flex
from tests.gpu_parity import training_gradients
from tests.tiny import KINDS, MASK_ID, make_drafter, make_engine, make_target
from tests.train.lessons import documents

BLOCK, TAPS = 6, (1, 3)


def features_of(target: Any, docs: list[Document]) -> list[Features]:
    return FeatureReader(target, TAPS, 64).read(docs)


def slots(drafter: Drafter, target: Any, row: Row, features: list[Features]) -> torch.Tensor:
    """Logits [A, b - 1, V] of a row."""
    hidden = TrainingForward(drafter, target, 64)(row, joined(features).taps)
    return drafter.scale_logits(hidden @ target.head_weight().T)


def everywhere(docs: list[Document]) -> list[torch.Tensor]:
    return [draw_anchors(document, 99, generator("x")) for document in docs]


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_row_equals_the_cached_drafts_of_the_engine(kind: str) -> None:
    """Train and serve agree: for every anchor of every packed document."""
    target, drafter, docs = make_target(seed=3), make_drafter(seed=4, **KINDS[kind]), documents()
    anchors = everywhere(docs)
    row = make_row(docs, anchors, BLOCK, MASK_ID)
    with torch.no_grad():
        packed = slots(drafter, target, row, features_of(target, docs))
    engine = make_engine(target, drafter, max_len=64)
    at = 0
    for document, places in zip(docs, anchors, strict=True):
        ids = torch.tensor(document.ids, dtype=torch.long)
        for place in places.tolist():
            engine.prefill(ids[:place], 0)
            torch.testing.assert_close(
                packed[at], engine.draft(ids[place : place + 1], [place])[0], atol=1e-4, rtol=1e-4
            )
            at += 1
    assert at == len(packed) > 30


def test_packed_equals_apart() -> None:
    target, drafter, docs = make_target(seed=3), make_drafter(seed=4), documents()
    anchors, features = everywhere(docs), features_of(target, docs)
    together = slots(drafter, target, make_row(docs, anchors, BLOCK, MASK_ID), features)
    apart = [
        slots(drafter, target, make_row([document], [places], BLOCK, MASK_ID), [each])
        for document, places, each in zip(docs, anchors, features, strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=1e-5)


def test_features_do_not_depend_on_what_is_read_beside_them() -> None:
    target, docs = make_target(seed=3), documents(8)
    alone = [features_of(target, [document])[0].taps for document in docs]
    for one, other in zip(alone, features_of(target, docs), strict=True):
        torch.testing.assert_close(one, other.taps, atol=1e-4, rtol=1e-4)


@pytest.fixture
def lesson() -> tuple[Any, Drafter, list[Document], list[torch.Tensor], list[Features]]:
    target, docs = make_target(seed=3), documents(3)
    anchors = [torch.tensor([document.start + 1, document.start + 4]) for document in docs]
    return target, make_drafter(seed=4), docs, anchors, features_of(target, docs)


def changed(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    """The blocks whose logits changed."""
    return [block for block in range(len(before)) if not torch.equal(before[block], after[block])]


def test_a_later_token_changes_nothing(lesson: Any) -> None:
    target, drafter, docs, anchors, features = lesson
    row = make_row(docs, anchors, BLOCK, MASK_ID)
    before = slots(drafter, target, row, features)
    for after_anchor in (1, 3, 5):
        ids = docs[1].ids[:]
        place = docs[1].start + 4 + after_anchor
        ids[place] = (ids[place] + 1) % 250
        other = [docs[0], replace(docs[1], ids=ids), docs[2]]
        after = slots(drafter, target, make_row(other, anchors, BLOCK, MASK_ID), features_of(target, other))
        assert changed(before, after) == []
    ids = docs[1].ids[:]
    ids[docs[1].start + 4] += 1  # the anchor of one block, and to the other a later token
    other = [docs[0], replace(docs[1], ids=ids), docs[2]]
    after = slots(drafter, target, make_row(other, anchors, BLOCK, MASK_ID), features_of(target, other))
    assert changed(before, after) == [3]


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_only_features_before_the_anchor_count(lesson: Any, offset: int) -> None:
    target, drafter, docs, anchors, features = lesson
    row = make_row(docs, anchors, BLOCK, MASK_ID)
    before = slots(drafter, target, row, features)
    taps = features[1].taps.clone()
    taps[docs[1].start + 4 + offset :] += 1.0
    after = slots(drafter, target, row, [features[0], Features(taps, None), features[2]])
    assert changed(before, after) == ([3] if offset < 0 else [])


def test_another_block_or_document_changes_nothing(lesson: Any) -> None:
    target, drafter, docs, anchors, features = lesson
    row = make_row(docs, anchors, BLOCK, MASK_ID)
    before = slots(drafter, target, row, features)
    inputs = row.inputs.clone()
    inputs[2] = 7
    assert changed(before, slots(drafter, target, replace(row, inputs=inputs), features)) == [2]
    other = [features[0], Features(features[1].taps + 1, None), features[2]]
    assert changed(before, slots(drafter, target, row, other)) == [2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_flex_attention_and_dense_masks_give_the_same(kind: str) -> None:
    """Its uncompiled form: the compiled one has a backward pass on GPUs only."""
    target, drafter, docs = make_target(seed=3), make_drafter(seed=4, **KINDS[kind]), documents()
    row, taps = make_row(docs, everywhere(docs), BLOCK, MASK_ID), joined(features_of(target, docs)).taps
    flex = partial(Flex, kernel=flex_attention)
    with torch.no_grad():
        found, wanted = (TrainingForward(drafter, target, 64, each)(row, taps) for each in (flex, ByDocument))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def with_gradient(q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, enable_gqa: bool) -> Tensor:
    """What Flex Attention computes, in a way that has a backward pass on a CPU."""
    mask = create_mask(block_mask.mask_mod, 1, 1, q.shape[2], k.shape[2], device="cpu")
    return functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=enable_gqa)


def without_mask(q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, enable_gqa: bool) -> Tensor:
    del block_mask
    return functional.scaled_dot_product_attention(q, k, v, enable_gqa=enable_gqa)


def test_gradients_through_the_masks_of_flex_attention_and_dense_ones_are_the_same() -> None:
    """Its own kernel's gradients: `tests.gpu_check`, on a GPU."""
    cpu = torch.device("cpu")
    found = training_gradients(cpu, with_gradient)
    assert found.pop("holds")
    assert found.keys() == KINDS.keys()
    assert max(each["error"] for each in found.values()) < 1e-4
    assert not training_gradients(cpu, without_mask)["holds"]


def test_every_pair_of_rows_follows_the_rule() -> None:
    """The dense mask against the words of the method, one pair at a time."""
    docs = documents(2)
    row = make_row(docs, [torch.tensor([docs[0].start]), torch.tensor([docs[1].start, docs[1].start + 2])], 4, MASK_ID)
    context = [(0, p) for p in range(len(docs[0].ids))] + [(1, p) for p in range(len(docs[1].ids))]
    blocks = [(0, docs[0].start), (1, docs[1].start), (1, docs[1].start + 2)]
    for rule in (Rule(False), Rule(True), Rule(False, 5), Rule(True, 3)):
        mask = dense_mask(rule, block_places(row), context_places(row), 4, torch.float32)[0, 0]
        assert mask.shape == (12, len(context) + 12)
        for q in range(12):
            document, anchor = blocks[q // 4]
            place = anchor + q % 4
            for kv, (owner, at) in enumerate(
                [*context, *((blocks[i // 4][0], blocks[i // 4][1] + i % 4) for i in range(12))]
            ):
                is_context = kv < len(context)
                seen = (owner == document and at < anchor) if is_context else (kv - len(context)) // 4 == q // 4
                seen &= not rule.causal or at <= place
                seen &= rule.window is None or abs(place - at) < rule.window
                assert bool(mask[q, kv] == 0) == seen, (rule, q, kv)


def test_the_mask_function_takes_any_shape() -> None:
    """One element at a time, as an attention kernel would ask."""
    row = make_row(documents(1), [torch.tensor([8])], 4, MASK_ID)
    place = Places(*(torch.tensor(each) for each in (8, 0, 0, 8)))
    before = Places(*(torch.tensor(each) for each in (7, 0, -1, -1)))
    at = Places(*(torch.tensor(each) for each in (8, 0, -1, -1)))
    assert sees(Rule(False), place, before, 4)
    assert not sees(Rule(False), place, at, 4)
    assert row.teachers[0, 0] == 8


def test_reading_goes_in_groups_of_like_lengths() -> None:
    lengths = [100, 99, 98, 40, 39, 5]
    made = groups(lengths, most=250)
    assert sorted(i for group in made for i in group) == list(range(6))
    assert [[lengths[i] for i in group] for group in made] == [[100, 99], [98], [40, 39], [5]]


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="no packed weights here")
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_a_packed_target_still_gives_its_head(kind: str) -> None:
    target = make_target(kind).to(torch.bfloat16)
    if target.config.tie_word_embeddings:
        target.lm_head.weight = target.model.embed_tokens.weight
    wanted = target.lm_head.weight.clone()
    fuse_for_inference(target)
    assert torch.equal(target.head_weight(), wanted)
