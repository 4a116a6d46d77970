from __future__ import annotations

import contextlib
import signal
import threading

import pytest

from dflash_cli.interrupts import Interrupts, uninterrupted


def test_a_signal_outside_a_call_is_noted() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested


def test_a_signal_inside_a_call_ends_it() -> None:
    with Interrupts() as interrupts:
        assert interrupts.call(lambda: 1) == 1
        assert not interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            interrupts.call(lambda: signal.raise_signal(signal.SIGINT))
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested


def test_a_swallowed_signal_is_noted() -> None:
    def swallow() -> str:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        return "done"

    with Interrupts() as interrupts:
        assert interrupts.call(swallow) == "done"
        assert interrupts.requested


def test_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)

    def fail() -> None:
        with Interrupts():
            assert signal.getsignal(signal.SIGINT) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert signal.getsignal(signal.SIGINT) == before


def test_another_thread_leaves_handlers_alone() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Interrupts() as interrupts:
                assert interrupts.call(lambda: 1) == 1
        except BaseException as err:
            failed.append(err)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed


def test_what_is_uninterrupted_runs_to_its_end() -> None:
    done = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert done == [1]
    assert uninterrupted(lambda: 5) == 5


def test_what_the_context_around_has_noted_counts_inside() -> None:
    with Interrupts() as around:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(lambda: None)
        with Interrupts() as inside:
            assert inside.requested
        assert around.requested


def test_what_was_noted_inside_is_over_outside() -> None:
    with Interrupts() as around:
        with Interrupts():
            signal.raise_signal(signal.SIGINT)
        assert not around.requested


def test_where_the_signal_is_ignored_it_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert interrupts.call(lambda: signal.raise_signal(signal.SIGINT)) is None
            assert not interrupts.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
