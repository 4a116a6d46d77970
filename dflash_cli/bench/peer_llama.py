"""llama.cpp through llama-cpp-python, on the GGUF file that the target comes from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dflash_cli.bench.peak import PeakMemory
from dflash_cli.bench.sample import Sample
from dflash_cli.bench.subject import Peer, PeerUnavailable, Place, Work
from dflash_cli.paths import cache_dir

NAME = "llama.cpp"
WARM_UP_TOKENS = 8
MOST_SEEDS = 2**32 - 1  # that one stands for a random seed


def gguf_file(target: str, given: str | None, *, offline: bool, quiet: bool) -> Path:
    """The GGUF file to run: the one given, the target itself, or what the embedded target was made of.

    Raises PeerUnavailable where the target is of none of these kinds.
    """
    path = Path(given or target).expanduser()
    if path.suffix.lower() == ".gguf" and path.is_file():
        return path
    if given is not None:
        raise PeerUnavailable(f"--gguf {given} is no GGUF file that exists")
    from dflash_cli.embedded import TARGETS, embedded_gguf

    if target in TARGETS:
        return embedded_gguf(target, cache_dir() / "bench", offline=offline, quiet=quiet)
    raise PeerUnavailable(f"--peer llama.cpp runs a GGUF file, and {target} is none; pass one with --gguf FILE")


def require_llama() -> Any:
    """The module `llama_cpp`. Raises PeerUnavailable with what to install."""
    try:
        import llama_cpp  # type: ignore[import-not-found]
    except (ImportError, OSError, RuntimeError) as err:
        raise PeerUnavailable(f"--peer llama.cpp needs llama-cpp-python: pip install llama-cpp-python ({err})") from err
    return llama_cpp


class LlamaModel:
    """A GGUF file as llama-cpp-python (0.3) loads it, shared by its rows."""

    def __init__(self, path: Path, max_len: int, device: str, seed: int) -> None:
        """Raises PeerUnavailable where it cannot be loaded."""
        threads, on_gpu = torch.get_num_threads(), device.startswith(("cuda", "mps"))
        self.path, self.on_gpu = path, on_gpu
        llama: Any = require_llama()
        try:
            self.llama = llama.Llama(
                model_path=str(path),
                n_ctx=max_len,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=-1 if on_gpu else 0,
                # A build for a GPU would send long prompts there although its weights are not.
                offload_kqv=on_gpu,
                op_offload=on_gpu,
                flash_attn=on_gpu,
                last_n_tokens_size=max_len,  # of which a penalty takes notice
                seed=seed % MOST_SEEDS or 1,  # 0 would be another one each time
                verbose=False,
            )
        except Exception as err:  # it raises what its parts raise, and says little more
            raise PeerUnavailable(f"llama-cpp-python cannot load {path}: {err}") from err


class LlamaCpp(Peer):
    """Its plain decoding as a row; see `subject.Subject`."""

    name = NAME

    def __init__(self, model: LlamaModel, baseline: Place, work: Work) -> None:
        self.model, self.work = model.llama, work
        self.baseline = baseline
        self.place = replace(baseline, backend=NAME, dtype=_precision(model.path), quantize="none")
        # What it takes of a GPU is not seen by torch.
        self._peak = PeakMemory(torch.device("meta" if model.on_gpu else "cpu"))

    def warm_up(self, rows: Sequence[Sequence[int]]) -> None:
        """See Subject."""
        self._generate(rows, WARM_UP_TOKENS)

    def answer(self, rows: Sequence[Sequence[int]]) -> Sample:
        """See Subject."""
        self._peak.reset()
        begun = time.perf_counter()
        ids, first, last = self._generate(rows, self.work.max_new_tokens)
        return Sample(
            ids=(tuple(ids),),
            prompt_tokens=len(rows[0]),
            ttft_ms=(first - begun) * 1e3,
            decode_ms=(last - first) * 1e3,
            decoded=len(ids) - 1,
            peak_bytes=self._peak.bytes(),
            steps=len(ids) - 1 or None,
            lengths=[1] * (len(ids) - 1),
        )

    def _generate(self, rows: Sequence[Sequence[int]], tokens: int) -> tuple[list[int], float, float]:
        """Ids, and when the first and the last were there."""
        params, ids, first = self.work.params, list[int](), 0.0
        self.model.reset()  # every answer pays its prefill; ids go in as they are, with no further BOS
        chosen = self.model.generate(
            list(rows[0]),
            temp=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repeat_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
        )
        for token in chosen:
            ids.append(int(token))
            first = first or time.perf_counter()
            if len(ids) == tokens or token in self.work.stop_ids:
                break
        return ids, first, time.perf_counter()


def _precision(path: Path) -> str:
    """`q4_1`: what most weights of a GGUF file are stored in."""
    from gguf import LlamaFileType

    from backends.gguf import gguf_metadata

    try:
        return LlamaFileType(int(str(gguf_metadata(path)["general.file_type"]))).name.removeprefix("MOSTLY_").lower()
    except (KeyError, ValueError):
        return "gguf"
