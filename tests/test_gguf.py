from __future__ import annotations

import json
from pathlib import Path

import gguf as gguf_package
import numpy as np
import pytest
import torch
from gguf.quants import quantize
from safetensors.torch import load_file

from backends import gguf as conversion
from backends.config import TargetConfig
from backends.gguf import GGUFError, convert_gguf
from backends.gguf_rope import llama3_factors
from tests.gguf_files import HEAD_DIM, LAYERS, write_gguf

LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def converted(path: Path, folder: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    folder.mkdir()
    convert_gguf(path, folder, lambda done, total: None)
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_converted_weights_are_the_originals(tmp_path: Path, arch: str, tied: bool) -> None:
    originals = write_gguf(tmp_path / "m.gguf", arch, tied=tied)
    config, tensors = converted(tmp_path / "m.gguf", tmp_path / "out")
    assert set(tensors) == set(originals)
    for name, value in originals.items():
        assert tensors[name].dtype == torch.bfloat16
        assert torch.equal(tensors[name].float(), torch.from_numpy(value)), name
    assert config["tie_word_embeddings"] is tied
    assert TargetConfig.from_dict(config).model_type == arch


def test_config_has_the_files_numbers(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "qwen3")
    config, _ = converted(tmp_path / "m.gguf", tmp_path / "out")
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert (config["rms_norm_eps"], config["rope_theta"], config["rope_scaling"]) == (1e-5, 500000.0, None)
    assert (config["head_dim"], config["num_key_value_heads"], config["max_position_embeddings"]) == (8, 2, 64)
    assert (config["bos_token_id"], config["eos_token_id"], config["dtype"]) == (1, 2, "bfloat16")


def test_small_chunks_give_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf")
    converted(tmp_path / "m.gguf", tmp_path / "whole")
    monkeypatch.setattr(conversion, "CHUNK_VALUES", 1)
    steps: list[tuple[int, int]] = []
    (tmp_path / "chunks").mkdir()
    convert_gguf(tmp_path / "m.gguf", tmp_path / "chunks", lambda done, total: steps.append((done, total)))
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "chunks"))
    assert one == other
    assert steps[0][0] == 0
    assert steps[-1][0] == steps[-1][1]
    assert len(steps) > 20 * LAYERS


def test_rounding_is_torchs() -> None:
    values = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    values[:4] = (1 + 2**-8, 1 + 3 * 2**-8, 3.3e38, -0.0)  # two ties, nearly infinite, a signed zero
    bits = conversion._to_bfloat16(values)
    assert np.array_equal(bits, torch.from_numpy(values).bfloat16().view(torch.uint16).numpy())


def test_quantised_tensors_are_dequantised(tmp_path: Path) -> None:
    kind = gguf_package.GGMLQuantizationType.Q8_0
    value = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    writer = gguf_package.GGUFWriter(tmp_path / "q.gguf", "llama")
    writer.add_tensor("x", quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = conversion.GGUFFile.open(tmp_path / "q.gguf")
    with (tmp_path / "q.gguf").open("rb") as file:
        rows = source.read_rows(file, source.tensors["x"], 2, 5)
    assert rows.shape == (3, 64)
    assert np.abs(rows - value[2:5]).max() < 0.03


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_factors_become_rope_scaling(tmp_path: Path, factor: float) -> None:
    scaling = LLAMA31 | {"factor": factor}
    factors = llama3_factors(500000.0, HEAD_DIM, scaling).astype(np.float32)
    write_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors})
    config, tensors = converted(tmp_path / "m.gguf", tmp_path / "out")
    assert config["rope_scaling"] == scaling
    assert not any("rope" in name for name in tensors)


def test_llama3_factors_are_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(head_dim=128, rope_parameters=LLAMA31 | {"rope_theta": 500000.0})
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** -(torch.arange(0, 128, 2).float() / 128)
    assert torch.allclose(plain / frequencies, torch.from_numpy(llama3_factors(5e5, 128, LLAMA31)).float(), rtol=1e-4)


def test_rope_factors_of_another_rule_are_refused(tmp_path: Path) -> None:
    factors = np.linspace(1, 3, HEAD_DIM // 2).astype(np.float32)
    write_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors})
    with pytest.raises(GGUFError, match=r"rope_freqs\.weight.*not Llama 3's"):
        convert_gguf(tmp_path / "m.gguf", tmp_path, lambda done, total: None)


def test_declared_rope_scaling(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    write_gguf(tmp_path / "linear.gguf", metadata=linear)
    config, _ = converted(tmp_path / "linear.gguf", tmp_path / "out")
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    write_gguf(tmp_path / "yarn.gguf", "qwen3", metadata={"qwen3.rope.scaling.type": "yarn"})
    with pytest.raises(GGUFError, match="yarn"):
        convert_gguf(tmp_path / "yarn.gguf", tmp_path, lambda done, total: None)


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("gemma3", {}, "architecture 'gemma3'; supported are llama, qwen3"),
        ("llama", {"extra": {"blk.0.attn_q.bias": np.zeros(32, np.float32)}}, r"blk\.0\.attn_q\.bias"),
        ("qwen3", {"extra": {"rope_freqs.weight": np.ones(4, np.float32)}}, r"rope_freqs\.weight"),
        ("llama", {"leave_out": "blk.1.ffn_up.weight"}, r"lacks 1 tensors \(model\.layers\.1\.mlp\.up_proj\.weight\)"),
        ("llama", {"metadata": {"llama.rope.dimension_count": 0}}, "dimension_count"),
    ],
)
def test_models_that_are_not_supported_are_named(tmp_path: Path, arch: str, options: dict, message: str) -> None:
    write_gguf(tmp_path / "m.gguf", arch, **options)
    with pytest.raises(GGUFError, match=message) as caught:
        convert_gguf(tmp_path / "m.gguf", tmp_path, lambda done, total: None)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    write_gguf(
        tmp_path / "m.gguf", leave_out="output_norm.weight", extra={"output_norm.weight": np.ones(3, np.float32)}
    )
    with pytest.raises(GGUFError, match=r"model\.norm\.weight has the shape \[3\]; expected \[16\]"):
        convert_gguf(tmp_path / "m.gguf", tmp_path, lambda done, total: None)


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    bad = np.full(16, np.nan, np.float32)
    write_gguf(tmp_path / "m.gguf", leave_out="output_norm.weight", extra={"output_norm.weight": bad})
    with pytest.raises(GGUFError, match=r"output_norm\.weight holds values that are not numbers"):
        convert_gguf(tmp_path / "m.gguf", tmp_path, lambda done, total: None)
