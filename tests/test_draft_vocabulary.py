"""Drafting over a part of the vocabulary: the text is the target's own, drafts are of the index, damage is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from backends import DRAFT_VOCABULARY, create_backend
from backends.config import CheckpointError
from backends.draft_vocabulary import DraftHead, draft_ids_file, read_draft_ids
from backends.flex import UNCOMPILED
from backends.layers import run_layers
from backends.linears import can_pack, fuse_for_inference
from backends.self_test import self_test
from dflash_cli.adaptive import Adaptive
from dflash_cli.checkpoint_folder import problem_with
from dflash_cli.config import Config
from dflash_cli.events import BlockDrafted, BlockVerified
from dflash_cli.loading import estimated_bytes, load
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.compilers import artefacts, needs_compiler
from tests.fake_backend import DraftedBy, one_hot
from tests.test_speculative import DRAFTER, PROMPT, REFERENCE, SAMPLED, TARGET, ids_of, oracle, plain_ids, run
from tests.tiny import VOCAB, make_drafter, make_engine, make_target, write_pair

__all__ = ["artefacts"]
EVEN = torch.arange(0, VOCAB, 2)
FEW = 24  # ids of an answer


def reduced(ids: Tensor, **sizes: int) -> Any:
    return make_engine(TARGET, DRAFTER.with_head(DraftHead(TARGET, ids)), **sizes)


def put(folder: Path, *ids: int, vocab_size: int = VOCAB) -> None:
    (folder / DRAFT_VOCABULARY).write_bytes(draft_ids_file(ids, vocab_size))


def test_logits_are_those_columns_of_the_whole_ones() -> None:
    whole, part = make_engine(TARGET, DRAFTER), reduced(EVEN)
    anchors = torch.tensor([9])
    for engine in (whole, part):
        engine.prefill(torch.tensor(PROMPT), 0)
    torch.testing.assert_close(part.draft(anchors, [5]), whole.draft(anchors, [5])[..., EVEN])
    assert part.draft_ids.tolist() == EVEN.tolist()
    assert whole.draft_ids is None


@pytest.mark.parametrize(
    ("params", "ids"),
    [(SamplingParams(), torch.tensor([7])), *((params, EVEN + 1) for params in (SamplingParams(), *SAMPLED))],
)
def test_the_text_is_the_plain_text(params: SamplingParams, ids: Tensor) -> None:
    events = run(reduced(ids), params=params, max_new_tokens=FEW)
    text = ids_of(events)
    assert text == plain_ids(params=params, max_new_tokens=FEW)
    assert set(text) - set(ids.tolist())  # what is not in the index is said all the same,
    drafted = {each for event in events if isinstance(event, BlockDrafted) for each in event.ids}
    assert drafted
    assert drafted <= set(ids.tolist())  # and never drafted


class OverIds(DraftedBy):
    """Proposes the ids that the target will say, as far as they are in the index; its lowest id for the others."""

    def __init__(self, ids: Sequence[int]) -> None:
        super().__init__(make_engine(TARGET), oracle(set()), 6)
        self.draft_ids: Tensor = torch.tensor(ids)  # type: ignore[assignment]
        self.columns = {each: column for column, each in enumerate(ids)}

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        proposed = super().draft(anchors, start)[0].argmax(-1).tolist()
        return one_hot([self.columns.get(each, 0) for each in proposed], len(self.columns)).unsqueeze(0)


@settings(max_examples=8)
@given(ids=st.sets(st.sampled_from(sorted(set(REFERENCE[:FEW]))), min_size=1))
def test_a_drafter_that_foresees_keeps_what_its_index_has(ids: set[int]) -> None:
    events = run(OverIds(sorted(ids)), max_new_tokens=FEW)
    assert ids_of(events) == REFERENCE[:FEW]
    drafts: tuple[int, ...] = ()
    for event in events:
        if isinstance(event, BlockDrafted):
            drafts = event.ids
        if isinstance(event, BlockVerified):
            said = REFERENCE[event.start + 1 - len(PROMPT) :][: len(drafts)]
            assert [each if each in ids else min(ids) for each in said] == list(drafts)
            right = next((k for k, each in enumerate(said) if each != drafts[k]), len(drafts))
            assert event.accepted == min(right, len(event.new_ids))


def test_an_index_of_all_that_is_said_fills_every_block() -> None:
    events = run(OverIds(sorted(set(REFERENCE))), max_new_tokens=1 + 6 * 5)
    assert [len(e.new_ids) for e in events if isinstance(e, BlockVerified)] == [6] * 5


def test_every_row_of_a_batch_drafts_of_the_index() -> None:
    prompts = [[3, 4, 5], [200, 7], [90, 91, 92, 93]]
    got: dict[int, list[Any]] = {}
    requests = [Request(each, max_new_tokens=20) for each in prompts]
    for index, event in Decoder(reduced(EVEN, batch_size=2)).generate_many(requests):
        got.setdefault(index, []).append(event)
    for index, prompt in enumerate(prompts):
        assert ids_of(got[index]) == plain_ids(prompt, max_new_tokens=20)
        assert all(each % 2 == 0 for event in got[index] if isinstance(event, BlockDrafted) for each in event.ids)


@pytest.mark.skipif(not can_pack(torch.zeros(1, 1, dtype=torch.bfloat16)), reason="no packed weights here")
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_rows_are_taken_from_a_packed_head(kind: str) -> None:
    """Tied or not, the head's plain weights are gone, or were never its own."""
    target = make_target(kind).to(torch.bfloat16)
    wanted = target.lm_head.weight.detach().clone()
    if target.config.tie_word_embeddings:
        target.lm_head.weight = target.model.embed_tokens.weight
    fuse_for_inference(target)
    head, hidden = DraftHead(target, EVEN), torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    torch.testing.assert_close(head(hidden), hidden @ wanted[EVEN].T, atol=0.05, rtol=0.02)


