"""Where two texts part, by how much, and whether that is a tie."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dflash_cli.compare import compare, first_difference
from dflash_cli.events import FinishReason
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.stats import AnswerStats
from tests.tiny import make_engine, make_target

PROMPT = [4, 8, 15]


def stats(ids: list[int], ms: float = 100.0, reason: FinishReason = "length") -> AnswerStats:
    return AnswerStats(ids=ids, decode_ms=ms, reason=reason)


def plain_decoder(dtype: torch.dtype = torch.float32) -> tuple[Decoder, torch.Tensor]:
    """A decoder, and the logits after PROMPT + [16]."""
    engine = make_engine(make_target(seed=2).to(dtype))
    return Decoder(engine), engine.prefill(torch.tensor([*PROMPT, 16]), 0).float().clone()


@pytest.mark.parametrize(
    ("ours", "theirs", "index"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2], [1, 2, 3], None), ([1, 9, 3], [1, 2, 3], 1), ([0], [1], 0), ([], [], None)],
)
def test_first_difference(ours: list[int], theirs: list[int], index: int | None) -> None:
    assert first_difference(ours, theirs) == index


def test_identical_texts_and_speedup() -> None:
    plain, _ = plain_decoder()
    result = compare(plain, PROMPT, stats([16, 2, 3], 50.0), stats([16, 2, 3], 200.0))
    assert result.as_dict() == {
        "identical": True, "first_difference": None, "plain_tokens_per_s": 10.0, "speedup": 4.0,
    }  # fmt: skip


def test_the_gap_is_the_plain_choice_over_ours() -> None:
    plain, logits = plain_decoder()
    best, other = logits.topk(2).indices.tolist()
    difference = compare(plain, PROMPT, stats([16, other, 7]), stats([16, best, 9])).first_difference
    assert difference is not None
    assert (difference.index, difference.id, difference.plain_id) == (1, other, best)
    assert difference.logit_gap == pytest.approx(float(logits[best] - logits[other]), abs=1e-4)
    assert difference.logit_gap > 0
    assert not difference.tie


def test_a_gap_within_rounding_is_a_tie() -> None:
    plain, logits = plain_decoder()
    best, other = logits.topk(2).indices.tolist()
    with torch.no_grad():
        plain.backend.target.lm_head.weight[other] = plain.backend.target.lm_head.weight[best]  # type: ignore[attr-defined]
    difference = compare(plain, PROMPT, stats([16, other]), stats([16, best])).first_difference
    assert difference is not None
    assert difference.tie


def test_the_plain_decoder_can_be_used_again() -> None:
    plain, _ = plain_decoder()
    request = Request(PROMPT, max_new_tokens=8)
    before = list(plain.generate(request))
    compare(plain, PROMPT, stats([16, 1]), stats([16, 2]))
    after = list(plain.generate(request))
    assert [getattr(e, "new_ids", None) for e in before] == [getattr(e, "new_ids", None) for e in after]


def test_an_interrupted_baseline_is_not_called_identical() -> None:
    plain, _ = plain_decoder()
    assert compare(plain, PROMPT, stats([16, 2]), stats([16], reason="interrupted")).as_dict()["identical"] is False


def test_a_text_that_ends_early_is_not_called_identical() -> None:
    plain, _ = plain_decoder()
    result = compare(plain, PROMPT, stats([16, 2]), stats([16, 2, 3]))
    assert result.first_difference is None
    assert result.as_dict()["identical"] is False


def test_the_line_for_people() -> None:
    def line(ours: AnswerStats, theirs: AnswerStats) -> str:
        return compare(plain_decoder()[0], PROMPT, ours, theirs).summary(None, "float32")  # type: ignore[arg-type]

    drafted, plain = replace(stats([16, 2, 3], 50.0), drafted_each=[5]), stats([16, 2, 3], 200.0)
    assert line(drafted, plain) == "plain 10.0 tok/s, DFlash is 4.00× that · identical text"
    assert line(plain, plain) == "plain 10.0 tok/s: both are plain decoding, nothing was drafted · identical text"
    assert line(stats([16]), stats([16])) == "too short to compare speeds · identical text"
    assert line(drafted, stats([16, 2])).endswith(" · one text is only the beginning of the other")
