"""Quantised weights: near the ones they are made of, computed alike for any number of rows, and lossless drafting."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends import create_backend
from backends import quantize as quantising
from backends.linears import projections
from backends.quantize import GROUP, WIDE_LEVELS, Int4Weight, Int8Weight, in_digits, num_bytes, quantise, runs_packed
from backends.self_test import self_test
from backends.target import Target
from backends.weights import load_target
from dflash_cli.memory import head_bytes, target_bytes
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from tests.compilers import artefacts, needs_compiler
from tests.test_adaptive import Scripted
from tests.tiny import MASK_ID, VOCAB, make_drafter, make_engine, make_target, write_pair

__all__ = ["artefacts"]
CPU = torch.device("cpu")
METHODS = ("int8", "int4")
KINDS = {"int8": Int8Weight, "int4": Int4Weight}
DTYPES = (torch.float32, torch.bfloat16)
IDS = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(2))
needs_digits = pytest.mark.skipif(not quantising._has_exact_sums(), reason="this CPU has no products of int8")


def quantised(method: str, dtype: torch.dtype = torch.float32, kind: str = "qwen3") -> Target:
    target = make_target(kind, attention_bias=True).to(dtype)
    quantise(target, method, dtype, CPU)
    return target


def matrix(rows: int = 100, columns: int = 96) -> Tensor:
    """Rows of very different size, one of zeros."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(rows, columns, generator=generator) * torch.logspace(-3, 2, rows).unsqueeze(1)
    weight[3] = 0
    return weight


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [1, 9, 65, 200])
def test_large_sums_fit_float16(method: str, rows: int) -> None:
    """Codes up to 127 times an input of 30 would not, were they scaled only afterwards."""
    generator = torch.Generator().manual_seed(5)
    weight, x = torch.rand(64, 96, generator=generator) * 0.05, torch.full((rows, 96), 30.0, dtype=torch.float16)
    y = KINDS[method](weight, torch.float16, CPU)(x)
    torch.testing.assert_close(y.float(), x.float() @ weight.T, rtol=0.03, atol=0.1)
    assert y.max() > 80


@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_is_within_half_a_step_of_each_weight(dtype: torch.dtype) -> None:
    weight = matrix()
    kept = Int8Weight(weight, dtype, CPU)
    step = weight.abs().amax(1, keepdim=True) / 127
    exact = kept.rows.float() * kept.scale.float().unsqueeze(1)
    # A scale that is rounded down leaves the largest weights out of reach by its rounding.
    assert bool(((exact - weight).abs() <= 0.5 * step + torch.finfo(dtype).eps * 127 * step).all())
    assert bool((kept.dense()[3] == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_int4_is_within_half_a_step_of_each_weight(dtype: torch.dtype) -> None:
    weight = matrix()
    groups = weight.unflatten(1, (-1, GROUP))
    step = (groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)) / 15
    largest = groups.abs().amax(-1, keepdim=True)
    error = Int4Weight(weight, dtype, CPU).dense().float().unflatten(1, (-1, GROUP)) - groups
    assert bool((error.abs() <= 0.51 * step + 8 * torch.finfo(dtype).eps * largest).all())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block", [None, 0])
def test_chunks_and_layouts_give_the_same_matrix(
    method: str, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, where the kernels' layout (None) and the plain one (0) hold the same codes."""
    whole = KINDS[method](matrix(), torch.float32, CPU).dense()
    monkeypatch.setattr(quantising, "CHUNK", 64)
    if block is not None:
        monkeypatch.setattr(quantising, "_int4_block", lambda _dtype: block)
    assert torch.equal(KINDS[method](matrix(), torch.float32, CPU).dense(), whole)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@torch.no_grad()
def test_rows_do_not_depend_on_how_many_there_are(method: str, dtype: torch.dtype) -> None:
    """Kernels change with the number of rows; what they compute does not, beyond rounding of the result."""
    kept = KINDS[method](matrix(128, 64), dtype, CPU)
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(3)).to(dtype)
    expected = x.double() @ kept.dense().double().T
    close = {"rtol": 0.0, "atol": 4 * torch.finfo(dtype).eps * float(expected.abs().max())}
    for rows in (1, 2, 8, 9, 16, 64, 65, 129, 200):
        torch.testing.assert_close(kept(x[None, :rows])[0].double(), expected[:rows], **close)


@needs_digits
@settings(max_examples=30)
@given(rows=st.integers(1, 20), seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 1.0, 3e4]))
def test_sums_of_digits_are_exact_for_any_rows(rows: int, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(rows, 96, generator=generator) * scale).bfloat16()
    x[:, 5] *= 300  # a few channels of real models are that much larger
    kept = Int8Weight(matrix(), torch.bfloat16, CPU)
    y = in_digits(x, kept.rows, kept.scale)
    assert torch.equal(y[:1], in_digits(x[:1], kept.rows, kept.scale))
    weight = kept.rows.double() * kept.scale.double().unsqueeze(1)
    expected, unit = x.double() @ weight.T, x.double().abs().amax(1, keepdim=True) / WIDE_LEVELS
    bound = 2**-8 * expected.abs() + 0.51 * unit * weight.abs().sum(1)  # half a unit an input, and bfloat16's rounding
    assert bool(((y.double() - expected).abs() <= bound).all())


