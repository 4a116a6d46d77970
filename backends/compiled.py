"""torch.compile over the engine: fixed block shapes, static caches read in a few lengths, CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from backends.attention import AttentionFunction, CachedAttention, LayerAttention, Sdpa
from backends.base import BackendUnavailable, on_device
from backends.compiler import num_graphs, prepare_compiler, require_compiler
from backends.cuda_graphs import Recordings
from backends.drafter import Drafter
from backends.engine import Engine
from backends.huge_pages import use_huge_pages
from backends.kv_cache import FixedSpan
from backends.layers import Attend
from backends.target import Target

MOST_LAYERS = 6  # layers a graph: more makes the warm-up longer, fewer makes a pass slower
CPU_STEP = 64  # from one number of cache rows read to the next
GPU_SHORTEST = 256  # the same on a GPU, doubled from one to the next: it keeps a recording of each


def _run_group(
    layers: Sequence[nn.Module], x: Tensor, cos: Tensor, sin: Tensor, attends: Sequence[LayerAttention]
) -> list[Tensor]:
    """Some layers in turn -> the hidden states after each."""
    hidden = []
    for module, attend in zip(layers, attends, strict=True):
        x = module(0, x, cos, sin, attend)
        hidden.append(x)
    return hidden


class CompiledLayers:
    """`run_layers` in compiled code. The layers of a stack are alike, so that groups of them share one graph.

    With a dense mask one graph serves all numbers of cache rows read, and another all numbers of block rows but 1.
    """

    def __init__(self, most_layers: int) -> None:
        self.most_layers = most_layers
        self.is_complete = False  # whether all is compiled that will be
        self.group = torch.compile(_run_group, fullgraph=True, dynamic=False)

    def __call__(
        self, layers: Iterable[nn.Module], x: Tensor, cos: Tensor, sin: Tensor, attend: Attend
    ) -> Iterator[Tensor]:
        assert isinstance(attend, CachedAttention)
        modules = list(layers)
        size = group_size(len(modules), self.most_layers)
        for first in range(0, len(modules), size):
            group = slice(first, first + size)
            if not self.is_complete:
                _leave_open(x, cos, sin, attend.layers[group])
            hidden = self.group(modules[group], x, cos, sin, attend.layers[group])
            x = hidden[-1]
            yield from hidden


def _stance(*, trusting: bool) -> AbstractContextManager[object]:
    """Trusting, torch looks only at what tells its graphs apart: of the rest, some hundred facts of modules that nobody
    changes once all is compiled, it would make sure before every graph, in up to 7 % of a pass. Said each time, so that
    an interrupt in between leaves nothing behind."""
    stance: AbstractContextManager[object] = torch.compiler.set_stance("default", skip_guard_eval_unsafe=trusting)
    return stance


def _leave_open(x: Tensor, cos: Tensor, sin: Tensor, attends: Sequence[LayerAttention]) -> None:
    """Tell the compiler which sizes vary: rows of the cache, and those of a block where there is more than one."""
    rows = ((x, 1), (cos, 1), (sin, 1)) if x.shape[1] > 1 else ()
    for each in attends:
        if isinstance(each.mask, Tensor):
            own_rows = ((each.span.positions, 1), (each.mask, 2)) if x.shape[1] > 1 else ()
            for tensor, dim in ((each.k, 2), (each.v, 2), (each.mask, 3), *own_rows, *rows):
                torch._dynamo.maybe_mark_dynamic(tensor, dim)


def group_size(num_layers: int, most: int) -> int:
    """Layers a graph holds: the most that leave no remainder."""
    return max(size for size in range(1, most + 1) if num_layers % size == 0)


def verify_widths(block_size: int) -> tuple[int, ...]:
    """The widths of verify passes where each needs a graph of its own; what is narrower is padded to the next."""
    return tuple(sorted({1, block_size, *(width for width in (4, 8, 16, 32) if width < block_size)}))


def doubled(first: int, last: int) -> list[int]:
    """first, twice that, ... and the last."""
    lengths = [min(first, last)]
    while lengths[-1] < last:
        lengths.append(min(2 * lengths[-1], last))
    return lengths


class CompiledEngine(Engine):
    """An engine whose draft and verify passes are compiled, and on CUDA recorded as graphs. Prefill runs eagerly.

    The CUDA part was written without a GPU at hand and has not been run yet.
    """

    most_layers = MOST_LAYERS

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        attention: AttentionFunction,
        *,
        name: str,
        max_len: int,
        batch_size: int = 1,
        before: Engine | None = None,
        artefacts: Path | None = None,
        widths: Sequence[int] | None = None,
    ) -> None:
        """`artefacts`: a folder for compiled code; `widths`: of verify passes, where each needs a graph of its own.

        Raises BackendUnavailable.
        """
        require_compiler(name, target.model.embed_tokens.weight.device)
        prepare_compiler(artefacts)
        super().__init__(target, drafter, attention, name=name, max_len=max_len, batch_size=batch_size, before=before)
        # Never quite all rows, which none needs: a slice that is no slice would be a shape of its own to the compiler.
        longest = self.num_rows - 1
        self.records = self.device.type == "cuda"
        if attention.whole_cache:
            self.lengths = [self.num_rows]
        elif self.records:
            self.lengths = doubled(GPU_SHORTEST, longest)
        else:
            self.lengths = [*range(CPU_STEP, longest, CPU_STEP), longest]
        if self.records or attention.whole_cache:
            self.widths = tuple(sorted({*(widths or verify_widths(self.block_size)), self.block_size}))
        self.layers = CompiledLayers(self.most_layers)
        self.recordings = Recordings(self._pass)
        self.recompiles, self.is_warm, self.trusts_guards = 0, False, True

    def shapes(self) -> list[tuple[str, int, int]]:
        """(kind of pass, rows of a block, cache rows read) of the passes that are run to compile all that may come."""
        widths, lengths = self.widths, self.lengths
        if widths is None:  # one graph for all widths but 1, and for all lengths: run twice, to make sure of it
            widths = tuple(sorted({1, min(2, self.block_size), self.block_size}, reverse=True))
            lengths = list(dict.fromkeys((lengths[0], lengths[-1])))
        kinds = [("verify", width) for width in widths]
        if self.drafter is not None:
            kinds.insert(0, ("draft", self.block_size))
        return [(kind, rows, length) for length in lengths for kind, rows in kinds]

    @torch.inference_mode()
    def warm_up(self, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        """Compile all there is to compile. `progress(done, total)` may raise, to stop; what is done stays done.

        The caches hold afterwards what they held before.
        """
        shapes = self.shapes()
        for done, (kind, num_rows, length) in enumerate(shapes):
            progress(done, len(shapes))
            with self.rows_kept(length - num_rows, length), self._explaining():
                self._warm(kind, num_rows, length)
                self.write_waiting_context()  # while what it overwrites is kept
        if self.device.type == "cpu":
            use_huge_pages()
        progress(len(shapes), len(shapes))
        self.is_warm = self.layers.is_complete = True

    def _warm(self, kind: str, num_rows: int, length: int) -> None:
        ids = torch.zeros(self.batch_size, num_rows, dtype=torch.long, device=self.device)
        self._run(kind, ids, [length - num_rows] * self.batch_size)

    def prefill(self, ids: Tensor, start: int, row: int = 0) -> Tensor:
        """ids [n] -> logits [V] after the last id. Its shapes follow the text, so it is not compiled."""
        with self._counting(), _stance(trusting=False):
            return super().prefill(ids, start, row)

    @torch.inference_mode()
    def draft(self, anchors: Tensor, start: Sequence[int]) -> Tensor:
        """anchors [B] -> logits [B, b-1, N]."""
        return self._run("draft", anchors.unsqueeze(1).expand(-1, self.block_size), self._places_seen(start))

    @torch.inference_mode()
    def verify(self, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, w] -> logits [B, w, V]; padded to the next width there is code for. The padding's rows are junk."""
        if self.widths is None:
            return self._run("verify", ids, start)
        width = ids.shape[1]
        wide = next(each for each in self.widths if each >= width)
        return self._run("verify", F.pad(ids, (0, wide - width)), start)[:, :width]

    def _run(self, kind: str, ids: Tensor, start: Sequence[int]) -> Tensor:
        """ids [B, T] -> logits, by the pass of the shortest length that holds all live rows."""
        live = max(start) + ids.shape[1]
        length = next(each for each in self.lengths if each >= live)
        placed = on_device(start, self.device)
        if self.is_warm and self.trusts_guards:
            try:
                with self._counting(), _stance(trusting=True):  # a GPU may still record
                    return self._recorded_or_run(kind, length, ids, placed, start)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # what torch says where it meets what no graph was made for
                self.trusts_guards = False
        with self._counting(), _stance(trusting=False):
            return self._recorded_or_run(kind, length, ids, placed, start)

    def _recorded_or_run(self, kind: str, length: int, ids: Tensor, placed: Tensor, start: Sequence[int]) -> Tensor:
        if self.records:
            return self.recordings(kind, length, ids, placed)
        return self._pass(kind, length, ids, placed, start)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raises BackendUnavailable for what compiling or recording raises, too little memory on a GPU apart.

        All of it is a RuntimeError, what the C++ compiler says and a recording that fails included, but for one.
        """
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise BackendUnavailable(
                f"the {self.name} backend cannot run here: compiling failed ({first.strip()}); use --backend eager"
            ) from error

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Whatever is compiled or recorded inside counts as a recompile, once the warm-up is over."""
        made = num_graphs() + len(self.recordings)
        yield
        if self.is_warm:
            self.recompiles += num_graphs() + len(self.recordings) - made

    def _pass(
        self, kind: str, length: int, ids: Tensor, start: Tensor, known_start: Sequence[int] | None = None
    ) -> Tensor:
        """The same for a `start` [B] on the device: nothing that is compiled or recorded depends on `known_start`."""
        span = FixedSpan(start, ids.shape[1], length, known_start)
        if kind == "draft":
            return self._draft_pass(ids[:, 0], span, self.layers)
        return self._verify_pass(ids, span, self.layers)


def create(
    target: Target,
    drafter: Drafter | None,
    *,
    max_len: int,
    batch_size: int,
    before: Engine | None = None,
    artefacts: Path | None = None,
    widths: Sequence[int] | None = None,
) -> Engine:
    """A compiled engine over a loaded pair, on a CPU or with CUDA. Raises BackendUnavailable."""
    return CompiledEngine(
        target,
        drafter,
        Sdpa(),
        name="compile",
        max_len=max_len,
        batch_size=batch_size,
        before=before,
        artefacts=artefacts,
        widths=widths,
    )
