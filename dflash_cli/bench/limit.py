"""What memory allows: decoding reads every weight once a pass, so bytes over bandwidth is the time it cannot beat."""

from __future__ import annotations

from dataclasses import dataclass

from backends.config import DrafterConfig, EagleConfig, TargetConfig
from dflash_cli.memory import drafter_parameters, head_bytes, kv_bytes, target_bytes


@dataclass(frozen=True)
class Limit:
    """Bytes that a pass must read. A step is a verify pass, and a draft pass where it drafts."""

    target: TargetConfig
    drafter: DrafterConfig | None
    dtype_bytes: int
    bandwidth: float
    """Bytes a second."""
    quantize: str = "none"
    """How the target's weights are kept."""
    draft_ids: int | None = None
    """Rows of the drafter's own head, which are kept plain; None: it reads out through the target's."""

    @property
    def head_bytes(self) -> int:
        """The matrix that gives logits."""
        return head_bytes(self.target, self.dtype_bytes, self.quantize)

    @property
    def target_bytes(self) -> int:
        """The target's weights, head included. Of an embedding that is no head, too, only a few rows are read."""
        whole = target_bytes(self.target, self.dtype_bytes, self.quantize)
        is_head = self.target.tie_word_embeddings and self.quantize == "none"
        return whole if is_head else whole - self.target.vocab_size * self.target.hidden_size * self.dtype_bytes

    @property
    def drafter_bytes(self) -> int:
        """The drafter's own weights."""
        return 0 if self.drafter is None else drafter_parameters(self.drafter) * self.dtype_bytes

    @property
    def draft_head_bytes(self) -> int:
        """What a draft reads of the head."""
        if self.draft_ids is None:
            return self.head_bytes
        return self.draft_ids * self.target.hidden_size * self.dtype_bytes

    def verify_bytes(self, context: float, batch: int = 1) -> float:
        """Of a verify pass at a length of the context, whatever its width."""
        return self.target_bytes + batch * context * kv_bytes(self.target, 1, self.dtype_bytes)

    def draft_bytes(self, context: float, batch: int = 1) -> float:
        """Of all that drafts a block: one pass, or for a drafter that guesses one token after the other one for each.

        What makes the context of the taps is read once.
        """
        if self.drafter is None:
            return 0.0
        passes = self.drafter.block_size - 1 if isinstance(self.drafter, EagleConfig) else 1
        taps = len(self.drafter.target_layer_ids) * self.drafter.hidden_size**2 * self.dtype_bytes
        cache = batch * context * self._draft_row_bytes
        return taps + passes * (self.drafter_bytes - taps + self.draft_head_bytes + cache)

    @property
    def _draft_row_bytes(self) -> int:
        """K and V of a row of the drafter's cache; none where it sees nothing of the text."""
        if self.drafter is None or not self.drafter.target_context:
            return 0
        values = 2 * self.drafter.num_layers * self.drafter.num_kv_heads * self.drafter.head_dim
        return values * self.dtype_bytes

    def step_ms(self, context: float, batch: int = 1, drafted: float = 0.0) -> float:
        """Milliseconds of a step of which the share `drafted` drafts."""
        num_bytes = self.verify_bytes(context, batch) + drafted * self.draft_bytes(context, batch)
        return num_bytes / self.bandwidth * 1e3

    def as_dict(self) -> dict[str, object]:
        """For the `limit` object of the JSON output."""
        return {
            "bandwidth_gb_s": round(self.bandwidth / 1e9, 2),
            "target_mb": round(self.target_bytes / 1e6, 2),
            "head_mb": round(self.head_bytes / 1e6, 2),
            "draft_head_mb": None if self.drafter is None else round(self.draft_head_bytes / 1e6, 2),
            "drafter_mb": round(self.drafter_bytes / 1e6, 2),
            "kv_kb_per_token": round(kv_bytes(self.target, 1, self.dtype_bytes) / 1e3, 3),
            "plain_step_ms": round(self.step_ms(0), 4),
            "dflash_step_ms": None if self.drafter is None else round(self.step_ms(0, drafted=1.0), 4),
        }
