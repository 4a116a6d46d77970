"""Figures of a drafter: sums over passes, acceptance by slot, and answers that part from a document."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import torch

from dflash_cli.events import BlockVerified, Prefilled
from dflash_cli.stats import AnswerStats
from dflash_cli.train.corpus import Wanted, answers
from dflash_cli.train.documents import Document
from dflash_cli.train.evaluate import Figures, inference_copy, measure
from tests.tiny import make_drafter
from tests.train.lessons import RECIPE, make_model, plain_target, weights


def test_figures_by_hand() -> None:
    stats = AnswerStats()
    stats.add(Prefilled(3, 0, (9,), 1.0))
    for accepted, new_ids, drafted in ((3, (1, 2, 3, 4), 3), (0, (5,), 3), (1, (6,), 1)):
        stats.add(BlockVerified(0, accepted, new_ids, drafted, 1.0, 1.0))
    figures = Figures()
    figures.add(stats)
    figures.add(stats)
    assert figures.tau == (4 + 1 + 1) / 3
    assert figures.rate == 4 / 7
    assert figures.positions == [2 / 3, 1 / 2, 1 / 2]  # the last pass asked for one slot only
    whole = Figures(passes=4, tokens=4 + 3 + 1, reached=[4, 4], kept=[3, 1])
    assert sum(whole.positions) == whole.tau - 1  # as shares of all passes do
    assert (Figures().tau, Figures().rate) == (1.0, 0.0)


def test_a_copy_to_serve_does_not_share_what_is_still_trained() -> None:
    drafter = make_drafter()
    copy = inference_copy(weights(drafter), drafter, torch.float32)
    before = copy.fc.weight.clone()
    with torch.no_grad():
        drafter.fc.weight.add_(1)
    assert torch.equal(copy.fc.weight, before)
    assert not any(each.requires_grad for each in copy.parameters())


def test_what_counts_by_heart_ends_where_the_answer_parts_from_the_document(tmp_path: Path) -> None:
    target = plain_target()
    model = make_model(tmp_path, target)
    prompt = model.encode(model.conversation("hello"))
    ((_, ids, _),) = answers(model, [Wanted((), prompt, "s")], replace(RECIPE, answer_tokens=20))
    drafter = inference_copy(weights(make_drafter()), make_drafter(), torch.float32)
    passes = []
    for parted_at in (20, 8, 1):
        said = [*ids[:parted_at], *(each ^ 1 for each in ids[parted_at:])]
        document = Document(array("i", [*prompt, *said]), len(prompt), "s")
        measured = measure(model, drafter, [document], 20, by_heart=True)
        assert measured is not None
        passes.append(measured.all.tokens)
    assert passes[0] == 19  # all but the first, which the prefill gives
    assert 0 < passes[1] <= 7
    assert passes[2] == 0
