"""What every test gets: a home of its own, no network, no settings from outside."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when huggingface_hub is imported
# Read once, when torch is imported: tiny models gain nothing by threads, and those of two processes block each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Else setuptools puts its own distutils in place of the one that torch's compiler has imported by then, and fails.
os.environ.setdefault("SETUPTOOLS_USE_DISTUTILS", "stdlib")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # In a script's background Ctrl-C is ignored, by all that is started there too; here it is what is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# The same examples in each run, so that a failure repeats itself; `--hypothesis-profile search` draws others. However
# long one takes: machines are busy.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("repeatable")

SETTINGS_FROM_OUTSIDE = ("XDG_", "DFLASH_", "_DFLASH_", "HF_", "NO_COLOR", "FORCE_COLOR")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder; all folders of the user lie in it."""
    folder = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(SETTINGS_FROM_OUTSIDE):
            monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(folder / "hub"))
    return folder


@pytest.fixture(scope="session")
def embedded_target() -> Path:
    """The folder of the embedded pair's target, where this machine has it. Session scope: before `home` hides it."""
    from dflash_cli.fetch import cached

    folder = cached("embedded:smollm2-135m")
    if folder is None:
        pytest.skip("the embedded target is not cached: answer one prompt with `dflash run` first")
    return folder
