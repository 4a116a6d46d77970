"""CUDA graphs that torch.compile makes by itself (`reduce-overhead`): what `gpu_check` compares recorded ones with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from backends.attention import CachedAttention, Sdpa
from backends.compiled import CompiledEngine, CompiledLayers, _run_group
from backends.drafter import Drafter
from backends.layers import Attend
from backends.target import Target
from dflash_cli.bench.entrants import compiled_code

REDUCE_OVERHEAD = "reduce-overhead"


class _Layers(CompiledLayers):
    """Groups of layers, each a graph of torch.compile's own."""

    def __init__(self, most_layers: int) -> None:
        super().__init__(most_layers)
        self.group = torch.compile(_run_group, fullgraph=True, dynamic=False, mode=REDUCE_OVERHEAD)

    def __call__(
        self, layers: Iterable[nn.Module], x: Tensor, cos: Tensor, sin: Tensor, attend: Attend
    ) -> Iterator[Tensor]:
        assert isinstance(attend, CachedAttention)
        for each in attend.layers:  # written to in place: else torch makes no graph of it
            for cache in (each.k, each.v):
                torch._dynamo.mark_static_address(cache)
        yield from super().__call__(layers, x, cos, sin, attend)


class ReduceOverheadEngine(CompiledEngine):
    """The compiled engine with the same passes and shapes, but nothing recorded by hand."""

    def __init__(self, target: Target, drafter: Drafter | None, *, max_len: int) -> None:
        artefacts = compiled_code("compile")
        super().__init__(target, drafter, Sdpa(), name=REDUCE_OVERHEAD, max_len=max_len, artefacts=artefacts)
        self.records, self.layers = False, _Layers(self.most_layers)

    def _pass(
        self, kind: str, length: int, ids: Tensor, start: Tensor, known_start: Sequence[int] | None = None
    ) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # the last pass's tensors may be overwritten
        return super()._pass(kind, length, ids, start, known_start)


def num_skips() -> int:
    """How often torch.compile has made no CUDA graph where it was to make one."""
    return int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])
