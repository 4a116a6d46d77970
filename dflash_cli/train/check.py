"""`--check`: learn a few documents by heart. A method that is right drafts them whole; one that is not never does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.train.data import Data
from dflash_cli.train.documents import Document
from dflash_cli.train.evaluate import Measured, inference_copy, measure
from dflash_cli.train.features import FeatureReader
from dflash_cli.train.learner import Learner
from dflash_cli.train.preview import show_sample
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.shape import make_drafter

if TYPE_CHECKING:
    from dflash_cli.model import Model

CHECK_DOCUMENTS = 4
CHECK_TOKENS = 48  # of each answer
CHECK_STEPS = 400
MEASURE_EVERY = 25
FULL = 0.99  # share of drafts accepted that counts as full blocks


def check(
    recipe: Recipe, model: Model, raw: dict[str, Any], data: Data, folder: Path, report: Reporter,
    stopped: Callable[[], bool],
) -> Measured:  # fmt: skip
    """Overfit a few documents and draft them through the decoder. Raises DFlashError where blocks are not full."""
    documents = [_short(document) for document in data.train[:CHECK_DOCUMENTS]]
    recipe = replace(recipe, warmup=0.02, anchors=CHECK_TOKENS)
    drafter = make_drafter(recipe, raw, model.target, folder)
    if not drafter.config.target_context:
        raise UsageError("--check expects full blocks, which no drafter foresees without context; leave it out")
    longest = max(len(document.ids) for document in documents)
    learner = Learner(recipe, drafter, model, longest, CHECK_STEPS, tell=report.tell)
    features = FeatureReader(model.target, drafter.config.target_layer_ids, longest, wants_final=recipe.loss == "kl")
    read = features.read(documents)
    show_sample(documents[0], learner, model)
    with report.stage("check", CHECK_STEPS) as advance:
        for step in range(CHECK_STEPS):
            rows = learner.rows([(step, index, document) for index, document in enumerate(documents)])
            figures, _ = learner.learn(rows, read, step)
            advance(step + 1, f"loss {figures.loss:.3f}")
            if stopped():
                raise KeyboardInterrupt
            if (step + 1) % MEASURE_EVERY == 0:
                measured = _measure(learner, model, documents)
                if measured.all.drafted and measured.all.rate >= FULL:
                    report.tell(f"check passed after {step + 1} steps: {_figures(measured)}")
                    return measured
    raise DFlashError(
        f"check failed: after {CHECK_STEPS} steps on {len(documents)} documents, {_figures(measured)}; expected all "
        "drafts accepted. Try a larger --lr"
    )


def _short(document: Document) -> Document:
    return replace(document, ids=document.ids[: document.start + CHECK_TOKENS])


def _measure(learner: Learner, model: Model, documents: list[Document]) -> Measured:
    dtype = model.target.model.embed_tokens.weight.dtype
    weights = {name: each.detach() for name, each in learner.named.items()}
    longest = max(len(document.ids) - document.start for document in documents)
    measured = measure(model, inference_copy(weights, learner.drafter, dtype), documents, longest, by_heart=True)
    assert measured is not None
    return measured


def _figures(measured: Measured) -> str:
    return f"τ {measured.all.tau:.2f}, {measured.all.rate:.0%} of drafts accepted through the decoder"
