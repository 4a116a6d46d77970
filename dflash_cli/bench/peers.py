"""Which peers take part, made ready on the same checkpoint, prompts, token counts and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends import choose_backend
from dflash_cli.bench.subject import PeerUnavailable, Place, Work
from dflash_cli.fetch import fetch

if TYPE_CHECKING:
    from dflash_cli.bench.entrants import Weights
    from dflash_cli.bench.peer_hf import HuggingFaceModel
    from dflash_cli.bench.plan import Plan
    from dflash_cli.bench.subject import Subject
    from dflash_cli.model import Model

Tell = Callable[[str], None]
NO_ASSISTANT = (
    "hf-assisted is left out: assisted generation needs a smaller model of the same family; name one with --assistant"
)


def peer_subjects(
    model: Model,
    weights: Weights,
    plan: Plan,
    work: Work,
    max_len: int,
    *,
    assistant: str | None,
    gguf: str | None,
    is_first: bool,
    tell: Tell,
) -> Iterator[Subject]:
    """The rows of the peers, one prompt at a time each, for every temperature. `is_first`: of several precisions.

    `tell` takes remarks. Raises PeerUnavailable for a peer that was asked for and cannot run here.
    """
    if not plan.peers:
        return
    backend = choose_backend(plan.backends[0], weights.device.partition(":")[0]).name
    if plan.batches != (1,):
        tell("peers are measured with one prompt at a time")
    hf = _hf_model(model, weights) if {"hf", "reference"} & set(plan.peers) else None
    helper = _assistant(model, weights, assistant, tell) if "hf" in plan.peers else None
    for temperature in plan.temperatures:
        baseline = Place(backend, weights.dtype, 1, temperature, weights.quantize)
        here = replace(work, params=replace(work.params, temperature=temperature, seed=plan.seed))
        if "hf" in plan.peers and hf is not None:
            from dflash_cli.bench.peer_hf import hugging_face_rows

            yield from hugging_face_rows(hf, baseline, here, helper)
        if "reference" in plan.peers and hf is not None:
            yield _reference(model, hf, baseline, here)
        if "llama.cpp" in plan.peers and is_first:
            yield _llama(model, gguf, max_len, baseline, here, weights.device)


def _hf_model(model: Model, weights: Weights) -> HuggingFaceModel:
    from dflash_cli.bench.peer_hf import HuggingFaceModel

    return HuggingFaceModel(_folder(model, model.pair.target), weights.dtype, weights.device)


def _folder(model: Model, source: str) -> Path:
    return fetch(source, offline=model.config.offline, quiet=model.config.quiet)


def _assistant(model: Model, weights: Weights, name: str | None, tell: Tell) -> HuggingFaceModel | None:
    from dflash_cli.bench.peer_hf import HuggingFaceModel, check_assistant
    from dflash_cli.models import find_pair

    if name is None:
        tell(NO_ASSISTANT)
        return None
    folder = _folder(model, find_pair(name, None).target)
    check_assistant(model.codec, folder)
    return HuggingFaceModel(folder, weights.dtype, weights.device)


def _reference(model: Model, hf: HuggingFaceModel, baseline: Place, work: Work) -> Subject:
    from dflash_cli.bench.peer_reference import Reference

    if model.pair.drafter is None:
        raise PeerUnavailable("--peer reference needs a drafter, and this pair has none; pass one with --draft")
    return Reference(hf, _folder(model, model.pair.drafter), baseline, work)


def _llama(model: Model, gguf: str | None, max_len: int, baseline: Place, work: Work, device: str) -> Subject:
    from dflash_cli.bench.peer_llama import LlamaCpp, gguf_file, require_llama

    require_llama()
    path = gguf_file(model.pair.target, gguf, offline=model.config.offline, quiet=model.config.quiet)
    return LlamaCpp(path, max_len, baseline, work, device)
