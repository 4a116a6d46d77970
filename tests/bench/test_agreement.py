"""Whether texts agree: found where they do not, and ties told apart from real differences."""

from __future__ import annotations

from dataclasses import replace

import torch

from dflash_cli.bench.agreement import agreements
from dflash_cli.bench.case import Case
from dflash_cli.bench.ours import Ours
from dflash_cli.bench.runner import Runner, Watch
from dflash_cli.bench.sample import Sample
from dflash_cli.bench.subject import Place, Work
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.bench.fakes import FakeSubject
from tests.tiny import make_drafter, make_engine, make_target

PLACE = Place("eager", "float32", 1, 0.0)
CASES = [Case("math", None, (1, 2, 3)), Case("math", None, (9, 8))]
WORK = Work(20, frozenset(), SamplingParams())


def runner_of(*subjects: object) -> Runner:
    runner = Runner(subjects, CASES, 2, Watch())  # type: ignore[arg-type]
    runner.run()
    return runner


def plain() -> Ours:
    return Ours(Decoder(make_engine(make_target())), PLACE, WORK)


class Wrong(Ours):
    """Changes the tenth id of an answer to the first prompt."""

    def answer(self, rows: object) -> Sample:
        sample = super().answer(rows)  # type: ignore[arg-type]
        ids = list(sample.ids[0])
        if sample.prompt_tokens == 3:
            ids[9] = (ids[9] + 1) % 256
        return replace(sample, ids=(tuple(ids),))


def test_lossless_drafting_agrees() -> None:
    fast = Ours(Decoder(make_engine(make_target(), make_drafter())), PLACE, WORK)
    runner = runner_of(plain(), fast)
    (found,) = agreements(runner.measured.values(), runner.groups).values()
    assert (found.identical, found.compared, found.differing) == (True, 4, 0)


def test_a_wrong_text_is_found_and_is_no_tie() -> None:
    wrong = Wrong(Decoder(make_engine(make_target(), make_drafter())), PLACE, WORK)
    runner = runner_of(plain(), wrong)
    (found,) = agreements(runner.measured.values(), runner.groups).values()
    assert (found.identical, found.compared, found.differing, found.ties) == (False, 4, 2, 0)


def test_ids_that_the_target_finds_equal_are_a_tie() -> None:
    target = make_target()
    target.lm_head.weight = torch.nn.Parameter(torch.zeros_like(target.lm_head.weight))
    base = Ours(Decoder(make_engine(target)), PLACE, WORK)
    wrong = Wrong(Decoder(make_engine(target, make_drafter())), PLACE, WORK)
    runner = runner_of(base, wrong)
    (found,) = agreements(runner.measured.values(), runner.groups).values()
    assert (found.differing, found.ties) == (2, 2)


def test_simulations_other_precisions_and_random_peers_are_not_compared() -> None:
    quantised = Place("llama.cpp", "q4_1", 1, 0.0)
    warm = Place("eager", "float32", 1, 0.7)
    peers = [
        FakeSubject("llama.cpp", [], place=quantised, baseline=PLACE),
        FakeSubject("hf-generate", [], place=warm, baseline=warm),
        FakeSubject("dflash", [], simulated_tau=3.0),
    ]
    runner = runner_of(plain(), *peers)
    assert agreements(runner.measured.values(), runner.groups) == {}


def test_batches_are_compared_row_by_row() -> None:
    place = Place("eager", "float32", 2, 0.0)
    base = Ours(Decoder(make_engine(make_target(), batch_size=2)), place, WORK)
    fast = Ours(Decoder(make_engine(make_target(), make_drafter(), batch_size=2)), place, WORK)
    runner = runner_of(base, fast)
    (found,) = agreements(runner.measured.values(), runner.groups).values()
    assert (found.identical, found.compared) == (True, 8)
