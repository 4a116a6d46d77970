"""Keeps the figures of answers as they end; what a chat or a run holds. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dflash_cli.errors import DFlashError
from dflash_cli.interrupts import uninterrupted
from dflash_cli.stats_store.row import Baseline, Entry, Hashes, baseline_of, blocks_of, row_of

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.speculative import Decoder
    from dflash_cli.stats import AnswerStats
    from dflash_cli.stats_store.store import StatsStore
    from dflash_cli.trace import Recording

WAITING = 1000  # answers that are kept in memory while the file cannot be written


class TurnKeeper:
    """Writes a row for each answer, when it is over: nothing of it is in the decoding loop.

    An answer must not fail because its figures cannot be kept. So nothing here raises: what a person should know
    comes back as a remark, once, and what could not be written is tried again with the next answer.
    """

    def __init__(self, command: str, store: StatsStore | None = None) -> None:
        """`command`: who answers, "chat", "run" or "bench". Nothing is opened before the first answer."""
        self._command, self._store = command, store
        self._entries: list[Entry] = []
        self._baselines: list[Baseline] = []
        self._hashes: WeakKeyDictionary[object, str] = WeakKeyDictionary()  # of weights in memory
        self._has_told = False

    def remember(
        self,
        model: Model,
        decoder: Decoder,
        stats: AnswerStats,
        text: str,
        *,
        recording: Recording | None = None,
        plain: AnswerStats | None = None,
        later: bool = False,
    ) -> str:
        """Keep an answer that is over; a remark for people, or "". Does nothing where the setting `stats` is off.

        `text` is read for its kind and not kept. `recording` keeps the blocks in order as well. `plain`: the same
        prompt decoded plainly, which is the baseline of this pair, place and precision. `later`: nothing is written
        before `write`.
        """
        if not model.config.stats or not stats.ids:
            return ""
        try:
            row = row_of(model, decoder, stats, text, self._command, self._hashes_of(model))
            self._entries.append(Entry(row, "" if recording is None else blocks_of(recording)))
            if plain is not None and plain.tokens_per_s is not None and plain.reason != "interrupted":
                self._baselines.append(baseline_of(row, plain))
        except Exception as err:  # the answer is there and right: its bookkeeping must not take it away
            return self._tell(err)
        return "" if later else self.write()

    def remember_baselines(self, baselines: Iterable[Baseline]) -> str:
        """Keep what plain decoding was measured at; a remark for people, or ""."""
        try:
            self._baselines += baselines
        except Exception as err:  # they are made as they are taken
            return self._tell(err)
        return self.write()

    def write(self) -> str:
        """Write what was noted; a remark for people, or ""."""
        if not self._entries and not self._baselines:
            return ""
        try:
            return uninterrupted(self._write)
        except Exception as err:
            del self._entries[:-WAITING], self._baselines[:-WAITING]
            return self._tell(err)

    def _write(self) -> str:
        from dflash_cli.stats_store.store import StatsStore

        if self._store is None:
            self._store = StatsStore()
        self._store.add(self._entries, self._baselines)
        self._entries.clear()
        self._baselines.clear()
        self._has_told = False
        remark, self._store.remark = self._store.remark, ""
        return remark

    def close(self) -> None:
        """Try once more to write what could not be, and let go of the file."""
        self.write()
        if self._store is not None:
            self._store.close()

    def _hashes_of(self, model: Model) -> Hashes:
        pair = model.pair
        return Hashes(self._hash(pair.target, model.target), self._hash(pair.drafter, model.drafter))

    def _hash(self, source: str | None, weights: object | None) -> str:
        """Once for all that was loaded: what lies there may be other weights by and by."""
        from dflash_cli.stats_store.checkpoint import checkpoint_hash

        if weights is None:
            return ""
        if weights not in self._hashes:
            self._hashes[weights] = checkpoint_hash(source)
        return self._hashes[weights]

    def _tell(self, err: Exception) -> str:
        if self._has_told:
            return ""
        self._has_told = True
        why = str(err) if isinstance(err, DFlashError) else f"{type(err).__name__}: {err}"
        return f"{why}. The answers are not affected, only their figures (--no-stats keeps none)"
