"""Peers: the same text on the same checkpoint, figures that add up, and what to install where they are missing."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dflash_cli import load
from dflash_cli.bench.entrants import Weights
from dflash_cli.bench.ours import Ours
from dflash_cli.bench.peer_hf import HuggingFaceModel, check_assistant
from dflash_cli.bench.peer_reference import MODULE, Reference, ReferenceModel, reference_module
from dflash_cli.bench.peers import NO_ASSISTANT, peer_subjects
from dflash_cli.bench.plan import Plan
from dflash_cli.bench.room import Room, checkpoint_values
from dflash_cli.bench.subject import PeerUnavailable, Place, Work
from dflash_cli.model import Model
from dflash_cli.sampling import SamplingParams
from tests.bench.fakes import PLACE
from tests.bench.test_peer_llama import FakeLlama, gguf_path, llama
from tests.tiny import write_pair

__all__ = ["gguf_path", "llama"]
WORK = Work(24, frozenset(), SamplingParams())
PROMPT = [72, 101, 108, 108, 111, 10, 65]
WHEEL = os.environ.get("DFLASH_REFERENCE", "")  # read before the fixture `home` hides it


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"), kind="llama")


@pytest.fixture
def model(pair: tuple[Path, Path]) -> Model:
    return load(pair[0], draft=pair[1], dtype="float32", context=256)


def subjects(
    model: Model, *peers: str, assistant: Path | None = None, gguf: Path | None = None, told: list[str] | None = None,
    temperatures: tuple[float, ...] = (0.0,),
) -> list[Any]:  # fmt: skip
    weights = Weights(model.pair, model.target, model.drafter, model.max_len)
    found = peer_subjects(
        model, weights, Plan(peers=peers, temperatures=temperatures), WORK, 256, Room("cpu"),
        assistant=assistant and str(assistant), gguf=None if gguf is None else str(gguf), is_first=True,
        tell=(told if told is not None else []).append,
    )  # fmt: skip
    return list(found)


def test_hugging_face_says_what_plain_decoding_says(model: Model, pair: tuple[Path, Path]) -> None:
    plain = Ours(model.plain_decoder(), PLACE, WORK).answer([PROMPT])
    rows = subjects(model, "hf", assistant=pair[0])
    assert [each.name for each in rows] == ["hf-generate", "hf-prompt-lookup", "hf-assisted"]
    for row in rows:
        row.warm_up([PROMPT])
        sample = row.answer([PROMPT])
        assert sample.ids == plain.ids, row.name
        assert sum(sample.lengths) == sample.decoded
        assert sample.steps == len(sample.lengths)
        assert (sample.ttft_ms > 0, sample.decode_ms > 0) == (True, True)
        assert row.place == Place("transformers", "float32", 1, 0.0)
        assert row.baseline == PLACE
    generate, _, assisted = (row.answer([PROMPT]) for row in rows)
    assert set(generate.lengths) == {1}
    assert assisted.steps < generate.steps  # its assistant is the target itself


def test_without_an_assistant_the_row_is_left_out_and_that_is_told(model: Model) -> None:
    told: list[str] = []
    assert [each.name for each in subjects(model, "hf", told=told)] == ["hf-generate", "hf-prompt-lookup"]
    assert told == [NO_ASSISTANT]


def test_an_assistant_of_another_family_is_refused(model: Model, tmp_path: Path) -> None:
    other, _ = write_pair(tmp_path)
    tokenizer = other / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|endoftext|>", "<|the_end|>"))
    (other / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    with pytest.raises(PeerUnavailable, match="another vocabulary"):
        check_assistant(model.codec, other)


def test_a_checkpoint_that_transformers_cannot_load_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailable, match="transformers cannot load"):
        HuggingFaceModel(tmp_path, "float32", "cpu")


FAKE_REFERENCE = """
from types import SimpleNamespace
import torch
class DFlashDraftModel(torch.nn.Module):
    block_size = 6
    @classmethod
    def from_pretrained(cls, folder, dtype): return cls()
