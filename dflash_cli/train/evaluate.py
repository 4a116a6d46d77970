"""How well a drafter drafts: answers to prompts it never saw, through the decoder that serves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from backends import create_backend
from backends.drafter import Drafter
from backends.drafter_kinds import new_drafter
from backends.linears import fuse_for_inference
from dflash_cli.events import BlockVerified, Event, Finished
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.stats import AnswerStats
from dflash_cli.train.documents import Document
from dflash_cli.train.report import Reporter

if TYPE_CHECKING:
    from dflash_cli.model import Model

EVAL_ROWS = 8


@dataclass
class Figures:
    """Sums over verify passes. `reached[k]`: passes that drafted slot k + 1; `kept[k]`: those that kept it, and so all
    before it."""

    passes: int = 0
    tokens: int = 0
    accepted: int = 0
    drafted: int = 0
    reached: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def add(self, stats: AnswerStats) -> None:
        """Take the passes of one answer."""
        self.passes += len(stats.lengths)
        self.tokens += sum(stats.lengths)
        self.accepted += sum(stats.accepted_each)
        self.drafted += sum(stats.drafted_each)
        for accepted, drafted in zip(stats.accepted_each, stats.drafted_each, strict=True):
            for slot in range(drafted):
                if slot == len(self.reached):
                    self.reached.append(0)
                    self.kept.append(0)
                self.reached[slot] += 1
                self.kept[slot] += slot < accepted

    @property
    def tau(self) -> float:
        """Mean acceptance length in tokens a verify pass; 1 where nothing was verified."""
        return self.tokens / self.passes if self.passes else 1.0

    @property
    def rate(self) -> float:
        """Accepted drafts / drafts verified; 0 where nothing was."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def positions(self) -> list[float]:
        """The share of passes that kept each slot's draft and all before it, of those that drafted it; the first slot
        first. Where all passes draft the whole block these add up to tau - 1."""
        return [kept / reached for kept, reached in zip(self.kept, self.reached, strict=True)]


@dataclass(frozen=True)
class Measured:
    """Figures over all prompts, and by source."""

    all: Figures
    sources: dict[str, Figures]

    def as_dict(self) -> dict[str, object]:
        """For the metrics file and the model card."""
        return {
            "tau": round(self.all.tau, 4),
            "rate": round(self.all.rate, 4),
            "positions": [round(each, 4) for each in self.all.positions],
            "tau_by_source": {source: round(figures.tau, 4) for source, figures in self.sources.items()},
            "positions_by_source": {
                source: [round(each, 4) for each in figures.positions] for source, figures in self.sources.items()
            },
        }


def inference_copy(weights: dict[str, Tensor], drafter: Drafter, dtype: torch.dtype) -> Drafter:
    """A drafter ready to serve, with these weights in `dtype`."""
    with torch.device("meta"):
        copy = new_drafter(drafter.config)
    # A clone: in fp32 the weights would otherwise be shared with the training that goes on.
    tensors = {name: tensor.detach().to(dtype, copy=True) for name, tensor in weights.items()}
    copy.load_state_dict(tensors, assign=True)
    copy.requires_grad_(False)
    fuse_for_inference(copy)
    return copy.eval()


def measure(
    model: Model,
    drafter: Drafter,
    documents: Sequence[Document],
    most_tokens: int,
    stopped: Callable[[], bool] = lambda: False,
    report: Reporter | None = None,
    *,
    by_heart: bool = False,
) -> Measured | None:
    """Greedy answers to the documents' prompts, or None where `stopped()` came true meanwhile.

    `by_heart`: an answer counts as long as it is the document's own. In bfloat16 a pass over a block may settle a tie
    in another way than whatever made the document did, and what follows is then another text.
    """
    rows = min(EVAL_ROWS, len(documents))
    prompts = [document.prompt_ids for document in documents]
    max_len = min(model.max_len, max(map(len, prompts)) + most_tokens)
    backend = create_backend("eager", model.target, drafter, max_len=max_len, batch_size=rows)
    requests = [Request(ids, max_new_tokens=most_tokens, stop_ids=model.codec.stop_ids) for ids in prompts]
    stats = [AnswerStats() for _ in documents]
    parted: set[int] = set()
    with (report or Reporter(quiet=True)).stage("measuring", len(documents)) as advance:
        done = count(1)
        for index, event in Decoder(backend).generate_many(requests):
            if by_heart and _parts(documents[index], stats[index].ids, event):
                parted.add(index)
            if index not in parted:
                stats[index].add(event)
            if isinstance(event, Finished) and (number := next(done)) < len(documents):
                advance(number, "")
            if stopped():
                return None
    measured = Measured(Figures(), {})
    for document, each in zip(documents, stats, strict=True):
        measured.all.add(each)
        measured.sources.setdefault(document.source, Figures()).add(each)
    return measured


def _parts(document: Document, before: Sequence[int], event: Event) -> bool:
    """Whether an answer, as far as the document goes, is not the document's any more."""
    if not isinstance(event, BlockVerified):
        return False
    answer = document.ids[document.start :].tolist()
    said = [*before, *event.new_ids][: len(answer)]
    return said != answer[: len(said)]
