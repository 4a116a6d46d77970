"""An answer from its recording: the same states, at any speed, and what is left alone."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dflash_cli.errors import UsageError
from dflash_cli.events import BlockDrafted, BlockVerified, Event, Finished, Prefilled
from dflash_cli.overlay_live import Overlay
from dflash_cli.replay import parse_speed, play, replay, stats_of, thinking_flags
from dflash_cli.trace import Head, Recording, Step
from tests.small_terminal import SmallTerminal

HEAD = Head(1, "0", "pair", "target", None, "eager", "cpu", "float32", 4, "2026-01-01T00:00:00+00:00")


def recording(*steps: tuple[Event, Sequence[str], float]) -> Recording:
    return Recording(HEAD, tuple(Step(event, tuple(texts), at_s) for event, texts, at_s in steps))


ANSWER = recording(
    (Prefilled(3, 0, (1,), 1.0), ["A"], 0.0),
    (BlockDrafted(3, (2, 3)), [" b", "X\x1b[2J"], 0.1),
    (BlockVerified(3, 1, (2, 4), 2, 1.0, 1.0), [" b", " \x1b[2Jc"], 0.2),
    (BlockDrafted(5, (2, 3)), [".", "!"], 0.3),
    (BlockVerified(5, 0, (9,), 2, 1.0, 1.0), ["?"], 0.4),
    (Finished("stop", 400.0), [""], 0.4),
)


@pytest.mark.parametrize(("word", "speed"), [("", 1), ("0.25", 0.25), ("4", 4), ("2x", 2), ("1.5X", 1.5)])
def test_speeds(word: str, speed: float) -> None:
    assert parse_speed(word) == speed


@pytest.mark.parametrize("word", ["0", "-1", "fast", "inf", "nan", "x", "1e999", "2xx"])
def test_what_is_no_speed(word: str) -> None:
    with pytest.raises(UsageError, match=r"such as 0\.25, 1 or 4x; found"):
        parse_speed(word)


def test_steps_come_at_their_times() -> None:
    begun, times = time.perf_counter(), []
    assert play(ANSWER, 4, lambda _step, _flags: times.append(time.perf_counter() - begun))
    assert len(times) == 6
    assert all(at >= step.at_s / 4 - 0.01 for at, step in zip(times, ANSWER.steps, strict=True))
    assert times[-1] < 30


def test_the_figures_of_a_recording() -> None:
    """As they were, not as fast as they are read: of one that broke off, up to where it did."""
    assert stats_of(ANSWER).summary() == "4 tokens · 7.5 tok/s · τ 1.50 · 25% of drafts accepted"
    broken = replace(ANSWER, steps=ANSWER.steps[:4])
    assert stats_of(broken).summary() == "3 tokens · 6.7 tok/s · τ 2.00 · 50% of drafts accepted · interrupted"
    assert stats_of(replace(ANSWER, steps=())).summary() == "0 tokens · interrupted"


def test_ctrl_c_ends_it_early() -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    seen: list[Step] = []
    begun = time.perf_counter()
    assert not play(ANSWER, 0.001, lambda step, _flags: seen.append(step))
    assert time.perf_counter() - begun < 60
    assert seen == [ANSWER.steps[0]]
    timer.join()


class Screen(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_it_is_drawn_in_full_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Screen()
    overlay = Overlay(stream, "tokens", "tol", has_color=True)
    codec: Any = None
    with overlay.answer(codec, ()) as live:
        live.add(ANSWER.steps[0].event, texts=["x"])
        live.add(ANSWER.steps[-1].event, texts=[""])
    before = overlay._state
    stream.seek(0)
    stream.truncate()
    assert replay(ANSWER, overlay, 20)
    terminal = SmallTerminal(80, 24)
    terminal.write(stream.getvalue())
    assert terminal.lines[:2] == ["A b ␛[2Jc?", "▮ kept ▯ rejected  ▮▯ ▯▯"]
    assert terminal.lines[2].startswith("tokens per pass    τ 1.50, 7.5 tok/s  ")
    assert (overlay.mode, overlay._state) == ("tokens", before)
    overlay.replay()


def test_in_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert replay(ANSWER, Overlay(stream, None, "tol", has_color=False), 0.001), "a pipe does not wait"
    assert stream.getvalue() == "A[ b]~X␛[2J~+ ␛[2Jc~.!~+?\n"


def thinking(*texts: str) -> Recording:
    first, *rest = texts
    count = len(rest)
    return recording(
        (Prefilled(3, 0, (1,), 1.0), [first], 0.0),
        (BlockVerified(3, 0, (1,) * count, 0, 1.0, 1.0), rest, 0.1),
        (Finished("stop", 100.0), ["end"], 0.1),
    )


@pytest.mark.parametrize(
    ("texts", "flags"),
    [
        (("Yes", "."), "..."),
        (("<think>", "so", "</think>", "Yes"), "ttt.."),
        (("\n", "<think>", "so", "</think>", "Yes"), ".ttt.."),
        (("so", "</think>", "Yes"), "tt.."),
        (("<think>", "so"), "tt."),
        (("Say", "<think>", "!"), "...."),
    ],
)
def test_thinking_is_known_by_its_tags(texts: tuple[str, ...], flags: str) -> None:
    found = [flag for step in thinking_flags(thinking(*texts).steps) for flag in step]
    assert found == [each == "t" for each in flags[: len(texts)]]


def test_hidden_thinking_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    steps = thinking("<think>", "so", "</think>", "Yes")
    replay(steps, Overlay(stream, None, "tol", has_color=False), 1, show_thinking=False)
    assert stream.getvalue() == "thinking: 3 tokens · 0.1 s\n\nYesend\n"
    assert thinking_flags([]) == []
    assert play(replace(steps, steps=()), 1, lambda _step, _flags: None)