def dflash_generate(model, target, ids, tokens, stop, temperature, top_p, top_k, block_size, return_stats):
    begun = _cuda_time()
    out = torch.cat((ids, torch.arange(tokens)[None]), 1)
    return SimpleNamespace(output_ids=out, time_to_first_token=(_cuda_time() - begun) / 2,
                           acceptance_lengths=[3] * ((tokens - 1) // 3))
"""


def fake_wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "dflash-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("dflash/model.py", FAKE_REFERENCE)
    monkeypatch.setenv("DFLASH_REFERENCE", str(path))
    monkeypatch.setitem(sys.modules, MODULE, None)  # and no trace of it afterwards


def test_the_reference_is_read_out_of_its_wheel(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wheel(tmp_path, monkeypatch)
    (row,) = subjects(model, "reference")
    sample = row.answer([PROMPT])
    assert (row.name, row.block_size, sample.ids) == ("reference", 6, (tuple(range(24)),))
    assert (sample.lengths, sample.decoded, sample.steps) == ([3] * 7, 23, 7)
    assert sample.decode_ms > 0


def test_what_is_missing_is_told_with_what_to_do(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dflash", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)  # another test may have read it already
    with pytest.raises(PeerUnavailable, match=r"pip download --no-deps dflash==0\.1\.0"):
        reference_module()
    monkeypatch.setenv("DFLASH_REFERENCE", str(tmp_path / "none.whl"))
    with pytest.raises(PeerUnavailable, match="which is no wheel of dflash"):
        reference_module()
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(PeerUnavailable, match="pip install llama-cpp-python"):
        subjects(model, "llama.cpp")


@pytest.mark.reference
def test_the_published_loop_says_what_plain_decoding_says(
    model: Model, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not WHEEL:
        pytest.skip("DFLASH_REFERENCE names no wheel of dflash 0.1.0")
    monkeypatch.setenv("DFLASH_REFERENCE", WHEEL)
    plain = Ours(model.plain_decoder(), PLACE, WORK).answer([PROMPT])
    row = Reference(ReferenceModel(HuggingFaceModel(pair[0], "float32", "cpu"), pair[1], "float32"), PLACE, WORK)
    row.warm_up([PROMPT])
    sample = row.answer([PROMPT])
    assert sample.ids == plain.ids
    assert sum(sample.lengths) == sample.decoded
    assert sample.decode_ms > 0


@pytest.mark.usefixtures("llama")
def test_peers_are_loaded_once_for_all_temperatures(
    model: Model, gguf_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wheel(tmp_path, monkeypatch)
    rows = subjects(model, "reference", "llama.cpp", gguf=gguf_path, temperatures=(0.0, 0.8))
    names = [(each.name, each.baseline.temperature) for each in rows]
    assert names == [(name, warm) for warm in (0.0, 0.8) for name in ("reference", "llama.cpp")]
    assert len(FakeLlama.made) == 1
    assert rows[0].model is rows[2].model


@pytest.mark.usefixtures("llama")
def test_a_peer_for_which_there_is_no_memory_is_refused(
    model: Model, pair: tuple[Path, Path], gguf_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = 4 * sum(each.numel() for each in model.target.parameters())
    assert checkpoint_values(pair[0]) * 4 == own
    monkeypatch.setattr("dflash_cli.bench.room.free_memory", lambda _device: own)  # but no cache besides
    with pytest.raises(
        PeerUnavailable, match=r"the target of transformers \(--peer hf, reference\) takes .* free on cpu"
    ):
        subjects(model, "hf")
    monkeypatch.setattr("dflash_cli.bench.room.free_memory", lambda _device: gguf_path.stat().st_size)
    with pytest.raises(PeerUnavailable, match=r"--peer llama\.cpp takes .* of its own beside what is loaded"):
        subjects(model, "llama.cpp", gguf=gguf_path)
    assert FakeLlama.made == []
