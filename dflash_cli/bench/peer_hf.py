"""Hugging Face `generate`, its prompt lookup and its assisted generation, on the same target checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dflash_cli.bench.peak import PeakMemory
from dflash_cli.bench.sample import Sample
from dflash_cli.bench.subject import Peer, PeerUnavailable, Place, Work

if TYPE_CHECKING:
    from dflash_cli.text import TextCodec

BACKEND = "transformers"
LOOKUP_TOKENS = 10  # drafts that prompt lookup proposes: what its documentation uses
WARM_UP_TOKENS = 8


class HuggingFaceModel:
    """A target as `transformers` loads it, shared by its rows."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        """Raises PeerUnavailable where transformers cannot load it."""
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        quiet: Any = logging
        quiet.set_verbosity_error()  # what it says about unused settings is not about this benchmark
        quiet.disable_progress_bar()
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(str(folder), dtype=getattr(torch, dtype))
        except (OSError, ValueError) as err:
            raise PeerUnavailable(f"transformers cannot load {folder}: {err}") from err
        self.model = model.to(device).eval()
        self.device = torch.device(device)


class _Marks:
    """Called by `generate` after each of its passes: how many tokens were there, and when."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.marks = device, list[tuple[float, int]]()

    def __call__(self, ids: torch.Tensor, _scores: object, **_: object) -> torch.Tensor:
        if self.device.type == "cuda" and not self.marks:
            torch.cuda.synchronize(self.device)
        self.marks.append((time.perf_counter(), ids.shape[1]))
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)


class HuggingFace(Peer):
    """One way of `generate` as a row; see `subject.Subject`. `extra`: its further arguments."""

    def __init__(self, name: str, model: HuggingFaceModel, baseline: Place, work: Work, **extra: Any) -> None:
        self.name, self.model, self.work, self.extra = name, model, work, extra
        self.baseline, self.place = baseline, replace(baseline, backend=BACKEND, quantize="none")
        self._peak = PeakMemory(model.device)

    def warm_up(self, rows: Sequence[Sequence[int]]) -> None:
        """See Subject."""
        self._generate(rows, WARM_UP_TOKENS, _Marks(self.model.device))

    def answer(self, rows: Sequence[Sequence[int]]) -> Sample:
        """See Subject. Its passes, and the tokens each gave, are told apart by its stopping rule."""
        self._peak.reset()
        marks = _Marks(self.model.device)
        begun = time.perf_counter()
        ids = self._generate(rows, self.work.max_new_tokens, marks)
        ended = time.perf_counter()
        (first, at_first), *_ = marks.marks
        lengths = [after - before for (_, before), (_, after) in pairwise(marks.marks)]
        prompt = len(rows[0])
        return Sample(
            ids=(tuple(ids[prompt:]),),
            prompt_tokens=prompt,
            ttft_ms=(first - begun) * 1e3,
            decode_ms=(ended - first) * 1e3,
            decoded=len(ids) - at_first,
            peak_bytes=self._peak.bytes(),
            steps=len(lengths) or None,
            lengths=lengths,
        )

    def _generate(self, rows: Sequence[Sequence[int]], tokens: int, marks: _Marks) -> list[int]:
        from transformers import GenerationConfig, StoppingCriteriaList

        prompt = torch.tensor([list(rows[0])], device=self.model.device)
        params = self.work.params
        torch.manual_seed(params.seed or 0)
        sampling: dict[str, Any] = {"do_sample": not params.greedy}
        if not params.greedy:
            sampling |= {"temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p}
            sampling |= {"min_p": params.min_p} if params.min_p else {}
        stops = sorted(self.work.stop_ids)
        make_config: Any = GenerationConfig
        config = make_config(
            max_new_tokens=tokens,
            eos_token_id=stops or None,
            pad_token_id=stops[0] if stops else 0,
            repetition_penalty=params.repetition_penalty,
            **sampling,
        )
        with torch.inference_mode():
            out = self.model.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=config,
                stopping_criteria=StoppingCriteriaList([marks]),
                **self.extra,
            )
        ids: list[int] = out[0].tolist()
        return ids


def hugging_face_rows(
    model: HuggingFaceModel, baseline: Place, work: Work, assistant: HuggingFaceModel | None
) -> Iterator[HuggingFace]:
    """Generate, prompt lookup, and with an assistant assisted generation."""
    yield HuggingFace("hf-generate", model, baseline, work)
    yield HuggingFace("hf-prompt-lookup", model, baseline, work, prompt_lookup_num_tokens=LOOKUP_TOKENS)
    if assistant is not None:
        yield HuggingFace("hf-assisted", model, baseline, work, assistant_model=assistant.model)


def check_assistant(codec: TextCodec, folder: Path) -> None:
    """Raises PeerUnavailable where an assistant has another vocabulary than the target."""
    from dflash_cli.text import TextCodec

    if TextCodec.from_folder(folder).fingerprint != codec.fingerprint:
        raise PeerUnavailable(f"the assistant {folder} has another vocabulary than the target; pass one of its family")
