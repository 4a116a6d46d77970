"""How much memory a pair takes, from its two `config.json` alone, before any weight is read. Sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backends import QUANTISATIONS
from backends.config import DrafterConfig, EagleConfig, ModelConfig, TargetConfig

MADE_WHOLE = {"int8": 1, "int4": 3}
"""Copies of a quantised matrix, whole, that are there while one is made: of int4 the codes, twice, and the weights."""


@dataclass(frozen=True)
class MemoryPlan:
    """What a pair takes on its device. `per_position` is what one more position of context adds to the total.

    `loading` is taken besides the weights while they are loaded, before there are caches; `loading_halved` would be in
    bfloat16. One more row of the batch adds `per_row`, of which `kv_position` is for each position. `in_fewer_bits`:
    the plan with the next kind of quantised weights, where there is one.
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
    quantize: str = "none"
    in_fewer_bits: MemoryPlan | None = None

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
    is_filled: bool = False,
) -> MemoryPlan:
    """The memory of a pair for `context` positions in each of `batch` rows.

    Of target and drafter, `converted` says whether its file holds another dtype, `loaded` whether it is there already
    and takes nothing more. `draft_ids`: rows of a head that is made for drafts, 0 where they use the target's.
    `quantize`: how the target's weights are kept, one of `backends.QUANTISATIONS`. `is_filled`: whether they are all
    there unquantised at first, instead of being read one by one.
    """
    from backends.engine import PREFILL_CHUNK

    block = drafter.block_size if drafter is not None else 1
    rows = min(PREFILL_CHUNK, context)
    kv = _kv_values(target) * dtype_bytes, (_kv_values(drafter) if drafter is not None else 0) * dtype_bytes
    per_position_work = _work_per_position(target, drafter, rows, dtype_bytes, device)
    work = _prefill_work(target, drafter, rows, dtype_bytes)
    work += _made_whole(target, quantize, dtype_bytes, device, rows, batch * block)
    logits = block * target.vocab_size * (2 * dtype_bytes + 4)  # drafted, verified, and one in fp32 to choose from
    drafts = 0 if drafter is None else drafter_parameters(drafter) * dtype_bytes
    plain = (0 if loaded[0] else _kept(target, quantize, dtype_bytes, device), 0 if loaded[1] else drafts)
    head_row = target.hidden_size * dtype_bytes
    # Rows are taken from a packed or quantised head by making all of it whole.
    unpacked = target.vocab_size * head_row if draft_ids and not target.tie_word_embeddings else 0
    copied = (converted[0] and quantize == "none", converted[1])  # quantised one by one from the file
    loading, loading_halved = _to_load(plain, copied, unpacked, dtype_bytes, device)
    if quantize != "none":
        loading = max(loading, unpacked, _filled(target, dtype_bytes) - sum(plain) if is_filled else 0)
    plan = MemoryPlan(
        weights=plain[0], drafter=plain[1] + draft_ids * head_row,
        kv_target=batch * (context + block) * kv[0], kv_drafter=batch * (context + block) * kv[1],
        workspace=context * per_position_work + work + batch * logits, context=context, dtype_bytes=dtype_bytes,
        per_position=batch * sum(kv) + per_position_work, loading=loading, loading_halved=loading_halved, batch=batch,
        per_row=(context + block) * sum(kv) + logits, kv_position=sum(kv), quantize=quantize,
    )  # fmt: skip
    if loaded[0] or quantize == QUANTISATIONS[-1]:
        return plan
    fewer = plan_memory(
        target, drafter, dtype_bytes=dtype_bytes, context=context, batch=batch, device=device, converted=converted,
        loaded=loaded, draft_ids=draft_ids, quantize=QUANTISATIONS[QUANTISATIONS.index(quantize) + 1],
        is_filled=is_filled,
    )  # fmt: skip
    return replace(plan, in_fewer_bits=fewer)


def _kept(target: TargetConfig, quantize: str, dtype_bytes: int, device: str) -> int:
    """The target's weights; packing for the CPU's bf16 kernels copies a head that is tied to the embedding."""
    is_copied = device == "cpu" and dtype_bytes == 2 and target.tie_word_embeddings and quantize == "none"
    return target_bytes(target, dtype_bytes, quantize) + is_copied * head_bytes(target, dtype_bytes)


def _to_load(
    plain: tuple[int, int], converted: tuple[bool, bool], unpacked: int, dtype_bytes: int, device: str
) -> tuple[int, int]:
    """(what is there besides the weights while they are loaded, what would be in half the bytes). The CPU's packed
    bf16 copies are made from plain ones: these are the mapped file itself, or else memory."""
    copied = [size for size, each in zip(plain, converted, strict=True) if each]
    copied_halved = [size // 2 for size, each in zip(plain, converted, strict=True) if not each]
    if device != "cpu":
        return 0, 0
    return (
        max(unpacked, *copied, 0) if dtype_bytes == 2 else 0,
        max(unpacked // 2, *copied_halved, 0) if dtype_bytes == 4 else 0,
    )


def _filled(target: TargetConfig, dtype_bytes: int) -> int:
    """All weights before they are quantised, and the largest matrix joined of those that read the same."""
    return target_bytes(target, dtype_bytes) + max(_sizes(target)) * dtype_bytes


def _sizes(target: TargetConfig) -> list[int]:
    """How many weights each kind of matrix has, the head last."""
    layer = [rows * columns for rows, columns in _layer_matrices(target)]
    return [*layer, target.vocab_size * target.hidden_size]


def _made_whole(target: TargetConfig, quantize: str, dtype_bytes: int, device: str, rows: int, head_rows: int) -> int:
    """The largest quantised matrix that is made whole for a product: for many rows, or where no packed kernel runs."""
    if quantize == "none":
        return 0
    from backends.quantize import MANY_ROWS, MANY_ROWS_INT4, method_of

    packed = {"int8": MANY_ROWS, "int4": MANY_ROWS_INT4} if device == "cpu" else dict.fromkeys(MADE_WHOLE, 0)
    columns = [each[1] for each in _layer_matrices(target)] + [target.hidden_size]
    made = [0]
    for place, (size, inputs) in enumerate(zip(_sizes(target), columns, strict=True)):
        is_head = place == len(columns) - 1
        method = method_of(quantize, inputs, is_head=is_head)
        if (head_rows if is_head else rows) > packed[method]:
            made.append(MADE_WHOLE[method] * size * dtype_bytes)
    return max(made)


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
