"""Backends by name: which one it becomes, and what it takes over."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import backends
from backends import BACKENDS, Choice, choose_backend, create_backend
from backends.base import BackendUnavailable, Clock
from backends.draft_vocabulary import DraftHead
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from tests.one_pair import DRAFTER, IDS, TARGET, build
from tests.tiny import make_drafter, make_engine, make_target


def test_names_import_no_torch_and_say_what_exists() -> None:
    code = "import backends, sys; backends.choose_backend('auto', 'cpu'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(ValueError, match="unknown backend 'fast'; this version has: auto, eager, compile, flex"):
        create_backend("fast", TARGET, None, max_len=8)
    assert set(BACKENDS) == {"eager", "compile", "flex"}


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps", "xpu"])
def test_auto_says_why(device: str) -> None:
    choice = choose_backend("auto", device)
    assert choice.name in BACKENDS
    assert choice.reason
    assert choose_backend("flex", device) == Choice("flex", "as asked")


def test_auto_falls_back_visibly_and_a_name_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.AUTO, "cpu", ("compile", "it is faster"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    backend = create_backend("auto", TARGET, None, max_len=8)
    assert (backend.name, backend.choice.name) == ("eager", "eager")
    assert "no-such-compiler" in backend.choice.reason
    with pytest.raises(BackendUnavailable, match="no-such-compiler"):
        create_backend("compile", TARGET, None, max_len=8)


def test_a_cache_is_taken_over_with_what_it_holds() -> None:
    first = build()
    first.prefill(IDS[:20], 0)
    expected = first.verify(IDS[None, 20:26], [20]).clone()
    drafted = first.draft(IDS[20:21], [20]).clone()
    second = build(cache_from=first)
    assert second.took_over
    assert second.target_cache is first.target_cache
    torch.testing.assert_close(second.draft(IDS[20:21], [20]), drafted)
    torch.testing.assert_close(second.verify(IDS[None, 20:26], [20]), expected)


def test_a_longer_cache_is_filled_from_a_shorter_one() -> None:
    plain = build(None)
    plain.prefill(IDS[:20], 0)
    fast = build(cache_from=plain)  # a block longer
    assert fast.target_cache.shape[2] > plain.target_cache.shape[2]
    fresh = build()
    fresh.prefill(IDS[:20], 0)
    torch.testing.assert_close(fast.verify(IDS[None, 20:26], [20]), fresh.verify(IDS[None, 20:26], [20]))


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ({}, {}, True),
        ({}, {"drafter": None}, True),
        ({"drafter": None}, {}, False),  # the drafter's context was never written
        ({}, {"drafter": make_drafter(seed=9)}, False),
        ({}, {"drafter": DRAFTER.with_head(DraftHead(TARGET, torch.arange(5)))}, True),
        ({}, {"max_len": 32}, False),
        ({}, {"batch_size": 2}, False),
    ],
)
def test_what_was_held_counts_only_where_it_is_all_there(before: Any, after: Any, counts: bool) -> None:
    first = build(**before)
    assert not first.took_over
    assert build(**after, cache_from=first).took_over is counts


def test_caches_of_another_target_are_left_alone() -> None:
    other = make_engine(make_target(seed=5), DRAFTER, max_len=64)
    engine = build(cache_from=other)
    assert not engine.took_over
    assert engine.target_cache is not other.target_cache


def test_the_chat_goes_on_in_a_new_backend() -> None:
    """What `/backend` needs: the text after a switch is the text without one."""
    whole = _ids(Decoder(build()), IDS[:9].tolist(), 30)
    first = Decoder(build())
    head = _ids(first, IDS[:9].tolist(), 12)
    second = Decoder(build(cache_from=first.backend))
    second.resident = first.resident
    assert head + _ids(second, [*IDS[:9].tolist(), *head], 18) == whole


def _ids(decoder: Decoder, prompt: list[int], length: int) -> list[int]:
    events = decoder.generate(Request(prompt, max_new_tokens=length))
    return [i for event in events for i in getattr(event, "new_ids", ())]


def test_a_clock_waits_for_apples_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    monkeypatch.setattr("torch.mps.synchronize", lambda: waited.append(True))
    clock = Clock(torch.device("mps"))
    assert clock.ms(clock.mark(), clock.mark()) >= 0
    assert waited == [True, True]
    Clock(torch.device("cpu")).mark()
    assert len(waited) == 2


def test_a_clock_marks_the_stream_of_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: str) -> None:
            self.stream = stream

        def elapsed_time(self, other: Event) -> float:
            assert self.stream == other.stream == "stream of cuda:1"
            return 1.5

    monkeypatch.setattr("torch.cuda.Event", Event)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: f"stream of {device}")
    clock = Clock(torch.device("cuda:1"))
    assert clock.ms(clock.mark(), clock.mark()) == 1.5
