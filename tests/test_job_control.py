from __future__ import annotations

import os
import signal
import threading

import pytest

from dflash_cli.job_control import JobControl


def nothing() -> None:
    """What a test does not look at."""


@pytest.mark.skipif(not hasattr(signal, "SIGCONT"), reason="the system has no job control")
def test_the_terminal_is_taken_again_and_handlers_are_put_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGTERM)}
    taken: list[int] = []
    with JobControl(nothing, lambda: taken.append(1), nothing):
        os.kill(os.getpid(), signal.SIGCONT)
    assert taken == [1]
    assert {number: signal.getsignal(number) for number in before} == before


def test_what_somebody_else_handles_stays_so() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with JobControl(nothing, nothing, nothing):
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_handle_nothing() -> None:
    def use() -> None:
        with JobControl(nothing, nothing, nothing):
            found.append(signal.getsignal(signal.SIGTERM))

    found: list[object] = []
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]
