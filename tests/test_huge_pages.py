"""Which mappings are asked for, and that the kernel's answer changes no byte."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import torch

from backends import huge_pages
from backends.huge_pages import HUGE, full_mappings, use_huge_pages


def smaps(first: int, last: int, used: int, *, mode: str = "rw-p", name: str = "") -> list[str]:
    inode = "0" if not name or name.startswith("[") else "17"
    device = "00:00" if inode == "0" else "08:01"
    return [
        f"{first:x}-{last:x} {mode} 00000000 {device} {inode:<20} {name}".rstrip(" "),
        f"Size: {(last - first) >> 10:>14} kB",
        f"Rss: {used >> 10:>15} kB",
        f"AnonHugePages: {0:>5} kB",
    ]


def test_whole_huge_pages_of_full_mappings_are_asked_for() -> None:
    first = 100 * HUGE + 4096
    assert list(full_mappings(smaps(first, first + 4 * HUGE, 4 * HUGE))) == [(101 * HUGE, 104 * HUGE)]
    heap = smaps(first, first + 4 * HUGE, 4 * HUGE, name="[heap]")
    assert list(full_mappings(heap)) == [(101 * HUGE, 104 * HUGE)]


@pytest.mark.parametrize(
    "lines",
    [
        smaps(0, 8 * HUGE, 2 * HUGE),  # mostly empty, such as a thread's stack or a cache that waits
        smaps(0, HUGE, HUGE),  # too small
        smaps(0, 8 * HUGE, 8 * HUGE, mode="r--p"),
        smaps(0, 8 * HUGE, 8 * HUGE, mode="rw-s"),
        smaps(0, 8 * HUGE, 8 * HUGE, name="/models/model.safetensors"),
        smaps(0, 8 * HUGE, 8 * HUGE, name="[stack]"),
    ],
)
def test_other_mappings_are_left_alone(lines: list[str]) -> None:
    follower = smaps(20 * HUGE, 24 * HUGE, 4 * HUGE)
    assert list(full_mappings(lines + follower)) == [(20 * HUGE, 24 * HUGE)]


def in_huge_pages() -> int:
    (line,) = [x for x in Path("/proc/self/smaps_rollup").read_text().splitlines() if x.startswith("AnonHugePages")]
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="huge pages are asked for on Linux only")
def test_small_tensors_come_to_lie_in_huge_pages_and_stay_what_they_were() -> None:
    tensors = [torch.full((300_000,), float(n)) for n in range(40)]  # 48 MB in pieces below the size of a huge page
    before = in_huge_pages()
    if use_huge_pages() == 0:
        pytest.skip("this kernel makes no huge pages on request")
    assert in_huge_pages() >= max(before, 24_000_000)
    assert all(bool((tensor == n).all()) for n, tensor in enumerate(tensors))


def test_a_kernel_that_refuses_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Refusing:
        def __init__(self, *_args: object, **_kwargs: object) -> None:
            def madvise(*args: object) -> int:
                asked.append(args)
                ctypes.set_errno(22)
                return -1

            self.madvise = madvise

    monkeypatch.setattr(huge_pages, "full_mappings", lambda _lines: iter([(0, 64 * HUGE)]))
    monkeypatch.setattr(huge_pages.ctypes, "CDLL", Refusing)
    monkeypatch.setattr(huge_pages.sys, "platform", "linux")
    monkeypatch.setattr(huge_pages.Path, "read_text", lambda _path: "")
    assert use_huge_pages() == 0
    assert len(asked) == 1


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")
    assert use_huge_pages() == 0
