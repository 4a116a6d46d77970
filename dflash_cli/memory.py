"""How much memory a pair takes, how much is free, and what to do where the one exceeds the other.

The estimate is made from the two `config.json` alone, before any weight is read. Sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from backends.config import DrafterConfig, ModelConfig, TargetConfig
from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import megabytes

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
USEFUL_CONTEXT = 256  # a smaller one is not worth advising
NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a huge number


@dataclass(frozen=True)
class MemoryPlan:
    """What a pair takes on its device. `per_position` is what one more position of context adds to the total."""

    weights: int
    drafter: int
    kv_target: int
    kv_drafter: int
    workspace: int
    context: int
    dtype_bytes: int
    per_position: int

    @property
    def total(self) -> int:
        """All parts together."""
        return self.weights + self.drafter + self.kv_target + self.kv_drafter + self.workspace

    def largest_context(self, free: int) -> int:
        """The largest context that fits into `free` bytes; 0 or less where none does."""
        return (free - (self.total - self.context * self.per_position)) // self.per_position


def plan_memory(
    target: TargetConfig,
    drafter: DrafterConfig | None,
    *,
    dtype_bytes: int,
    context: int,
    batch: int = 1,
    device: str = "cpu",
) -> MemoryPlan:
    """The memory of a pair for `context` positions in each of `batch` rows."""
    from backends.engine import PREFILL_CHUNK

    block = drafter.block_size if drafter is not None else 1
    rows = min(PREFILL_CHUNK, context)
    # Packing for the CPU's bf16 kernels copies a head that is tied to the embedding.
    copied_head = device == "cpu" and dtype_bytes == 2 and target.tie_word_embeddings
    per_row = _kv_values(target) * dtype_bytes, (_kv_values(drafter) if drafter is not None else 0) * dtype_bytes
    cache_rows = batch * (context + block)
    per_position_work = _work_per_position(target, drafter, rows, dtype_bytes, device)
    return MemoryPlan(
        weights=(target_parameters(target) + copied_head * target.vocab_size * target.hidden_size) * dtype_bytes,
        drafter=0 if drafter is None else drafter_parameters(drafter) * dtype_bytes,
        kv_target=cache_rows * per_row[0],
        kv_drafter=cache_rows * per_row[1],
        workspace=context * per_position_work + _fixed_work(target, drafter, rows, batch * block, dtype_bytes),
        context=context,
        dtype_bytes=dtype_bytes,
        per_position=batch * sum(per_row) + per_position_work,
    )


def target_parameters(config: TargetConfig) -> int:
    """How many weights a target has."""
    embeddings = 1 if config.tie_word_embeddings else 2
    return (
        embeddings * config.vocab_size * config.hidden_size
        + config.num_layers * _layer_parameters(config)
        + config.hidden_size
    )


def drafter_parameters(config: DrafterConfig) -> int:
    """How many weights a drafter has; embedding and head are the target's."""
    fuse = len(config.target_layer_ids) * config.hidden_size**2
    return fuse + config.num_layers * _layer_parameters(config) + 2 * config.hidden_size


def _layer_parameters(config: ModelConfig) -> int:
    size, q, kv = config.hidden_size, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = 2 * size * q + 2 * size * kv
    biases = q + 2 * kv + size if config.attention_bias else 0
    norms = 2 * size + (2 * config.head_dim if config.qk_norm else 0)
    return attention + biases + 3 * size * config.intermediate_size + norms


def _kv_values(config: ModelConfig) -> int:
    """K and V of one cache row, all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim


def _work_per_position(
    target: TargetConfig, drafter: DrafterConfig | None, rows: int, dtype_bytes: int, device: str
) -> int:
    """RoPE tables, and a prefill pass's mask (added and Boolean); on a GPU a masked pass holds its scores, too."""
    tables = 2 * target.head_dim + (2 * drafter.head_dim if drafter is not None else 0)
    scores = 0 if device == "cpu" else target.num_heads * rows * dtype_bytes
    return tables * dtype_bytes + rows * (dtype_bytes + 1) + scores


def _fixed_work(
    target: TargetConfig, drafter: DrafterConfig | None, rows: int, block_rows: int, dtype_bytes: int
) -> int:
    """The largest tensors alive together: a layer's in a prefill pass, and the logits of a block."""
    taps = len(drafter.target_layer_ids) if drafter is not None else 0
    layer = 4 * target.hidden_size + 3 * target.intermediate_size + 2 * target.num_heads * target.head_dim
    logits = block_rows * target.vocab_size * (2 * dtype_bytes + 4)  # drafted, verified, and one in fp32 to choose from
    return rows * (layer + 2 * taps * target.hidden_size) * dtype_bytes + logits


def check_fits(plan: MemoryPlan, free: int | None, *, device: str = "cpu") -> None:
    """Raises DFlashError, with each part and what would fit, where the plan takes more than `free` (None: unknown)."""
    if free is None or plan.total <= free:
        return
    cache = plan.kv_target + plan.kv_drafter
    raise DFlashError(
        f"not enough memory on {device}: {megabytes(plan.total)} needed (weights {megabytes(plan.weights)}, "
        f"drafter {megabytes(plan.drafter)}, KV cache {megabytes(cache)} for a context of {plan.context}, "
        f"working space {megabytes(plan.workspace)}), {megabytes(free)} free. Use {', or '.join(_advice(plan, free))}"
    )


def _advice(plan: MemoryPlan, free: int) -> list[str]:
    """What would make it fit, each by itself, and a smaller model at last."""
    advice = []
    largest = plan.largest_context(free)
    if USEFUL_CONTEXT <= largest < plan.context:
        advice.append(f"--context {largest}")
    halved = replace(
        plan, weights=plan.weights // 2, drafter=plan.drafter // 2, kv_target=plan.kv_target // 2,
        kv_drafter=plan.kv_drafter // 2,
    )  # fmt: skip
    if plan.dtype_bytes == 4 and halved.total <= free:
        advice.append("--dtype bfloat16")
    if plan.drafter and plan.total - plan.drafter - plan.kv_drafter <= free:
        advice.append("--draft none (slower)")
    return [*advice, "a smaller model (`dflash models` lists some)"]


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