def test_the_drafter_stays_what_its_checkpoint_holds() -> None:
    drafter = make_drafter()
    other = drafter.with_head(DraftHead(TARGET, EVEN))
    assert drafter.head is None
    assert other.head is not None
    assert set(other.state_dict()) == set(drafter.state_dict())
    assert all(a is b for a, b in zip(other.parameters(), drafter.parameters(), strict=True))
    assert other.with_head(None).head is None


@needs_compiler
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["compile", "flex"])
def test_fast_backends_draft_the_same(name: str, artefacts: Path) -> None:
    """Without the compiler: layers and kernel are run as they are, which the head knows nothing of."""
    drafter = DRAFTER.with_head(DraftHead(TARGET, EVEN))
    fast: Any = create_backend(name, TARGET, drafter, max_len=64, artefacts=artefacts)
    fast.layers = run_layers
    if name == "flex":
        fast.attention.kernel = UNCOMPILED
    self_test(fast, make_engine(TARGET, drafter, max_len=64))
    events = run(fast, max_new_tokens=9)
    assert ids_of(events) == REFERENCE[:9]
    assert all(each % 2 == 0 for event in events if isinstance(event, BlockDrafted) for each in event.ids)


def test_an_index_is_written_sorted_and_read_back(tmp_path: Path) -> None:
    assert read_draft_ids(tmp_path, VOCAB) is None
    put(tmp_path, 9, 3, VOCAB - 1, 0)
    ids = read_draft_ids(tmp_path, VOCAB)
    assert ids is not None
    assert (ids.tolist(), ids.dtype) == ([0, 3, 9, VOCAB - 1], torch.int32)
    for wrong in ([], [3, 3], [-1], [VOCAB]):
        with pytest.raises(ValueError, match="this draft vocabulary holds"):
            draft_ids_file(wrong, VOCAB)


def int32(*ids: int) -> Tensor:
    return torch.tensor(ids, dtype=torch.int32)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"ids": int32(3, VOCAB)}, f"holds the id {VOCAB}; expected ids from 0 to {VOCAB - 1}"),
        ({"ids": int32(-2, 3)}, "holds the id -2; expected"),
        ({"ids": int32(5, 3)}, "holds ids that do not rise; expected each once, the lowest first"),
        ({"ids": int32(3, 3)}, "holds ids that do not rise"),
        ({"ids": torch.tensor([3, 5])}, r"holds ids as int64 \[2\]; expected int32 \[N\], at least one"),
        ({"ids": torch.tensor([3.0])}, r"holds ids as float32 \[1\]"),
        ({"ids": int32()}, r"holds ids as int32 \[0\]; expected int32 \[N\], at least one"),
        ({"ids": int32(1, 2).view(1, 2)}, r"holds ids as int32 \[1, 2\]"),
        ({"tokens": int32(1)}, "holds tokens; expected one tensor, ids"),
        ({"ids": int32(1), "more": int32(1)}, "holds ids, more; expected one tensor, ids"),
    ],
)
def test_what_is_wrong_with_an_index_is_told(tmp_path: Path, tensors: dict[str, Tensor], words: str) -> None:
    save_file(tensors, tmp_path / DRAFT_VOCABULARY)
    with pytest.raises(CheckpointError, match=f"{DRAFT_VOCABULARY} {words}.*: fetch it .* --draft-vocabulary full"):
        read_draft_ids(tmp_path, VOCAB)


