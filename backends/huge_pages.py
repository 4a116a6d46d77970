"""Huge pages under what a process has loaded: a CPU that streams weights then looks up 512 times fewer addresses.

Linux gives them only where they are asked for, and most of the weights lie in pieces that are smaller than one.
"""

from __future__ import annotations

import ctypes
import errno
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

HUGE = 1 << 21  # bytes of a huge page on x86; where pages are larger, the kernel says no and nothing changes
LEAST = 2 * HUGE  # a smaller mapping may hold no whole huge page
FILLED = 0.9  # share of a mapping that is in use: stacks and caches that wait are not to be filled
PART = 16 * HUGE  # what is asked for at once: the kernel stops the process's page faults meanwhile
MADV_COLLAPSE = 25  # since Linux 6.1: make huge pages of what is there, now
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0 *(\[heap\])?$")


def use_huge_pages() -> int:
    """Ask the kernel to move what this process holds in memory of its own into huge pages; bytes that are in some now.

    Nothing changes for the process but its speed. Where the kernel cannot, 0.
    """
    if not sys.platform.startswith("linux"):
        return 0
    try:
        mappings = list(full_mappings(Path("/proc/self/smaps").read_text().splitlines()))
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return 0
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    done = 0
    for first, last in mappings:
        for start in range(first, last, PART):
            size = min(PART, last - start)
            if madvise(start, size, MADV_COLLAPSE) == 0:
                done += size
            elif ctypes.get_errno() == errno.EINVAL and not done:
                return 0  # an older kernel
    return done


def full_mappings(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Lines of /proc/self/smaps -> (first, last) address, in whole huge pages, of private memory that is in use."""
    first = last = 0
    for line in lines:
        if match := _MAPPING.match(line):
            first, last = int(match[1], 16), int(match[2], 16)
        elif "-" in line.split(" ", 1)[0]:
            first = last = 0
        elif line.startswith("Rss:") and last - first >= LEAST:
            used = int(line.split()[1]) << 10
            if used >= FILLED * (last - first):
                yield -(-first // HUGE) * HUGE, last // HUGE * HUGE
