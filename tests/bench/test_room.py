"""Room: what was promised counts although nothing was taken yet, and refusals name the flags of `dflash bench`."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.config import TargetConfig
from dflash_cli.bench import room as module
from dflash_cli.bench.room import Room, checkpoint_values, flags_of_bench
from dflash_cli.bench.subject import PeerUnavailable
from dflash_cli.memory import plan_memory
from dflash_cli.memory_fit import NotEnoughMemory
from tests.tiny import target_dict


def with_free(monkeypatch: pytest.MonkeyPatch, *free: int | None) -> Room:
    """A room that sees so much free memory, one after the other; the last one from then on."""
    left = list(free)
    monkeypatch.setattr(module, "free_memory", lambda _device: left.pop(0) if len(left) > 1 else left[0])
    return Room("cpu")


def test_what_was_promised_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    room = with_free(monkeypatch, 1000)
    room.take_peer("a", 600)
    assert room.left == 400  # not taken yet
    with pytest.raises(PeerUnavailable, match="b takes 0 MB of its own"):
        room.take_peer("b", 500)
    taken = with_free(monkeypatch, 1000, 1000, 400)
    taken.take_peer("a", 600)
    taken.take_peer("b", 400)
    assert taken.left == 0


def test_others_may_take_memory_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_free(monkeypatch, 1000, 300).left == 300


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    room = with_free(monkeypatch, None)
    room.take_peer("a", 10**15)
    assert room.left is None


def test_an_engine_keeps_its_caches_and_gives_its_working_space_back(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TargetConfig.from_dict(target_dict())
    plan = plan_memory(config, None, dtype_bytes=4, context=256, batch=4, loaded=(True, True))
    caches = plan.kv_target + plan.kv_drafter
    room = with_free(monkeypatch, caches + plan.total)
    room.take_engine(plan, "one")
    assert room.left == plan.total
    room.take_engine(plan, "two")
    with pytest.raises(NotEnoughMemory, match="three: not enough memory on cpu"):
        room.take_engine(plan, "three")


def test_advice_is_in_the_flags_of_bench() -> None:
    def told(**how: bool) -> str:
        with pytest.raises(NotEnoughMemory) as caught, flags_of_bench(**how):
            raise NotEnoughMemory("Use --batch 4, or --context 512, or --batch 1 with --context 900", 2, 1)
        assert (caught.value.needed, caught.value.free) == (2, 1)
        return str(caught.value)

    assert told() == "Use --batches 4, or --context 512, or --batches 1 with --context 900"
    assert "or --contexts and -n of 512 together, or --batches 1 with --contexts and -n of 900 to" in told(
        is_own_context=True
    )


def test_a_folder_without_weights_is_no_peer(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailable, match=r"the weights of a peer cannot be read: .* has no config\.json"):
        checkpoint_values(tmp_path)
