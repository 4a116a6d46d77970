"""Features on disk, so that a step never runs the target: safetensors shards, read a document at a time."""

from __future__ import annotations

import hashlib
import json
import shutil
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import megabytes
from dflash_cli.paths import ensure_private, write_private
from dflash_cli.train.documents import Document
from dflash_cli.train.features import FeatureReader, Features
from dflash_cli.train.precision import quantised
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop

SHARD_BYTES = 256_000_000  # what is held while it is made, twice while it is written
INDEX = "index.json"


class FeatureCache:
    """The features of `documents` by their number. Shards that are there already are not made again.

    `checkpoint`: the target's `checkpoint_hash`, "" where it has none.
    """

    def __init__(
        self, folder: Path, reader: FeatureReader, documents: Sequence[Document], checkpoint: str = ""
    ) -> None:
        self.folder, self.reader, self.documents, self.checkpoint = folder, reader, documents, checkpoint
        width = (len(reader.taps) + reader.wants_final) * reader.target.config.hidden_size
        sizes = [len(document.ids) * width * reader.target.model.embed_tokens.weight.itemsize for document in documents]
        self.begins = shard_begins(sizes, SHARD_BYTES)
        """The number of the first document of each shard."""
        self.num_bytes = sum(sizes)
        """What the whole cache takes on disk."""

    def make(self, report: Reporter, stop: Stop, ranks: Ranks | None = None) -> None:
        """Read what is missing, of several processes each its own shards.

        Raises DFlashError where it does not fit the disk, KeyboardInterrupt when stopped.
        """
        ranks = ranks or Ranks()
        ensure_private(self.folder)
        if ranks.first:
            self._check_index()
        ranks.meet(stop)
        missing = [number for number in range(len(self.begins)) if not self._shard(number).is_file()]
        self._check_space(len(missing) / max(1, len(self.begins)), report)
        mine = [number for number in missing if number % ranks.size == ranks.rank]
        with report.stage("features", len(mine)) as advance:
            for done, number in enumerate(mine, 1):
                write_private(self._shard(number), save(self._read(number)))
                advance(done, f"{megabytes(done * self.num_bytes // len(self.begins))} on disk")
                stop.check()
        ranks.meet(stop)

    def _check_space(self, share: float, report: Reporter) -> None:
        """`share`: of the cache, what is still to be made."""
        free = shutil.disk_usage(self.folder).free
        if self.num_bytes * share > free:
            raise DFlashError(
                f"--cache-features needs {megabytes(int(self.num_bytes * share))} in {self.folder}, {megabytes(free)} "
                "are free; make room, or leave it out: features are then made in each step"
            )
        report.tell(f"features: {megabytes(self.num_bytes)} in {self.folder}, {share:.0%} of it to be made")

    def __call__(self, chosen: list[int]) -> list[Features]:
        """The features of the documents with these numbers. Raises DFlashError for a damaged shard."""
        return [self._load(index) for index in chosen]

    def _check_index(self) -> None:
        """A cache of other documents or taps is not mixed with this one: it is removed."""
        index = self.folder / INDEX
        wanted = self._description()
        try:
            found = json.loads(index.read_bytes())
        except (OSError, ValueError):
            found = None
        if found != wanted:
            for path in self.folder.glob("*.safetensors"):
                path.unlink()
            write_private(index, json.dumps(wanted).encode())

    def _description(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for document in self.documents:
            digest.update(len(document.ids).to_bytes(4, "big") + document.ids.tobytes())
        target = self.reader.target
        weight, kept = target.model.embed_tokens.weight.detach(), quantised(target)
        return {
            "documents": digest.hexdigest(),
            "taps": list(self.reader.taps),
            "final": self.reader.wants_final,
            "dtype": str(weight.dtype),
            # Cheap, and another target's differ.
            "target": hashlib.sha256(weight[:: max(1, len(weight) // 64)].float().cpu().numpy().tobytes()).hexdigest(),
            # A target that was trained further may have the same embedding.
            "checkpoint": self.checkpoint,
            "shards": self.begins,
            # A quantised target has the plain one's embedding.
            **({"quantize": kept} if kept else {}),
        }

    def _shard(self, number: int) -> Path:
        return self.folder / f"{number:05d}.safetensors"

    def _read(self, number: int) -> dict[str, Tensor]:
        first, end = [*self.begins, len(self.documents)][number : number + 2]
        tensors = {}
        for index, each in enumerate(self.reader.read(self.documents[first:end]), first):
            tensors[f"taps.{index}"] = each.taps.cpu()
            if each.final is not None:
                tensors[f"final.{index}"] = each.final.cpu()
        return tensors

    def _load(self, index: int) -> Features:
        path = self._shard(bisect_right(self.begins, index) - 1)
        device = self.reader.device
        try:
            with safe_open(path, framework="pt") as file:
                taps = file.get_tensor(f"taps.{index}").to(device, copy=True)
                final = file.get_tensor(f"final.{index}").to(device, copy=True) if self.reader.wants_final else None
        except (SafetensorError, OSError) as error:
            raise DFlashError(f"{path} cannot be read ({error}); remove it, and it is made again") from None
        return Features(taps, final)


def shard_begins(sizes: Sequence[int], most: int) -> list[int]:
    """Where each shard begins: documents in order, at most `most` bytes of them together, and each at least one."""
    begins: list[int] = []
    held = 0
    for index, size in enumerate(sizes):
        if not begins or held + size > most:
            begins.append(index)
            held = 0
        held += size
    return begins
