"""How much memory is free: on a GPU, or in RAM under a container's limit. In bytes. Imports no torch by itself."""

from __future__ import annotations

from pathlib import Path

NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a huge number


def free_memory(device: str) -> int | None:
    """Bytes free on `device` (cpu, cuda, cuda:N, mps); None where that cannot be told.

    RAM is what the system calls available, or what a container's limit leaves, whichever is less.
    """
    if device.startswith("cuda"):
        return _free_cuda(device)
    import psutil  # type: ignore[import-untyped]

    available = int(psutil.virtual_memory().available)
    limit = cgroup_free(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return available if limit is None else min(available, limit)


def _free_cuda(device: str) -> int | None:
    import torch

    if not torch.cuda.is_available():
        return None
    free, _total = torch.cuda.mem_get_info(torch.device(device))
    return int(free)


def cgroup_free(membership: Path, mount: Path) -> int | None:
    """Bytes that the control groups of this process (v2 or v1) leave; None without a limit.

    `membership` is /proc/self/cgroup, `mount` /sys/fs/cgroup. Inside a container the group may be mounted as the root.
    """
    left = []
    for line in _read(membership).splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            names, top = ("memory.max", "memory.current", "inactive_file"), mount
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            top = mount / "memory"
        else:
            continue
        folder = top / group.lstrip("/")
        folders = [folder, *(parent for parent in folder.parents if parent == top or top in parent.parents)]
        left += [_group_free(each, *names) for each in dict.fromkeys([*folders, top])]
    return min((free for free in left if free is not None), default=None)


def _group_free(folder: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> int | None:
    limit, usage = _read(folder / limit_name).strip(), _read(folder / usage_name).strip()
    if not limit.isdecimal() or not usage.isdecimal() or int(limit) >= NO_LIMIT:
        return None
    counters = dict(line.split(maxsplit=1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    reclaimable = int(counters.get(reclaimable_name, 0))  # cached files, given up under pressure
    return max(0, int(limit) - int(usage) + reclaimable)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
