"""The Python API as the README shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dflash_cli
from dflash_cli import load
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.events import BlockVerified, Finished, Prefilled
from dflash_cli.models import PAIRS
from tests.tiny import write_pair


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"))
    return load(str(target), draft=str(drafter), dtype="float32", device="cpu", max_new_tokens=30)


def test_events_and_text_are_the_same_answer(model: Any) -> None:
    events = list(model.events("hello"))
    assert isinstance(events[0], Prefilled)
    assert isinstance(events[-1], Finished)
    ids = [each for event in events if isinstance(event, Prefilled | BlockVerified) for each in event.new_ids]
    pieces = list(model.stream("hello"))
    assert len(ids) == 30
    assert "".join(pieces) == model.codec.decode(ids).removesuffix("\ufffd")  # half a character at the end
    assert all(pieces)


def test_a_decoder_can_be_kept(model: Any) -> None:
    decoder = model.decoder()
    first = "".join(model.stream("hello", decoder))
    events = list(model.events("hello", decoder))
    assert events[0].reused_len == events[0].prompt_len - 1
    assert "".join(model.stream("hello", decoder)) == first


def test_other_settings_need_no_loading(model: Any) -> None:
    short = model.with_config(max_new_tokens=3, block=2)
    assert sum(len(e.new_ids) for e in short.events("hello") if isinstance(e, Prefilled | BlockVerified)) == 3
    assert short.target is model.target


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        dflash_cli.nothing  # noqa: B018
    with pytest.raises(UsageError, match="unknown setting 'temprature'; did you mean 'temperature'"):
        load("smollm2-135m", temprature=1.0)
    for wrong in ({"stop": "END"}, {"context": 0}, {"dtype": "bf16"}, {"temperature": "hot"}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))}: found"):
            load("smollm2-135m", **wrong)


def test_a_path_is_a_model(model: Any) -> None:
    folder = Path(model.pair.target)
    other = load(folder, draft=Path(model.pair.drafter), dtype="float32", device="cpu")
    assert (other.pair.target, other.pair.drafter) == (model.pair.target, model.pair.drafter)


def test_what_needs_loading_cannot_be_changed_later(model: Any) -> None:
    with pytest.raises(UsageError, match="context cannot be changed after loading"):
        model.with_config(context=64)


def test_an_older_answer_of_a_decoder_cannot_go_on(model: Any) -> None:
    decoder = model.decoder()
    older = model.events("hello", decoder)
    next(older)
    expected = [event.new_ids for event in model.events("bye") if isinstance(event, Prefilled | BlockVerified)]
    newer = model.events("bye", decoder)
    first = next(newer)
    with pytest.raises(DFlashError, match="has begun another answer"):
        list(older)
    got = [first, *newer]
    assert [event.new_ids for event in got if isinstance(event, Prefilled | BlockVerified)] == expected


def test_the_baseline_has_no_drafter(model: Any) -> None:
    assert model.plain_decoder().backend.block_size == 1
    assert model.with_config(block=1).decoder().backend.drafter is None


def test_weights_on_disk_are_not_changed(tmp_path: Path) -> None:
    target, _ = write_pair(tmp_path)
    before = (target / "model.safetensors").read_bytes()
    list(load(str(target), dtype="float32", max_new_tokens=5).stream("x"))
    assert (target / "model.safetensors").read_bytes() == before


def test_an_answer_ends_where_the_pair_says_unless_asked_otherwise(model: Any) -> None:
    bounded = replace(model.with_config(max_new_tokens=None), pair=replace(model.pair, max_new_tokens=7))
    assert bounded.request([1]).max_new_tokens == 7
    assert bounded.with_config(max_new_tokens=9).request([1]).max_new_tokens == 9
    assert replace(bounded, pair=model.pair).request([1]).max_new_tokens is None
    assert PAIRS["smollm2-135m"].max_new_tokens  # a small model can repeat itself for ever
