"""Signals while a drafter is trained are noted; one that was ignored before stays so."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from dflash_cli.train.signals import SIGNALS, Stop


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stop() as stop:
        stop.check()
        signal.raise_signal(number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            stop.check()
    assert signal.getsignal(number) is before


def test_a_second_interrupt_ends_the_program() -> None:
    with Stop():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_what_is_ignored_stays_ignored() -> None:
    """As Ctrl-C is by `dflash train-drafter ... &` in a script: it is meant for the script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
