"""How much memory a pair takes, and what to do where that is more than is free.

The estimate is made from the two `config.json` alone, before any weight is read. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from backends.config import DrafterConfig, EagleConfig, ModelConfig, TargetConfig
from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import megabytes

USEFUL_CONTEXT = 256  # a smaller one is not worth advising


class NotEnoughMemory(DFlashError):  # noqa: N818
    """What is wanted does not fit; `needed` and `free` in bytes."""

    def __init__(self, message: str, needed: int, free: int) -> None:
        super().__init__(message)
        self.needed, self.free = needed, free


@dataclass(frozen=True)
class MemoryPlan:
    """What a pair takes on its device. `per_position` is what one more position of context adds to the total.

    `loading` is taken besides the weights while they are loaded, before there are caches; `loading_halved` would be in
    bfloat16. One more row of the batch adds `per_row`, of which `kv_position` is for each position.
    """

    weights: int
    drafter: int
    kv_target: int
    kv_drafter: int
    workspace: int
    context: int
    dtype_bytes: int
    per_position: int
    loading: int = 0
    loading_halved: int = 0
    batch: int = 1
    per_row: int = 0
    kv_position: int = 0
    is_quantised: bool = False

    @property
    def total(self) -> int:
        """All parts together, once loaded."""
        return self.weights + self.drafter + self.kv_target + self.kv_drafter + self.workspace

    @property
    def needed(self) -> int:
        """What must be free: the total, or the weights with what loading them takes."""
        return max(self.total, self.weights + self.drafter + self.loading)

    def largest_context(self, free: int) -> int:
        """The largest context that fits into `free` bytes; 0 or less where none does."""
        return (free - (self.total - self.context * self.per_position)) // self.per_position

    def largest_batch(self, free: int) -> int:
        """The most rows of this context that fit into `free` bytes; 0 or less where not even one does."""
        return self.batch - -(-(self.total - free) // self.per_row)

    def single_row(self) -> MemoryPlan:
        """The same plan for one row."""
        fewer = self.batch - 1
        return replace(
            self,
            batch=1,
            kv_target=self.kv_target // self.batch,
            kv_drafter=self.kv_drafter // self.batch,
            workspace=self.workspace - fewer * self.row_work,
            per_position=self.per_position - fewer * self.kv_position,
        )

    @property
    def row_work(self) -> int:
        """Working space that one more row of the batch adds."""
        return self.per_row - (self.kv_target + self.kv_drafter) // self.batch


def plan_memory(
    target: TargetConfig,
    drafter: DrafterConfig | None,
    *,
    dtype_bytes: int,
    context: int,
    batch: int = 1,
    device: str = "cpu",
    converted: tuple[bool, bool] = (False, False),
    loaded: tuple[bool, bool] = (False, False),
    draft_ids: int = 0,
    quantize: str = "none",
) -> MemoryPlan:
    """The memory of a pair for `context` positions in each of `batch` rows.

    Of target and drafter, `converted` says whether its file holds another dtype, `loaded` whether it is there already
    and takes nothing more. `draft_ids`: rows of a head that is made for drafts, 0 where they use the target's.
    `quantize`: how the target's weights are kept, one of `backends.QUANTISATIONS`.
    """
    from backends.engine import PREFILL_CHUNK

    block = drafter.block_size if drafter is not None else 1
    rows = min(PREFILL_CHUNK, context)
    # Packing for the CPU's bf16 kernels copies a head that is tied to the embedding.
    is_quantised = quantize != "none"
    copied_head = device == "cpu" and dtype_bytes == 2 and target.tie_word_embeddings and not is_quantised
    kv = _kv_values(target) * dtype_bytes, (_kv_values(drafter) if drafter is not None else 0) * dtype_bytes
    cache_rows = batch * (context + block)
    per_position_work = _work_per_position(target, drafter, rows, dtype_bytes, device)
    logits = block * target.vocab_size * (2 * dtype_bytes + 4)  # drafted, verified, and one in fp32 to choose from
    weights = target_bytes(target, dtype_bytes, quantize)
    weights += copied_head * target.vocab_size * target.hidden_size * dtype_bytes
    drafts = 0 if drafter is None else drafter_parameters(drafter) * dtype_bytes
    # The CPU's packed bf16 copies are made from plain ones: these are the mapped file itself, or else memory.
    plain = (0 if loaded[0] else weights, 0 if loaded[1] else drafts)
    converted = (converted[0] and not is_quantised, converted[1])  # quantised one by one from the file
    copied = [size if each else 0 for size, each in zip(plain, converted, strict=True)]
    copied_halved = [0 if each else size // 2 for size, each in zip(plain, converted, strict=True)]
    on_cpu = device == "cpu"
    head_row = target.hidden_size * dtype_bytes
    if draft_ids and not target.tie_word_embeddings:
        copied.append(target.vocab_size * head_row)  # rows are taken from a packed head by unpacking all of it
    return MemoryPlan(
        weights=plain[0],
        drafter=plain[1] + draft_ids * head_row,
        kv_target=cache_rows * kv[0],
        kv_drafter=cache_rows * kv[1],
        workspace=context * per_position_work + _prefill_work(target, drafter, rows, dtype_bytes) + batch * logits,
        context=context,
        dtype_bytes=dtype_bytes,
        per_position=batch * sum(kv) + per_position_work,
        loading=max(copied) if on_cpu and dtype_bytes == 2 else 0,
        loading_halved=max(copied_halved) if on_cpu and dtype_bytes == 4 else 0,
        batch=batch,
        per_row=(context + block) * sum(kv) + logits,
        kv_position=sum(kv),
        is_quantised=is_quantised,
    )


def target_bytes(config: TargetConfig, dtype_bytes: int, quantize: str = "none") -> int:
    """What a target's weights take, one copy of each; a quantised head is another matrix than the embedding."""
    if quantize == "none":
        return target_parameters(config) * dtype_bytes
    from backends.quantize import num_bytes

    matrices = _layer_matrices(config)
    head = config.vocab_size * config.hidden_size
    plain = target_parameters(config) - config.num_layers * sum(rows * columns for rows, columns in matrices)
    plain -= 0 if config.tie_word_embeddings else head
    layer = sum(num_bytes(quantize, *each, dtype_bytes) for each in matrices)
    return plain * dtype_bytes + config.num_layers * layer + head_bytes(config, dtype_bytes, quantize)


