"""Whether this machine can compile, and a folder for what is compiled, shared by all tests of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backends.base import BackendUnavailable
from backends.compiler import require_compiler


def _why_not() -> str:
    try:
        require_compiler("compile", torch.device("cpu"))
    except BackendUnavailable as error:
        return str(error)
    return ""


needs_compiler = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled code goes: compiling torch's headers alone takes seconds, so once a run."""
    return tmp_path_factory.getbasetemp() / "artefacts"
