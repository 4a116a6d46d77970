"""Widths that change from block to block: the text stays the target's own, and the policy hears what came of each."""

from __future__ import annotations

import itertools
import json
import stat
from collections.abc import Sequence
from typing import Any

import pytest

from dflash_cli.adaptive import Adaptive
from dflash_cli.bench.machine import machine
from dflash_cli.depth import Depth
from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished
from dflash_cli.models import Pair
from dflash_cli.paths import cache_dir
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.tiny import make_drafter, make_engine, make_target

TARGET = make_target()
DRAFTER = make_drafter()
PROMPT = [5, 6, 7, 8, 9]
PAIR = Pair(name="tiny", target="tiny-target", drafter="tiny-drafter", thinking=None, expected=(), note="")


class Scripted:
    """A `Depth` that takes its widths from a list and remembers what it is told. `cuts`: what the drafts are cut to."""

    def __init__(self, *widths: int, cuts: Sequence[int] = (99,)) -> None:
        self.widths, self.cuts = itertools.cycle(widths), itertools.cycle(cuts)
        self.planned = 1
        self.chances: list[Sequence[Sequence[float]]] = []
        self.seen: list[tuple[int, list[tuple[int, int]]]] = []
        self.turns = 0

    def __call__(self, start: int) -> Any:
        self.start = start
        return self

    def width(self) -> int:
        self.planned = next(self.widths)
        return self.planned

    def fitted(self, chances: Sequence[Sequence[float]]) -> int:
        self.chances.append(chances)
        return min(self.planned, next(self.cuts))

    def observe_rows(
        self,
        width: int,
        rows: list[tuple[int, int]],
        draft_ms: float,
        verify_ms: float,
        chances: Sequence[Sequence[float]],
    ) -> None:
        assert verify_ms > 0
        assert chances == (self.chances[-1] if self.planned > 1 else [])
        assert (draft_ms > 0) == (self.planned > 1)
        self.seen.append((width, rows))

    def new_turn(self) -> None:
        self.turns += 1


def answer(decoder: Decoder, **request: Any) -> list[Event]:
    return list(decoder.generate(Request(PROMPT, **request)))


def ids_of(events: list[Event]) -> list[int]:
    return [each for event in events if not isinstance(event, BlockDrafted | Finished) for each in event.new_ids]


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0, seed=3)])
@pytest.mark.parametrize("widths", [(6, 1, 3, 2), (1,), (2, 5), (1, 6)])
def test_the_text_is_that_of_plain_decoding(widths: tuple[int, ...], params: SamplingParams) -> None:
    plain = ids_of(answer(Decoder(make_engine(TARGET), 1), max_new_tokens=60, params=params))
    depth = Scripted(*widths)
    events = answer(Decoder(make_engine(TARGET, DRAFTER), depth=depth), max_new_tokens=60, params=params)
    assert ids_of(events) == plain
    verified = [event for event in events if isinstance(event, BlockVerified)]
    assert depth.seen == [
        (width, [(event.accepted, event.num_drafted)])
        for width, event in zip(itertools.cycle(widths), verified, strict=False)
    ]
    assert sum(isinstance(event, BlockDrafted) for event in events) == sum(width > 1 for width, _ in depth.seen)
    assert (depth.turns, depth.start) == (1, 0)


def test_drafts_are_cut_to_what_the_drafter_thinks_of_them() -> None:
    plain = ids_of(answer(Decoder(make_engine(TARGET), 1), max_new_tokens=60))
    depth = Scripted(6, cuts=(6, 1, 3))
    events = answer(Decoder(make_engine(TARGET, DRAFTER), depth=depth), max_new_tokens=60)
    assert ids_of(events) == plain
    assert [width for width, _ in depth.seen[:6]] == [6, 1, 3, 6, 1, 3]
    drafted = [len(event.ids) for event in events if isinstance(event, BlockDrafted)]
    assert drafted[:4] == [5, 2, 5, 2], "where no draft is verified none is told"
    verified = [event for event in events if isinstance(event, BlockVerified)]
    assert verified[1].num_drafted == 0 < verified[1].draft_ms
    assert all(len(row) == 5 and all(0 < each <= 1 for each in row) for (row,) in depth.chances)
    assert len(depth.chances) == len(verified)


def test_rows_that_are_idle_are_not_asked() -> None:
    depth = Scripted(6)
    decoder = Decoder(make_engine(TARGET, DRAFTER, batch_size=3), depth=depth)
    requests = [Request(PROMPT, max_new_tokens=30), Request(PROMPT[:3], max_new_tokens=6)]
    list(decoder.generate_many(requests))
    assert {len(each) for each in depth.chances} == {1, 2}


def test_a_fixed_width_asks_no_one() -> None:
    depth = Scripted(1)
    decoder = Decoder(make_engine(TARGET, DRAFTER), 4, depth)
    answer(decoder, max_new_tokens=10)
    assert (decoder.depth, depth.seen, decoder.block_in_words) == (None, [], "blocks of 4")
    adaptive = decoder.with_width(None)
    assert (adaptive.depth, adaptive.block_in_words) == (depth, "blocks of up to 6")
    assert depth.start == decoder.resident[0].length > len(PROMPT)  # what is there must not be overwritten
    assert Decoder(make_engine(TARGET), None, depth).depth is None


def test_costs_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(TARGET, DRAFTER)
    make = Adaptive(PAIR, engine)
    depth = make(0)
    assert isinstance(depth, Depth)
    assert make(99) is depth
    assert depth.costs.is_measured(1)
    assert depth.costs.is_measured(6)
    path = cache_dir() / "costs.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = next(iter(json.loads(path.read_text())["entries"]))
    assert "tiny-drafter, blocks of 6, 2 layers" in key
    assert machine("cpu")["cpu"] in key
    monkeypatch.setattr(engine, "verify", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(engine, "draft", lambda *_: pytest.fail("measured again"))
    assert Adaptive(PAIR, engine)(0).costs.is_measured(6)


def test_a_drafter_of_another_shape_is_measured_for_itself() -> None:
    """A checkpoint that was trained anew keeps its name, not its cost."""
    drafters = (DRAFTER, make_drafter(block_size=4), make_drafter(num_hidden_layers=1, layer_types=["full_attention"]))
    keys = [Adaptive(PAIR, make_engine(TARGET, each))._key() for each in (*drafters, None)]
    assert len({str(key) for key in keys}) == 4


def test_costs_that_cannot_be_kept_are_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DFlashError("no space left")

    monkeypatch.setattr("dflash_cli.costs.write_private", full)
    assert Adaptive(PAIR, make_engine(TARGET, DRAFTER))(0).costs.is_measured(6)


def test_measuring_leaves_the_cache_as_it_was() -> None:
    engine = make_engine(TARGET, DRAFTER)
    decoder = Decoder(engine, 4, Adaptive(PAIR, engine))
    first = ids_of(answer(decoder, max_new_tokens=20))
    adaptive = decoder.with_width(None)
    longer = [*PROMPT, *first, 3]
    expected = ids_of(list(Decoder(make_engine(TARGET), 1).generate(Request(longer, max_new_tokens=20))))
    events = list(adaptive.generate(Request(longer, max_new_tokens=20)))
    assert ids_of(events) == expected
    assert events[0].reused_len >= len(PROMPT) + len(first) - 1  # type: ignore[union-attr]
