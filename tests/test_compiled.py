"""The compiled backend: equal to eager, compiled once for all lengths and turns, interruptible, refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import FailOnRecompileLimitHit, InternalTorchDynamoError
from torch._inductor.exc import CppCompileError

from backends import create_backend
from backends.attention import Rule, Sdpa
from backends.base import BackendUnavailable
from backends.compiled import CompiledEngine, doubled, group_size, verify_widths
from backends.compiler import num_graphs
from backends.drafter import Drafter
from backends.engine import Engine
from backends.linears import can_pack, fuse_for_inference
from backends.target import Target
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from tests.compilers import artefacts, needs_compiler
from tests.test_adaptive import Scripted
from tests.tiny import SLIDING, VOCAB, make_drafter, make_engine, make_target

__all__ = ["artefacts"]
MAX_LEN = 1100
IDS = torch.randint(0, VOCAB, (MAX_LEN,), generator=torch.Generator().manual_seed(1))
FEW_LAYERS = {"num_target_layers": 2, "dflash_config": {"mask_token_id": 271, "target_layer_ids": [0, 1]}}


def make_pair(dtype: torch.dtype = torch.float32) -> tuple[Target, Drafter]:
    """Few layers, a sliding causal one and a full one in the drafter, grouped heads."""
    target = make_target(seed=3, num_hidden_layers=2).to(dtype)
    return target, make_drafter(seed=4, **FEW_LAYERS, **SLIDING).to(dtype)


PAIR = make_pair()


def compiled(target: Target, drafter: Drafter | None, artefacts: Path, **sizes: int) -> CompiledEngine:
    backend = create_backend("compile", target, drafter, artefacts=artefacts, **sizes)
    assert isinstance(backend, CompiledEngine)
    return backend


@pytest.fixture(scope="module")
def warm(artefacts: Path) -> CompiledEngine:
    """A compiled engine after its warm-up, with something in its cache from before."""
    engine = compiled(*PAIR, artefacts, max_len=MAX_LEN)
    engine.prefill(IDS[:400], 0)
    engine.warm_up()
    return engine


def compare(fast: Engine, eager: Engine, starts: list[int], tolerance: float) -> None:
    anchors = IDS[torch.tensor(starts)]
    blocks = torch.stack([IDS[at : at + fast.block_size] for at in starts])
    close = {"atol": tolerance, "rtol": tolerance}
    if fast.drafter is not None:
        torch.testing.assert_close(fast.draft(anchors, starts), eager.draft(anchors, starts), **close)
    torch.testing.assert_close(fast.verify(blocks, starts), eager.verify(blocks, starts), **close)


@needs_compiler
def test_context_of_plain_steps_waits_here_too(warm: CompiledEngine) -> None:
    """One row at a time it would cost more than the rest of a step with small weights."""
    eager = make_engine(*PAIR, max_len=MAX_LEN)
    for engine in (warm, eager):
        engine.write_waiting_context()
        engine.prefill(IDS[:50], 0)
        for at in range(50, 55):
            engine.verify(IDS[None, at : at + 1], [at])
    assert [place for place, *_ in warm._waiting] == [50, 51, 52, 53, 54]
    compare(warm, eager, [55], 1e-4)
    assert not warm._waiting


@needs_compiler
def test_warming_up_keeps_the_cache_and_blocks_equal_eager(warm: CompiledEngine) -> None:
    eager = make_engine(*PAIR, max_len=MAX_LEN)
    eager.prefill(IDS[:400], 0)
    for at in (400, 406, 248, 250, 251, 3):  # the last rows of a length, and the first of the next
        compare(warm, eager, [at], 1e-4)
    narrow = IDS[None, 9:12]
    torch.testing.assert_close(warm.verify(narrow, [9]), eager.verify(narrow, [9]), atol=1e-4, rtol=1e-4)
    compare(warm, eager, [12], 1e-4)
    torch.testing.assert_close(
        warm.verify(narrow[:, :1], [18]), eager.verify(narrow[:, :1], [18]), atol=1e-4, rtol=1e-4
    )
    for engine in (warm, eager):
        engine.prefill(IDS[: MAX_LEN - 1], 0)
    compare(warm, eager, [MAX_LEN - 6], 1e-4)
    assert warm.verify(IDS[None, :6], [MAX_LEN - 1]).shape == (1, 6, VOCAB)  # the last place of the context


@needs_compiler
@pytest.mark.parametrize("widths", [(6,), (6, 1, 3, 2, 5, 4, *[1] * 40)], ids=["one width", "as auto chooses"])
def test_two_thousand_tokens_in_several_turns_compile_nothing(warm: CompiledEngine, widths: tuple[int, ...]) -> None:
    decoder, plain = Decoder(warm, depth=Scripted(*widths)), Decoder(make_engine(PAIR[0], max_len=MAX_LEN))
    before, num_tokens, prompt = num_graphs(), 0, IDS[:7].tolist()
    for turn, length in enumerate((900, 150, 950)):
        new_ids = [i for event in decoder.generate(Request(prompt, max_new_tokens=length)) for i in _new(event)]
        if turn == 1:
            again = plain.generate(Request(prompt, max_new_tokens=length))
            assert new_ids == [i for event in again for i in _new(event)]
        num_tokens += len(new_ids)
        prompt = [*prompt, *new_ids, 5, 6, 7] if turn == 0 else IDS[40:53].tolist()
    assert num_tokens == 2000
    assert warm.recompiles == 0
    assert warm.trusts_guards
    assert num_graphs() == before


@needs_compiler
def test_another_process_compiles_nothing_anew(warm: CompiledEngine, artefacts: Path) -> None:
    """What makes a second start short: all that the warm-up needs is found in the folder."""
    code = """