def test_rows_of_zeros_and_what_is_no_number() -> None:
    kept = Int8Weight(matrix(), torch.bfloat16, CPU)
    x = torch.zeros(2, 96, dtype=torch.bfloat16)
    x[1, 0] = torch.nan
    y = in_digits(x, kept.rows, kept.scale)
    assert bool((y[0] == 0).all())
    assert bool(y[1, 0].isnan())


@pytest.mark.parametrize(("method", "tolerance"), [("int8", 0.03), ("int4", 0.35)])
@torch.no_grad()
def test_logits_are_close_to_those_of_the_whole_weights(method: str, tolerance: float) -> None:
    """Random weights have nothing to spare: each matrix adds its own error, 0.8 % in int8 and 8 % in int4."""
    logits = [make_engine(each).prefill(IDS, 0) for each in (make_target(attention_bias=True), quantised(method))]
    difference = float((logits[0] - logits[1]).norm() / logits[0].norm())
    assert 0 < difference < tolerance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_drafting_keeps_the_text_of_the_same_quantised_target(method: str, kind: str) -> None:
    target = quantised(method, kind=kind)
    texts = []
    for drafter in (None, make_drafter()):
        events = Decoder(make_engine(target, drafter)).generate(Request(IDS[:9].tolist(), max_new_tokens=80))
        texts.append([i for event in events for i in getattr(event, "new_ids", ())])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 80


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["qwen3", "llama"])  # the second one's embedding is its head
def test_loading_keeps_only_the_small_weights_and_the_embedding(method: str, kind: str, tmp_path: Path) -> None:
    folder = write_pair(tmp_path, kind=kind)[0]
    target, plain = load_target(folder, torch.float32, CPU, method), load_target(folder, torch.float32, CPU)
    assert torch.equal(target.model.embed_tokens.weight, plain.model.embed_tokens.weight)
    assert all(p.numel() == 0 for n, p in target.named_parameters() if "proj" in n or "lm_head" in n)
    held = [group.quantised for group in projections(target)]
    small = sum(t.nbytes for each in held for t in vars(each).values() if isinstance(t, Tensor))
    # The kernel wants whole blocks of rows, which tiny matrices are not.
    filled = 0 if method == "int8" else sum(e.packed.nbytes // 8 for e in held if isinstance(e, Int4Weight))
    whole = sum(p.nbytes for p in target.parameters()) + small
    expected = target_bytes(target.config, 4, method)
    assert expected <= whole <= expected + 8 * filled
    assert head_bytes(target.config, 4, method) == VOCAB * (32 + 4)
    assert target.quantize == method
    close = {"atol": 0.02, "rtol": 0.0}
    torch.testing.assert_close(target.head_weight(), plain.head_weight(), **close)
    assert runs_packed(target) == all(each is not None and each.has_kernel for each in held)


def test_int4_takes_int8_where_groups_do_not_fit() -> None:
    target = quantised("int4")  # 48 wide inside its feed-forward layers
    layer = target.model.layers[0]
    assert isinstance(layer.mlp.down.quantised, Int8Weight)  # type: ignore[union-attr]
    assert isinstance(layer.mlp.gate_up.quantised, Int4Weight)  # type: ignore[union-attr]
    assert isinstance(target.head.quantised, Int8Weight)
    assert num_bytes("int4", 10, 48, 2) == num_bytes("int8", 10, 48, 2) == 500
    assert num_bytes("int4", 10, 64, 2) == 320 + 80


@needs_compiler
@pytest.mark.parametrize(("backend", "method"), [("compile", "int8"), ("flex", "int4")])
def test_compiled_code_equals_eager(backend: str, method: str, artefacts: Path) -> None:
    target = make_target(num_hidden_layers=1).bfloat16()
    quantise(target, method, torch.bfloat16, CPU)
    few = {"num_target_layers": 1, "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [0]}}
    few |= {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    drafter = make_drafter(**few).bfloat16()
    fast = create_backend(backend, target, drafter, max_len=64, artefacts=artefacts)
    fast.warm_up()
    self_test(fast, make_engine(target, drafter, max_len=64))  # type: ignore[arg-type]
    list(Decoder(fast, depth=Scripted(6, 1, 3, 2, 1, 1, 5, 4)).generate(Request(IDS[:17].tolist())))  # type: ignore[arg-type]
    assert fast.recompiles == 0
    assert fast.quantize == method
