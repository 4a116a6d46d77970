"""What is free: this machine, a container's limit in both versions of control groups, a GPU that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli import free_memory as module
from dflash_cli.free_memory import cgroup_free, free_memory


def test_free_memory_of_this_machine() -> None:
    free = free_memory("cpu")
    assert free is not None
    assert 0 < free < 1 << 50


def test_a_container_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cgroup_free", lambda *_: 12345)
    assert free_memory("cpu") == 12345


def group(folder: Path, limit: str, usage: str, stat: str, *, v1: bool = False) -> None:
    """A control group's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(limit + "\n")
    (folder / ("memory.usage_in_bytes" if v1 else "memory.current")).write_text(usage + "\n")
    (folder / "memory.stat").write_text(stat)


def test_cgroup_v2_takes_the_tightest_of_all_parents(tmp_path: Path) -> None:
    membership, mount = tmp_path / "cgroup", tmp_path / "fs"
    membership.write_text("0::/user/app\n")
    group(mount / "user" / "app", "max", "500", "inactive_file 5\n")
    assert cgroup_free(membership, mount) is None
    group(mount / "user", "1000", "600", "anon 500\ninactive_file 50\n")
    assert cgroup_free(membership, mount) == 450
    group(mount, "700", "600", "")
    assert cgroup_free(membership, mount) == 100


def test_cgroup_v1_and_a_container_that_is_its_own_root(tmp_path: Path) -> None:
    membership, mount = tmp_path / "cgroup", tmp_path / "fs"
    membership.write_text("9:cpu:/x\n4:memory:/docker/abc\n0::/\n")
    group(mount / "memory", "1000", "900", "total_inactive_file 30\n", v1=True)
    assert cgroup_free(membership, mount) == 130
    group(mount / "memory", str((1 << 63) - 4096), "900", "", v1=True)
    assert cgroup_free(membership, mount) is None
    assert cgroup_free(tmp_path / "absent", mount) is None


def test_a_gpu_that_is_not_there_is_unknown() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert free_memory("cuda") is None
