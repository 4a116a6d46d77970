"""Context rows of plain decoding wait and are written together: no draft may see a difference."""

from __future__ import annotations

import random

import pytest
import torch

from backends import create_backend
from backends.engine import CONTEXT_ROWS, Engine
from tests.tiny import make_drafter, make_engine, make_target

TARGET = make_target(seed=11)
DRAFTER = make_drafter(seed=12)
VOCAB = TARGET.config.vocab_size


def engines(**settings: int) -> tuple[Engine, Engine]:
    """One that defers and one that does not."""
    deferring, other = (make_engine(TARGET, DRAFTER, **settings) for _ in range(2))
    assert deferring._defers
    other._defers = False
    return deferring, other


@pytest.mark.parametrize("seed", range(12))
def test_drafts_are_those_of_an_engine_that_writes_at_once(seed: int) -> None:
    rng, pair, length = random.Random(seed), engines(), 0
    for _ in range(60):
        step = rng.choice(["plain"] * 8 + ["block", "prefill", "rewind", "again", "draft"])
        if length == 0 or step == "prefill" or length > 200:
            length = length if 0 < length <= 200 else 0
            ids = torch.tensor([rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))])
            for each in pair:
                each.prefill(ids, length)
            length += len(ids)
        elif step == "rewind":
            length = rng.randint(1, length)
        elif step in ("plain", "again", "block"):  # "again": one that was interrupted before it was committed
            width = DRAFTER.config.block_size if step == "block" else 1
            ids = torch.tensor([[rng.randrange(VOCAB) for _ in range(width)]])
            for each in pair:
                each.verify(ids, [length])
            length += 0 if step == "again" else rng.randint(1, width)
        else:
            anchors = torch.tensor([rng.randrange(VOCAB)])
            ours, theirs = (each.draft(anchors, [length]) for each in pair)
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_rows_are_projected_together(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engines()
    engine.prefill(torch.tensor([1, 2, 3]), 0)
    rows: list[int] = []
    write = engine.drafter.write_context
    monkeypatch.setattr(engine.drafter, "write_context", lambda *args: rows.append(args[1].shape[1]) or write(*args))
    for i in range(CONTEXT_ROWS + 5):
        engine.verify(torch.tensor([[i]]), [3 + i])
    assert rows == [CONTEXT_ROWS]
    engine.draft(torch.tensor([7]), [3 + CONTEXT_ROWS + 5])
    assert rows == [CONTEXT_ROWS, 5]


def test_waiting_rows_go_over_to_the_next_backend() -> None:
    old, other = engines()
    for each in (old, other):
        each.prefill(torch.tensor([1, 2, 3]), 0)
        each.verify(torch.tensor([[4]]), [3])
    sizes = {"max_len": old.max_len, "batch_size": 1}
    new = create_backend("eager", TARGET, DRAFTER, cache_from=old, **sizes)
    torch.testing.assert_close(new.draft(torch.tensor([5]), [4]), other.draft(torch.tensor([5]), [4]))


def test_an_interrupt_loses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other = engines()
    for each in (engine, other):
        each.prefill(torch.tensor([1, 2, 3]), 0)
        each.verify(torch.tensor([[4]]), [3])

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine.drafter, "context_kv", stop)
        with pytest.raises(KeyboardInterrupt):
            engine.draft(torch.tensor([5]), [4])
    torch.testing.assert_close(engine.draft(torch.tensor([5]), [4]), other.draft(torch.tensor([5]), [4]))
