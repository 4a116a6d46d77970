"""Loading is strict: whatever a checkpoint lacks, has too much of, or has damaged is named."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.config import CheckpointError, TargetConfig
from backends.weights import INDEX, load_drafter, load_target
from tests.tiny import make_engine, target_dict, write_pair

CPU = torch.device("cpu")
IDS = torch.tensor([1, 5, 9])


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return write_pair(tmp_path)


def change(folder: Path, edit: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def first_logits(folder: Path, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return make_engine(load_target(folder, dtype, CPU)).prefill(IDS, 0)


@pytest.mark.parametrize("which", [0, 1])
def test_missing_tensors_are_named(folders: tuple[Path, Path], which: int) -> None:
    change(folders[which], lambda t: [t.pop("norm.weight", None), t.pop("model.norm.weight", None)])
    with pytest.raises(CheckpointError, match=r"missing: (model\.)?norm\.weight"):
        (load_target, load_drafter)[which](folders[which], torch.float32, CPU)


@pytest.mark.parametrize("which", [0, 1])
def test_tensors_left_over_are_named(folders: tuple[Path, Path], which: int) -> None:
    change(folders[which], lambda t: t.update({f"extra.{i}": torch.zeros(1) for i in range(5)}))
    with pytest.raises(CheckpointError, match=r"left over: extra.0, extra.1, extra.2 and 2 more"):
        (load_target, load_drafter)[which](folders[which], torch.float32, CPU)


def test_a_wrong_shape_is_named(folders: tuple[Path, Path]) -> None:
    change(folders[1], lambda t: t.update({"fc.weight": torch.zeros(32, 96)}))
    with pytest.raises(CheckpointError, match=r"fc.weight has shape \[32, 96\]; config.json asks for \[32, 64\]"):
        load_drafter(folders[1], torch.float32, CPU)


def test_buffers_of_old_checkpoints_are_no_weights(folders: tuple[Path, Path]) -> None:
    expected = first_logits(folders[0])
    change(folders[0], lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}))
    torch.testing.assert_close(first_logits(folders[0]), expected)


def test_a_tied_head_may_be_stored_or_not(tmp_path: Path) -> None:
    target, _ = write_pair(tmp_path, kind="llama")
    expected = first_logits(target)
    change(target, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    torch.testing.assert_close(first_logits(target), expected)
    change(target, lambda t: t["lm_head.weight"].add_(1))
    with pytest.raises(CheckpointError, match="a head that differs from the embedding"):
        first_logits(target)


def test_shards_load_like_one_file(folders: tuple[Path, Path]) -> None:
    expected = first_logits(folders[0])
    tensors = load_file(folders[0] / "model.safetensors")
    (folders[0] / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folders[0] / shard)
        weight_map |= dict.fromkeys(part, shard)
    (folders[0] / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    torch.testing.assert_close(first_logits(folders[0]), expected)
    (folders[0] / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002.safetensors cannot be read"):
        first_logits(folders[0])


@pytest.mark.parametrize("damage", [b"", b"garbage", None], ids=["empty", "garbage", "truncated"])
def test_damaged_files_are_told(folders: tuple[Path, Path], damage: bytes | None) -> None:
    file = folders[0] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    with pytest.raises(CheckpointError, match="damaged or partial: fetch it again"):
        load_target(folders[0], torch.float32, CPU)


@pytest.mark.parametrize(
    ("text", "words"), [("{", "not valid JSON"), ("[]", "a JSON list; expected an object"), ("{}", "model_type None")]
)
def test_a_damaged_config_is_told(folders: tuple[Path, Path], text: str, words: str) -> None:
    (folders[0] / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=words):
        load_target(folders[0], torch.float32, CPU)


def test_pickles_are_never_opened(folders: tuple[Path, Path]) -> None:
    (folders[0] / "model.safetensors").unlink()

    class Bomb:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("a pickle was opened",))

    (folders[0] / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin is a pickle file, which is never loaded"):
        load_target(folders[0], torch.float32, CPU)


def test_an_index_cannot_point_outside(folders: tuple[Path, Path]) -> None:
    (folders[0] / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": "../drafter/model.safetensors"}}))
    with pytest.raises(CheckpointError, match="points outside its folder"):
        load_target(folders[0], torch.float32, CPU)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mlp_bias": True}, "mlp_bias to True"),
        ({"use_sliding_window": True}, "use_sliding_window to True"),
        ({"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor to 0.5; only 1.0"),
        ({"logits_scaling": 8.0}, "logits_scaling to 8.0"),
        ({"quantization_config": {"quant_method": "fp8"}}, "is quantised"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window layers"),
        ({"num_key_value_heads": 3}, "4 query heads over 3 kv heads"),
        ({"hidden_size": None}, "no 'hidden_size'"),
    ],
)
def test_what_is_not_computed_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        TargetConfig.from_dict(target_dict() | change)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_weights_of_the_right_dtype_are_the_mapped_file(folders: tuple[Path, Path]) -> None:
    """No second copy in memory: what is not fused lies in the mapping of the file itself."""
    target = load_target(folders[0], torch.float32, CPU)
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("/target/model.safetensors"):
            ranges.append([int(each, 16) for each in line.split()[0].split("-")])
    assert ranges
    kept = [p.data_ptr() for n, p in target.named_parameters() if "norm" in n or "embed" in n or "lm_head" in n]
    assert all(any(low <= place < high for low, high in ranges) for place in kept)


def test_bfloat16_is_close_to_float32(folders: tuple[Path, Path]) -> None:
    exact = first_logits(folders[0])
    rounded = first_logits(folders[0], torch.bfloat16).float()
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.99
