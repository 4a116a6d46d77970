"""Which peers take part, made ready on the same checkpoint, prompts, token counts and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from backends import choose_backend
from dflash_cli.bench.subject import PeerUnavailable, Place, Work
from dflash_cli.fetch import fetch
from dflash_cli.memory import kv_bytes

if TYPE_CHECKING:
    from dflash_cli.bench.entrants import Weights
    from dflash_cli.bench.peer_hf import HuggingFaceModel
    from dflash_cli.bench.peer_llama import LlamaModel
    from dflash_cli.bench.peer_reference import ReferenceModel
    from dflash_cli.bench.plan import Plan
    from dflash_cli.bench.room import Room
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
    room: Room,
    *,
    assistant: str | None,
    gguf: str | None,
    is_first: bool,
    tell: Tell,
) -> Iterator[Subject]:
    """The rows of the peers, one prompt at a time each, for every temperature. `is_first`: of several precisions.

    What they load is shared by the rows. `tell` takes remarks. Raises PeerUnavailable for a peer that was asked for and
    cannot run here, or finds no `room`.
    """
    if not plan.peers:
        return
    backend = choose_backend(plan.backends[0], weights.device.partition(":")[0]).name
    if plan.batches != (1,):
        tell("peers are measured with one prompt at a time")
    peers = _Peers(model, weights, max_len, room)
    hf = peers.target() if {"hf", "reference"} & set(plan.peers) else None
    helper = peers.assistant(assistant, tell) if "hf" in plan.peers else None
    drafter = peers.drafter(hf) if "reference" in plan.peers and hf is not None else None
    llama = peers.llama(gguf, plan.seed) if "llama.cpp" in plan.peers and is_first else None
    for temperature in plan.temperatures:
        baseline = Place(backend, weights.dtype, 1, temperature, weights.quantize)
        here = replace(work, params=replace(work.params, temperature=temperature, seed=plan.seed))
        if "hf" in plan.peers and hf is not None:
            from dflash_cli.bench.peer_hf import hugging_face_rows

            yield from hugging_face_rows(hf, baseline, here, helper)
        if drafter is not None:
            from dflash_cli.bench.peer_reference import Reference

            yield Reference(drafter, baseline, here)
        if llama is not None:
            from dflash_cli.bench.peer_llama import LlamaCpp

            yield LlamaCpp(llama, baseline, here)


@dataclass(frozen=True)
class _Peers:
    """What the peers of a model load, each once and where there is room. All raise PeerUnavailable."""

    model: Model
    weights: Weights
    max_len: int
    room: Room

    @property
    def _itemsize(self) -> int:
        return self.weights.target.model.embed_tokens.weight.dtype.itemsize

    def _folder(self, source: str) -> Path:
        return fetch(source, offline=self.model.config.offline, quiet=self.model.config.quiet)

    def target(self) -> HuggingFaceModel:
        """A second copy of the target, for transformers."""
        from dflash_cli.bench.peer_hf import HuggingFaceModel

        folder, config = self._folder(self.model.pair.target), self.weights.target.config
        cache = kv_bytes(config, self.max_len, self._itemsize)
        self.room.take_copy("the target of transformers (--peer hf, reference)", folder, self._itemsize, cache)
        return HuggingFaceModel(folder, self.weights.dtype, self.weights.device)

    def assistant(self, name: str | None, tell: Tell) -> HuggingFaceModel | None:
        """The small model of assisted generation."""
        from dflash_cli.bench.peer_hf import HuggingFaceModel, check_assistant
        from dflash_cli.models import find_pair

        if name is None:
            tell(NO_ASSISTANT)
            return None
        folder = self._folder(find_pair(name, None).target)
        check_assistant(self.model.codec, folder)
        self.room.take_copy(f"--assistant {name}", folder, self._itemsize)
        return HuggingFaceModel(folder, self.weights.dtype, self.weights.device)

    def drafter(self, hf: HuggingFaceModel) -> ReferenceModel:
        """The published loop with its own copy of the drafter."""
        from dflash_cli.bench.peer_reference import ReferenceModel

        if self.model.pair.drafter is None:
            raise PeerUnavailable("--peer reference needs a drafter, and this pair has none; pass one with --draft")
        folder = self._folder(self.model.pair.drafter)
        self.room.take_copy("the drafter of --peer reference", folder, self._itemsize)
        return ReferenceModel(hf, folder, self.weights.dtype)

    def llama(self, gguf: str | None, seed: int) -> LlamaModel:
        """The GGUF file; its cache is in half precision."""
        from dflash_cli.bench.llama_trial import require_survival
        from dflash_cli.bench.peer_llama import LlamaModel, gguf_file, require_llama

        require_llama()
        config = self.model.config
        path = gguf_file(self.model.pair.target, gguf, offline=config.offline, quiet=config.quiet)
        cache = kv_bytes(self.weights.target.config, self.max_len, 2)
        self.room.take_peer("--peer llama.cpp", path.stat().st_size + cache)
        require_survival(path, torch.get_num_threads())
        return LlamaModel(path, self.max_len, self.weights.device, seed)