def head_bytes(config: TargetConfig, dtype_bytes: int, quantize: str = "none") -> int:
    """What the matrix that gives logits takes."""
    if quantize == "none":
        return config.vocab_size * config.hidden_size * dtype_bytes
    from backends.quantize import num_bytes

    return num_bytes(quantize, config.vocab_size, config.hidden_size, dtype_bytes, is_head=True)


def _layer_matrices(config: ModelConfig) -> list[tuple[int, int]]:
    """Rows and columns of the projections of a layer."""
    size, q, kv = config.hidden_size, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return [(q + 2 * kv, size), (size, q), (2 * config.intermediate_size, size), (size, config.intermediate_size)]


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
    size = config.hidden_size
    fuse = len(config.target_layer_ids) * size**2
    norms = (2 if config.target_context else 1) * size
    # Beside each embedding an autoregressive drafter reads a feature.
    wider = size * (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    wider = wider if isinstance(config, EagleConfig) else 0
    return fuse + config.num_layers * _layer_parameters(config) + wider + norms


def _layer_parameters(config: ModelConfig) -> int:
    size, q, kv = config.hidden_size, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    matrices = sum(rows * columns for rows, columns in _layer_matrices(config))
    biases = q + 2 * kv + size if config.attention_bias else 0
    norms = 2 * size + (2 * config.head_dim if config.qk_norm else 0)
    return matrices + biases + norms


def kv_bytes(config: ModelConfig, rows: int, dtype_bytes: int) -> int:
    """A cache of so many rows."""
    return rows * _kv_values(config) * dtype_bytes


def _kv_values(config: ModelConfig) -> int:
    """K and V of one cache row, all layers, and the feature that an autoregressive drafter keeps."""
    feature = config.hidden_size if isinstance(config, EagleConfig) else 0
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim + feature


def _work_per_position(
    target: TargetConfig, drafter: DrafterConfig | None, rows: int, dtype_bytes: int, device: str
) -> int:
    """RoPE tables, and a prefill pass's mask (added and Boolean); on a GPU a masked pass holds its scores, too."""
    tables = 2 * target.head_dim + (2 * drafter.head_dim if drafter is not None else 0)
    scores = 0 if device == "cpu" else target.num_heads * rows * dtype_bytes
    return tables * dtype_bytes + rows * (dtype_bytes + 1) + scores


def _prefill_work(target: TargetConfig, drafter: DrafterConfig | None, rows: int, dtype_bytes: int) -> int:
    """The largest tensors alive together in a prefill pass: those of a layer, and the taps."""
    taps = len(drafter.target_layer_ids) if drafter is not None else 0
    layer = 4 * target.hidden_size + 3 * target.intermediate_size + 2 * target.num_heads * target.head_dim
    return rows * (layer + 2 * taps * target.hidden_size) * dtype_bytes


def check_fits(plan: MemoryPlan, free: int | None, *, device: str = "cpu") -> None:
    """Raises NotEnoughMemory, with each part and what would fit, where `free` (None: unknown) is less than needed."""
    if free is None or plan.needed <= free:
        return
    rows = f" in each of {plan.batch} rows" if plan.batch > 1 else ""
    parts = [
        f"weights {megabytes(plan.weights)}",
        f"drafter {megabytes(plan.drafter)}",
        f"KV cache {megabytes(plan.kv_target + plan.kv_drafter)} for a context of {plan.context}{rows}",
        f"working space {megabytes(plan.workspace)}",
    ]
    if plan.needed > plan.total:
        parts = [*parts[:2], f"and as much again as {megabytes(plan.loading)} of them while they are converted"]
    raise NotEnoughMemory(
        f"not enough memory on {device}: {megabytes(plan.needed)} needed ({', '.join(parts)}), {megabytes(free)} free. "
        f"Use {', or '.join(_advice(plan, free))}",
        plan.needed,
        free,
    )


def _advice(plan: MemoryPlan, free: int) -> list[str]:
    """What would make it fit, each by itself, and a smaller model at last."""
    advice: list[str] = []
    if plan.weights + plan.drafter + plan.loading <= free:
        advice += _smaller_cache(plan, free)
    halved = replace(
        plan, weights=plan.weights // 2, drafter=plan.drafter // 2, kv_target=plan.kv_target // 2,
        kv_drafter=plan.kv_drafter // 2, loading=plan.loading_halved,
    )  # fmt: skip
    if plan.dtype_bytes == 4 and not plan.is_quantised and halved.needed <= free:
        advice.append("--dtype bfloat16")
    if plan.drafter and replace(plan, drafter=0, kv_drafter=0).needed <= free:
        advice.append("--draft none (slower)")
    return [*advice, "a smaller model (`dflash models` lists some)"]


def _smaller_cache(plan: MemoryPlan, free: int) -> Iterator[str]:
    """Fewer rows, a smaller context, or both where one of them is not enough."""
    batch, context = plan.largest_batch(free), plan.largest_context(free)
    if 1 <= batch < plan.batch:
        yield f"--batch {batch}"
    if USEFUL_CONTEXT <= context < plan.context:
        yield f"--context {context}"
    elif batch < 1 < plan.batch and (context := plan.single_row().largest_context(free)) >= USEFUL_CONTEXT:
        yield f"--batch 1 with --context {context}"