import pathlib, sys
from torch._dynamo.utils import counters
from tests.test_compiled import MAX_LEN, PAIR, compiled
compiled(*PAIR, pathlib.Path(sys.argv[1]), max_len=MAX_LEN).warm_up()
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""
    assert warm.is_warm
    before = set(artefacts.rglob("*.so"))
    command = [sys.executable, "-c", code, str(artefacts)]
    root = Path(__file__).parents[1]
    hits, misses = subprocess.run(command, check=True, cwd=root, capture_output=True, text=True).stdout.split()
    assert (int(hits) > 0, int(misses)) == (True, 0)
    assert set(artefacts.rglob("*.so")) == before


def _new(event: object) -> list[int]:
    return list(getattr(event, "new_ids", ()))


@needs_compiler
def test_a_warm_up_tells_its_progress_and_can_be_stopped(warm: CompiledEngine, artefacts: Path) -> None:
    engine = compiled(*PAIR, artefacts, max_len=MAX_LEN)
    told: list[tuple[int, int]] = []

    def stop_at_third(done: int, total: int) -> None:
        told.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.warm_up(stop_at_third)
    total = len(engine.shapes())
    assert told == [(done, total) for done in range(3)]
    told.clear()
    engine.warm_up(lambda done, total: told.append((done, total)))
    assert told == [(done, total) for done in range(total + 1)]
    assert any(artefacts.rglob("*.so"))  # compiled code lies where it was asked for


@needs_compiler
@pytest.mark.skipif(not can_pack(torch.zeros(1, dtype=torch.bfloat16)), reason="no packed bf16 kernels on this CPU")
def test_packed_weights_and_rows_of_a_batch_are_compiled_too(artefacts: Path) -> None:
    target = make_pair(torch.bfloat16)[0]
    fuse_for_inference(target)
    fast = compiled(target, None, artefacts, max_len=300, batch_size=2)
    eager = make_engine(target, max_len=300, batch_size=2)
    for engine in (fast, eager):
        engine.prefill(IDS[:270], 0, 0)
        engine.prefill(IDS[:20], 0, 1)
    fast.is_warm = True  # it is not: so what is compiled now counts, and torch's guards are no longer trusted
    compare(fast, eager, [270, 20], 0.3)  # logits up to 5
    assert (fast.recompiles, fast.trusts_guards) == (1, False)
    compare(fast, eager, [20, 21], 0.3)
    assert fast.recompiles == 1


@needs_compiler
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InternalTorchDynamoError("no space left\nmore lines"), "no space left"),
        (FailOnRecompileLimitHit("recompile_limit reached"), "recompile_limit reached"),
        (CppCompileError(["g++"], "cannot find -lgomp"), "C\\+\\+ compile error"),
        (RuntimeError("\nCUDA error: operation not permitted when stream is capturing\n"), "CUDA error: operation not"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_what_the_compiler_says_is_told_in_one_line(
    error: Exception, told: str, artefacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        BackendUnavailable, match=rf"compile backend cannot run here: compiling failed \({told}"
    ) as told_:
        _warm_up_that_raises(error, artefacts, monkeypatch)
    assert "\n" not in str(told_.value)


@needs_compiler
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("of 80 GB"), KeyboardInterrupt()], ids=repr)
def test_what_is_no_fault_of_the_compiler_is_told_as_it_is(
    error: BaseException, artefacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(error)) as raised:
        _warm_up_that_raises(error, artefacts, monkeypatch)
    assert raised.value is error


def _warm_up_that_raises(error: BaseException, artefacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = compiled(make_target(num_hidden_layers=1), None, artefacts, max_len=20)

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(engine, "layers", broken)
    engine.warm_up()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BackendUnavailable, match=r"C\+\+ compiler, and no-such-compiler is not there"):
        create_backend("compile", PAIR[0], None, max_len=10)
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setattr("sysconfig.get_path", lambda _name: "/nowhere")
    with pytest.raises(BackendUnavailable, match="Python's headers"):
        create_backend("compile", PAIR[0], None, max_len=10)


def test_lengths_and_groups() -> None:
    assert doubled(256, 8200) == [256, 512, 1024, 2048, 4096, 8192, 8200]
    assert doubled(256, 100) == [100]
    assert [group_size(layers, 6) for layers in (30, 36, 28, 5, 3, 7)] == [6, 6, 4, 5, 3, 1]
    assert verify_widths(16) == (1, 4, 8, 16)
    assert verify_widths(1) == (1,)


def test_fixed_spans_need_no_host_number() -> None:
    """What CUDA graphs rest on: a pass is the same function of device tensors wherever it starts."""
    from backends.kv_cache import FixedSpan

    start = torch.tensor([3, 9])
    span = FixedSpan(start, 2, 16)
    assert (span.start, span.live, span.aligned) == (None, None, False)
    mask = Sdpa().mask(Rule(True), span, torch.float32)
    assert isinstance(mask, torch.Tensor)
    assert (mask == 0).sum(-1).flatten().tolist() == [4, 5, 10, 11]
