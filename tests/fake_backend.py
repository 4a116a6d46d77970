"""Backends with a script instead of a model, that check the decoder's side of the contract as they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from backends import AS_ASKED, Choice
from backends.engine import Engine

Propose = Callable[[list[int], int], list[int]]
"""(the text so far with the anchor last, how many) -> drafts."""


def one_hot(ids: Sequence[int], vocab_size: int) -> Tensor:
    """Logits [len(ids), V] whose argmax is `ids`."""
    return torch.nn.functional.one_hot(torch.tensor(list(ids)), vocab_size).float() * 10


class ScriptedBackend:
    """Says one scripted answer a prompt (then `end_id` for ever); drafts the script with every n-th draft wrong.

    It keeps what the decoder wrote to each cache row and fails when an anchor does not follow committed text.
    """

    name = "scripted"
    device = torch.device("cpu")
    dtype = torch.float32
    batch_size = 1
    choice = Choice("scripted", AS_ASKED)
    widths = None
    took_over = False
    draft_ids = None
    drafter = None
    quantize = "none"
    recompiles = 0

    def warm_up(self, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        progress(0, 0)

    def __init__(
        self, answers: Sequence[Sequence[int]], *, vocab_size: int, end_id: int, block_size: int = 6,
        wrong_every: int = 4, max_len: int = 512,
    ) -> None:  # fmt: skip
        self.answers = [list(answer) for answer in answers]
        self.vocab_size, self.end_id, self.block_size = vocab_size, end_id, block_size
        self.wrong_every, self.max_len = wrong_every, max_len
        self.rows: list[int] = []
        self.prompts: list[list[int]] = []
        self.prefilled: list[int] = []
        self.on_call: Callable[[str], None] = lambda _: None
        self.answer: list[int] = []
        self.origin = 0

    def says(self, place: int) -> int:
        """The target's id at an absolute place."""
        index = place - self.origin
        return self.answer[index] if 0 <= index < len(self.answer) else self.end_id

    def _write(self, start: int, ids: list[int]) -> None:
        assert start <= len(self.rows), f"rows {len(self.rows)}..{start} were never written"
        self.rows[start:] = ids

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        self.on_call("prefill")
        self._write(start, ids.tolist())
        self.prompts.append(list(self.rows))
        self.prefilled.append(len(ids))
        self.answer, self.origin = self.answers.pop(0), len(self.rows)
        return one_hot([self.says(self.origin)], self.vocab_size)[0]

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        self.on_call("draft")
        assert anchors.tolist() == [self.says(start[0])], "the anchor is not the last committed id"
        ids = [self.says(start[0] + k) for k in range(1, self.block_size)]
        wrong = [(each + 1) % 256 if k % self.wrong_every == 0 else each for k, each in enumerate(ids, 1)]
        return one_hot(wrong, self.vocab_size).unsqueeze(0)

    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        self.on_call("verify")
        assert ids[0, 0].item() == self.says(start[0]), "the anchor is not the last committed id"
        self._write(start[0], ids[0].tolist())
        own = [self.says(start[0] + k + 1) for k in range(ids.shape[1])]
        return one_hot(own, self.vocab_size).unsqueeze(0)


class DraftedBy:
    """A real engine whose drafts come from `propose`: perfect, hostile or anything else, at any block size."""

    choice = Choice("drafted-by", AS_ASKED)
    widths = None
    took_over = False
    draft_ids = None
    drafter = None
    quantize = "none"
    recompiles = 0

    def warm_up(self, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        progress(0, 0)

    def __init__(self, engine: Engine, propose: Propose, block_size: int) -> None:
        self.engine, self.propose, self.block_size = engine, propose, block_size
        self.name, self.device, self.dtype = "drafted-by", engine.device, engine.dtype
        self.max_len, self.batch_size = engine.max_len - block_size, engine.batch_size
        self.texts: list[list[int]] = [[] for _ in range(engine.batch_size)]
        self.vocab_size = engine.target.config.vocab_size

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        self.texts[row][start:] = ids.tolist()
        return self.engine.prefill(ids, start, row)

    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        rows = []
        for row, anchor in enumerate(anchors.tolist()):
            text = [*self.texts[row][: start[row]], anchor]
            rows.append(one_hot(self.propose(text, self.block_size - 1), self.vocab_size))
        return torch.stack(rows)

    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        for row, new in enumerate(ids.tolist()):
            self.texts[row][start[row] :] = new
        return self.engine.verify(ids, start)
