"""Whether llama.cpp survives a few tokens here, found out in a process of its own: a crash would end the benchmark.

Its builds choose instructions when they are compiled, and some of them do not run on every machine that has them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

from dflash_cli.bench.subject import PeerUnavailable

PROMPT = list(range(1, 9))  # ids that any vocabulary has
CONTEXT, TOKENS = 64, 2
CRASHES = (signal.SIGILL, signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT)
WITHOUT_THE_NEWEST = 'CMAKE_ARGS="-DGGML_NATIVE=OFF" pip install --force-reinstall --no-cache-dir llama-cpp-python'


def require_survival(path: Path, threads: int) -> None:
    """Raises PeerUnavailable where llama.cpp is ended by a signal. What it says in words is left to who loads it."""
    process = multiprocessing.get_context("spawn").Process(target=_answer, args=(str(path), threads), daemon=True)
    process.start()
    try:
        process.join()
    finally:
        if process.is_alive():  # interrupted
            process.kill()
            process.join()
    number = -(process.exitcode or 0)
    if number > 0:
        advice = f"; a build with fewer instructions may run: {WITHOUT_THE_NEWEST}" if number in CRASHES else ""
        raise PeerUnavailable(f"llama.cpp was ended by {_name(number)} in a trial with {path.name}{advice}")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those without a name
        return f"signal {number}"


def _answer(path: str, threads: int) -> None:
    """In the other process: load the file and say a few tokens, in silence."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    from llama_cpp import Llama  # type: ignore[import-not-found]

    model = Llama(model_path=path, n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False)
    for _ in zip(range(TOKENS), model.generate(PROMPT, temp=0.0), strict=False):
        pass