@pytest.mark.parametrize("damage", [b"", b"garbage", None], ids=["empty", "garbage", "truncated"])
def test_a_damaged_index_is_told(tmp_path: Path, damage: bytes | None) -> None:
    put(tmp_path, 1, 2)
    file = tmp_path / DRAFT_VOCABULARY
    file.write_bytes(file.read_bytes()[:-3] if damage is None else damage)
    with pytest.raises(CheckpointError, match=r"cannot be read .* damaged or partial: fetch it again"):
        read_draft_ids(tmp_path, VOCAB)


def test_an_index_of_another_vocabulary_is_told(tmp_path: Path) -> None:
    put(tmp_path, 1, 2, vocab_size=VOCAB - 1)
    with pytest.raises(CheckpointError, match=f"is for a vocabulary of {VOCAB - 1} ids; the target has {VOCAB}"):
        read_draft_ids(tmp_path, VOCAB)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    target, drafter = write_pair(tmp_path)
    put(drafter, *EVEN.tolist())
    return Config(model=str(target), draft=str(drafter), device="cpu", dtype="float32", backend="eager")


def test_a_pair_drafts_of_its_index_unless_told_otherwise(config: Config) -> None:
    model, whole = load(config), load(replace(config, draft_vocabulary="full"))
    assert model.decoder(width=6).backend.draft_ids is not None
    assert whole.decoder(width=6).backend.draft_ids is None
    assert model.plain_decoder().backend.draft_ids is None
    assert "".join(model.stream("Hello", model.decoder(width=6))) == "".join(whole.stream("Hello"))


def test_weights_are_shared_whatever_is_drafted(config: Config) -> None:
    model = load(config)
    again = load(replace(config, context=64), reuse=model)
    assert again.drafter is model.drafter  # so that what its cache holds stays
    whole = load(replace(config, draft_vocabulary="full"), reuse=model)
    assert whole.target is model.target
    assert whole.drafter is not None
    assert whole.drafter.head is None
    assert model.drafter is not None
    assert model.drafter.head is not None  # it is still in use
    assert whole.drafter.norm is model.drafter.norm
    back = load(config, reuse=whole)
    assert back.drafter is not None
    assert back.drafter.head is not None
    assert back.drafter.head.ids.tolist() == EVEN.tolist()


def test_the_index_is_no_weights(config: Config) -> None:
    """Beside weights of another name it is left alone, and alone it is no checkpoint."""
    folder = Path(config.draft or "")
    weights = folder / "model.safetensors"
    weights.rename(folder / "draft.safetensors")
    assert load(config).drafter is not None
    (folder / "draft.safetensors").unlink()
    assert "no *.safetensors" in (problem_with(folder) or "")


def test_memory_and_costs_tell_both_apart(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    monkeypatch.setattr("dflash_cli.loading.check_fits", lambda plan, *_, **__: plans.append(plan))
    model, full = load(config), replace(config, draft_vocabulary="full")
    whole = load(full)
    assert plans[0].total - plans[1].total == len(EVEN) * 32 * 4
    assert estimated_bytes(model, full) - estimated_bytes(whole, full) == len(EVEN) * 32 * 4
    load(full, reuse=model)
    load(replace(config, context=64), reuse=model)
    assert plans[2].drafter == plans[3].drafter == 0
    keys = [Adaptive(each.pair, each.decoder(width=6).backend)._key() for each in (model, whole)]
    assert keys[0].drafter == f"{keys[1].drafter}, {len(EVEN)} ids"
