"""Our rows: every answer pays its prefill, figures are those of the decoder's events, batches count all rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backends.compiled import CompiledEngine
from backends.draft_vocabulary import DraftHead
from dflash_cli.bench.case import Case
from dflash_cli.bench.entrants import Weights, cache_length, our_subjects
from dflash_cli.bench.ours import Ours
from dflash_cli.bench.plan import Plan
from dflash_cli.bench.room import FEWER
from dflash_cli.bench.runner import Watch
from dflash_cli.bench.subject import Place, Work, label_of
from dflash_cli.costs import Costs
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.memory_fit import NotEnoughMemory
from dflash_cli.models import Pair
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.bench.fakes import PLACE
from tests.compilers import artefacts, needs_compiler
from tests.fake_backend import ScriptedBackend
from tests.tiny import make_drafter, make_engine, make_target

__all__ = ["artefacts"]
PAIR = Pair("tiny", "a-target", "a-drafter", thinking=None, expected=(), note="")
WORK = Work(40, frozenset(), SamplingParams())


def test_every_answer_pays_its_prefill_and_stops_at_a_stop() -> None:
    backend = ScriptedBackend([list(range(10, 40))] * 3, vocab_size=256, end_id=255)
    subject = Ours(Decoder(backend, 6), PLACE, Work(25, frozenset({30}), SamplingParams()))  # type: ignore[arg-type]
    sample = subject.answer([[1, 2, 3, 4]])
    again = subject.answer([[1, 2, 3, 4]])
    assert backend.prefilled == [4, 4]
    assert sample.ids == again.ids == (tuple(range(10, 31)),)
    assert (sample.prompt_tokens, sample.decoded) == (4, 20)
    assert sample.steps == sample.drafted_steps == len(sample.lengths)
    assert sum(sample.lengths) == 20
    assert (subject.name, subject.block_size, subject.adaptive) == ("dflash", 6, False)
    assert sample.draft_ms is not None
    assert sample.verify_ms is not None
    assert sample.draft_ms + sample.verify_ms <= sample.decode_ms


def test_a_batch_counts_the_tokens_of_all_rows_and_each_step_once() -> None:
    place = Place("eager", "float32", 3, 0.0)
    subject = Ours(Decoder(make_engine(make_target(), batch_size=3)), place, WORK)
    subject.warm_up([[1], [2], [3]])
    sample = subject.answer([[1, 2], [3], [4, 5, 6]])
    assert subject.name == "plain"
    assert [len(each) for each in sample.ids] == [40] * 3
    assert (sample.decoded, sample.steps, sample.prompt_tokens) == (3 * 39, 39, 3)
    assert sample.verify_ms is not None
    assert sample.verify_ms <= sample.decode_ms


def weights(*, drafts: bool = True) -> Weights:
    return Weights(PAIR, make_target(), make_drafter() if drafts else None, 512)


def test_a_plan_becomes_rows_that_share_their_weights() -> None:
    plan = Plan(blocks=(None, 4), temperatures=(0.0, 0.8), batches=(1, 2), seed=7)
    subjects = list(our_subjects(weights(), plan, WORK, 128, Watch()))
    told = [(s.name, s.block_size, s.adaptive, s.place.batch, s.place.temperature) for s in subjects]
    one = [("plain", 1, False), ("dflash", 6, True), ("dflash", 4, False)]
    assert told == [(*each, batch, warm) for batch in (1, 2) for warm in (0.0, 0.8) for each in one]
    assert {s.work.params.seed for s in subjects} == {7}
    assert subjects[3].work.params.temperature == 0.8


def test_a_part_and_the_whole_of_the_vocabulary_are_compared() -> None:
    target = make_target()
    drafter = make_drafter().with_head(DraftHead(target, torch.arange(9)))
    plan = Plan(blocks=(6,), draft_vocabularies=("auto", "full"))
    subjects = list(our_subjects(Weights(PAIR, target, drafter, 512), plan, WORK, 128, Watch()))
    assert [(each.name, each.draft_ids) for each in subjects] == [("plain", None), ("dflash", 9), ("dflash", None)]
    assert len({each.answer([[1, 2, 3]]).ids for each in subjects}) == 1
    assert label_of("dflash", 6, False, 9) == "dflash 6 of 9 ids"
    assert len(list(our_subjects(weights(), plan, WORK, 128, Watch()))) == 2  # no index: both are the same


def test_engines_that_do_not_fit_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache takes its memory as it is filled: those made before count as full."""
    config = weights().target.config
    one = 8 * (128 + 1) * 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4
    monkeypatch.setattr("dflash_cli.bench.room.free_memory", lambda _device: 10 * one)
    assert len(list(our_subjects(weights(), Plan(batches=(8,)), WORK, 128, Watch()))) == 3
    plan = Plan(batches=(8, 9, 10, 11, 12))
    with pytest.raises(NotEnoughMemory) as caught:
        list(our_subjects(weights(), plan, WORK, 128, Watch()))
    assert str(caught.value).startswith("eager with batch ")
    assert ", beside what is loaded: not enough memory on cpu: " in str(caught.value)
    assert str(caught.value).endswith(f"Use a smaller model (`dflash models` lists some){FEWER}")


def test_without_a_drafter_there_is_plain_decoding_only() -> None:
    assert [each.name for each in our_subjects(weights(drafts=False), Plan(), WORK, 128, Watch())] == ["plain"]


def test_the_default_is_the_adaptive_width_and_the_trained_block() -> None:
    assert Plan().widths(16) == [None, 16]
    assert Plan(blocks=(4, None, 4)).widths(16) == [4, None]
    assert Plan().widths(1) == []
    with pytest.raises(UsageError, match="block size 9 is not possible"):
        list(our_subjects(weights(), Plan(blocks=(9,)), WORK, 128, Watch()))


def test_caches_hold_the_longest_prompt_and_its_answer() -> None:
    cases = [Case("a", None, (1,) * 600), Case("a", None, (1,) * 20)]
    assert cache_length(cases, 64, 8192) == 1024
    assert cache_length(cases, 64, 700) == 700
    with pytest.raises(DFlashError, match="600 tokens and an answer of 64 need 664, and the context holds 650"):
        cache_length(cases, 64, 650)


@needs_compiler
def test_a_compiled_backend_is_ready_before_its_widths_are_timed(
    monkeypatch: pytest.MonkeyPatch, artefacts: Path
) -> None:
    order: list[str] = []
    monkeypatch.setattr("dflash_cli.bench.entrants.compiled_code", lambda _name: artefacts)
    monkeypatch.setattr(CompiledEngine, "warm_up", lambda self, progress: order.append("warm-up"))
    monkeypatch.setattr("dflash_cli.bench.entrants.self_test", lambda *_: order.append("self-test"))
    monkeypatch.setattr("dflash_cli.adaptive.of_machine", lambda *_: order.append("timed") or Costs())
    list(our_subjects(weights(), Plan(backends=("compile",), blocks=(None,)), WORK, 128, Watch()))
    assert order == ["warm-up", "self-test", "warm-up", "self-test", "timed"]
