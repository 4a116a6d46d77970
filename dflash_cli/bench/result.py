"""What a benchmark came to: an object for JSON, rows for CSV, tables for a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dflash_cli.bench.limit import Limit
from dflash_cli.bench.machine import in_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dflash_cli.bench.draft_latency import Latency
    from dflash_cli.bench.rows import Row


@dataclass
class Result:
    """What came out. `limits` by precision; `latencies` of drafts alone."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    limits: dict[str, Limit] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    interrupted: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.rows or self.latencies)

    @property
    def title(self) -> str:
        """Of a picture."""
        return f"{self.settings['pair']}: {in_words(self.machine)}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON output."""
        settings = {**self.settings, "interrupted": self.interrupted}
        head: dict[str, Any] = {"machine": self.machine, "settings": settings}
        if self.latencies:
            return head | {"draft_latency": self.table_rows()}
        limit = {name: each.as_dict() for name, each in self.limits.items()}
        return head | {"limit": limit, "rows": self.table_rows()}

    def table_rows(self) -> list[dict[str, Any]]:
        """An object a row."""
        return [each.as_dict() for each in self.latencies or self.rows]

    def view(self) -> RenderableType:
        """For a terminal."""
        from dflash_cli.bench.table import bench_view, latency_view

        if self.latencies:
            return latency_view(in_words(self.machine), self.latencies)
        lines = [
            f"{name}: {each.bandwidth / 1e9:.1f} GB/s measured, {each.target_bytes / 1e6:,.1f} MB of weights a pass, "
            f"{each.draft_bytes(0) / 1e6:,.1f} MB a draft"
            for name, each in self.limits.items()
        ]
        on_cpu = str(self.machine["device"]) == "cpu"
        return bench_view(f"{self.settings['pair']}; {in_words(self.machine)}", lines, self.rows, whole_process=on_cpu)
