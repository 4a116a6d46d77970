"""llama.cpp as a peer, on a stand-in with the interface of llama-cpp-python 0.3: how it is loaded and asked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import pytest
import torch

from dflash_cli.bench.peer_llama import LlamaCpp, LlamaModel, gguf_file
from dflash_cli.bench.subject import PeerUnavailable, Work
from dflash_cli.sampling import SamplingParams
from tests.bench.fakes import PLACE

WORK = Work(24, frozenset(), SamplingParams())
PROMPT = [72, 101, 108, 108, 111, 10, 65]


class FakeLlama:
    """Says 100, 101, ... ; refuses to go on where it was not reset. It takes what version 0.3 does, by name alone."""

    made: list[dict[str, Any]]

    def __init__(
        self, model_path: str, *, n_gpu_layers: int, seed: int, n_ctx: int, n_threads: int, n_threads_batch: int,
        offload_kqv: bool, flash_attn: bool, op_offload: bool, last_n_tokens_size: int, verbose: bool,
    ) -> None:  # fmt: skip
        if not model_path.endswith("a.gguf"):
            raise ValueError(f"Failed to load model from file: {model_path}")
        self.used = False
        FakeLlama.made.append({
            "n_ctx": n_ctx, "threads": (n_threads, n_threads_batch), "seed": seed, "last_n": last_n_tokens_size,
            "gpu": (n_gpu_layers, offload_kqv, op_offload, flash_attn), "verbose": verbose,
        })  # fmt: skip

    def reset(self) -> None:
        self.used = False

    def generate(
        self, tokens: list[int], top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, temp: float = 0.8,
        repeat_penalty: float = 1.0, presence_penalty: float = 0.0,
    ) -> Any:  # fmt: skip
        assert not self.used
        assert (tokens, temp, repeat_penalty, presence_penalty) == (PROMPT, 0.0, 1.0, 0.0)
        self.used = True
        yield from range(100, 200)


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("llama_cpp")
    module.Llama = FakeLlama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    monkeypatch.setattr(FakeLlama, "made", [], raising=False)


@pytest.fixture
def gguf_path(tmp_path: Path) -> Path:
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.usefixtures("llama")
def test_llama_cpp_answers_the_same_ids_with_the_same_threads(gguf_path: Path) -> None:
    row = LlamaCpp(LlamaModel(gguf_path, 300, "cpu", 7), PLACE, Work(10, frozenset({105}), SamplingParams()))
    assert FakeLlama.made == [{
        "n_ctx": 300, "threads": (torch.get_num_threads(),) * 2, "seed": 7, "last_n": 300,
        "gpu": (0, False, False, False), "verbose": False,
    }]  # fmt: skip
    row.warm_up([PROMPT])
    sample = row.answer([PROMPT])
    assert sample.ids == (tuple(range(100, 106)),)
    assert (sample.decoded, sample.steps, set(sample.lengths)) == (5, 5, {1})
    assert (row.place.backend, row.place.dtype, row.baseline) == ("llama.cpp", "q4_1", PLACE)
    assert sample.peak_bytes is not None


@pytest.mark.usefixtures("llama")
def test_llama_cpp_on_a_gpu_runs_there_whole(gguf_path: Path) -> None:
    model = LlamaModel(gguf_path, 300, "cuda:0", 0)
    assert FakeLlama.made[0]["gpu"] == (-1, True, True, True)
    assert FakeLlama.made[0]["seed"] == 1  # 0 is read as a random one
    assert LlamaCpp(model, PLACE, WORK).answer([PROMPT]).peak_bytes is None  # torch does not see it
    for seed in (2**32 - 1, 2**40):
        LlamaModel(gguf_path, 300, "cpu", seed)
        assert 0 < FakeLlama.made[-1]["seed"] < 2**32 - 1


@pytest.mark.usefixtures("llama")
def test_a_file_that_llama_cpp_cannot_load_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailable, match=r"cannot load .*b\.gguf: Failed to load model"):
        LlamaModel(tmp_path / "b.gguf", 300, "cpu", 0)


def test_the_gguf_file_is_the_target_or_the_one_given(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    assert gguf_file(str(path), None, offline=True, quiet=True) == path
    assert gguf_file("some/hub-id", str(path), offline=True, quiet=True) == path
    with pytest.raises(PeerUnavailable, match="some/hub-id is none; pass one with --gguf FILE"):
        gguf_file("some/hub-id", None, offline=True, quiet=True)
    with pytest.raises(PeerUnavailable, match="no GGUF file that exists"):
        gguf_file("some/hub-id", str(tmp_path / "y.gguf"), offline=True, quiet=True)
