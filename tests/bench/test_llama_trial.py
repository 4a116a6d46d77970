"""A build of llama.cpp that crashes is found out before it can end the benchmark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dflash_cli.bench.llama_trial import require_survival
from dflash_cli.bench.subject import PeerUnavailable

CRASHES = """
import os, signal
class Llama:
    def __init__(self, **options): print("noise")
    def generate(self, ids, temp):
        yield ids[0]
        os.kill(os.getpid(), signal.SIGSEGV)
        yield 1
"""
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signals there")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where another process finds a module `llama_cpp`."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "llama_cpp.py"


def test_a_crash_is_told_with_its_signal_and_what_to_do(module: Path) -> None:
    module.write_text(CRASHES)
    with pytest.raises(PeerUnavailable, match=r"ended by SIGSEGV in a trial with x\.gguf; .*GGML_NATIVE=OFF"):
        require_survival(Path("x.gguf"), 2)


@pytest.mark.parametrize(
    "text", ["class Llama:\n    pass\n", "raise ImportError\n", CRASHES.replace("SIGSEGV", "SIGCHLD")]
)
def test_what_it_says_in_words_is_left_to_who_loads_it(
    text: str, module: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module.write_text(text)
    require_survival(Path("x.gguf"), 2)
    assert capfd.readouterr() == ("", "")
