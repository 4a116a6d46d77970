"""The loop of the published `dflash` package, with the same two checkpoints."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from dflash_cli.bench.peak import PeakMemory
from dflash_cli.bench.peer_hf import BACKEND, WARM_UP_TOKENS, HuggingFaceModel
from dflash_cli.bench.sample import Sample
from dflash_cli.bench.subject import Peer, PeerUnavailable, Place, Work

VARIABLE = "DFLASH_REFERENCE"
MODULE = "dflash_reference_model"
HOW = (
    "--peer reference needs the published dflash package: run `pip download --no-deps dflash==0.1.0` and set "
    f"{VARIABLE} to the path of the wheel (installed, it would replace the command `dflash`)"
)


def reference_module() -> ModuleType:
    """Its `dflash/model.py`, out of the wheel that DFLASH_REFERENCE names, or installed. Raises PeerUnavailable."""
    place = os.environ.get(VARIABLE)
    if place:
        return sys.modules.get(MODULE) or _out_of(Path(place).expanduser())
    try:
        module = importlib.import_module("dflash.model")
    except ImportError:
        raise PeerUnavailable(HOW) from None
    if not hasattr(module, "dflash_generate"):
        raise PeerUnavailable(f"the installed package dflash is another one than was expected: {HOW}")
    return module


def _out_of(wheel: Path) -> ModuleType:
    """The module from a wheel that is not installed; only this one file of it is read."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            code = archive.read("dflash/model.py")
    except (OSError, zipfile.BadZipFile, KeyError) as err:
        raise PeerUnavailable(f"{VARIABLE} is {str(wheel)!r}, which is no wheel of dflash ({err}). {HOW}") from err
    module = ModuleType(MODULE)
    module.__file__ = f"{wheel}/dflash/model.py"
    sys.modules[MODULE] = module  # its classes look their own module up
    try:
        exec(compile(code, module.__file__, "exec"), module.__dict__)  # noqa: S102 the person named this wheel
    except BaseException:
        del sys.modules[MODULE]
        raise
    return module


class ReferenceModel:
    """The package's module, the target it decodes with, and its drafter, shared by its rows."""

    def __init__(self, target: HuggingFaceModel, drafter_folder: Path, dtype: str) -> None:
        """Raises PeerUnavailable."""
        self.module, self.target = reference_module(), target
        drafter: Any = self.module.DFlashDraftModel.from_pretrained(str(drafter_folder), dtype=getattr(torch, dtype))
        self.drafter = drafter.to(target.device).eval()
        self.module._cuda_time = self.now  # type: ignore[attr-defined]

    def now(self) -> float:
        """Its clock, for every device: its own one is CUDA's."""
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return time.perf_counter()


class Reference(Peer):
    """Its `dflash_generate` as a row; see `subject.Subject`. `width`: its block size, None for the trained one."""

    name = "reference"

    def __init__(self, model: ReferenceModel, baseline: Place, work: Work, width: int | None = None) -> None:
        self.model, self.work = model, work
        self.block_size = width or model.drafter.block_size
        self.baseline, self.place = baseline, replace(baseline, backend=BACKEND, quantize="none")
        self._peak = PeakMemory(model.target.device)

    def warm_up(self, rows: Sequence[Sequence[int]]) -> None:
        """See Subject."""
        self._generate(rows, WARM_UP_TOKENS)

    def answer(self, rows: Sequence[Sequence[int]]) -> Sample:
        """See Subject."""
        self._peak.reset()
        begun = self.model.now()
        result = self._generate(rows, self.work.max_new_tokens)
        took = (self.model.now() - begun) * 1e3
        prompt, ttft_ms = len(rows[0]), float(result.time_to_first_token) * 1e3
        ids = result.output_ids[0, prompt:].tolist()
        lengths = [int(each) for each in result.acceptance_lengths]
        return Sample(
            ids=(tuple(ids),),
            prompt_tokens=prompt,
            ttft_ms=ttft_ms,
            decode_ms=took - ttft_ms,
            decoded=len(ids) - 1,
            peak_bytes=self._peak.bytes(),
            steps=len(lengths) or None,
            drafted_steps=len(lengths),
            lengths=lengths,
        )

    def _generate(self, rows: Sequence[Sequence[int]], tokens: int) -> Any:
        params = self.work.params
        torch.manual_seed(params.seed or 0)
        prompt = torch.tensor([list(rows[0])], device=self.model.target.device)
        with warnings.catch_warnings(action="ignore"):  # of transformers, about names that it calls old
            return self.model.module.dflash_generate(
                self.model.drafter,
                self.model.target.model,
                prompt,
                tokens,
                sorted(self.work.stop_ids) or None,
                temperature=params.temperature,
                top_p=params.top_p,
                top_k=params.top_k,
                block_size=self.block_size,
                return_stats=True,
            )
