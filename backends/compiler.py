"""What torch.compile needs on this machine, where its artefacts are kept, and how many graphs it has made."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import torch

from backends.base import BackendUnavailable

RECOMPILE_LIMIT = 128  # shapes of one function; torch's own limit of 8 is for those that never settle


def require_compiler(name: str, device: torch.device) -> None:
    """Raises BackendUnavailable, with what to install, where torch.compile cannot make code for `device`."""
    if device.type == "cuda":
        missing = _missing_for_cuda(device)
    elif device.type == "cpu":
        missing = _missing_for_cpu()
    else:
        missing = f"it is made for cpu and cuda, not for {device.type}"
    if missing:
        raise BackendUnavailable(f"the {name} backend cannot run here: {missing}; or use --backend eager")


def _missing_for_cuda(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "torch.compile needs triton on a GPU, which is not installed (`pip install triton`)"
    capability = torch.cuda.get_device_capability(device)
    if capability < (7, 0):
        return f"torch.compile needs a GPU of compute capability 7.0, this one has {capability[0]}.{capability[1]}"
    return _missing_for_cpu()  # triton's launchers are C code, too


def _missing_for_cpu() -> str | None:
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        return f"torch.compile needs a C++ compiler, and {compiler} is not there (install g++, or set CXX)"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.is_file():
        return f"torch.compile needs Python's headers, and {headers} is not there (install python3-dev)"
    return None


def prepare_compiler(artefacts: Path | None) -> None:
    """Let one function have many shapes, and keep compiled code in a folder, where another process finds it again."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    if artefacts is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(artefacts)
        os.environ["TRITON_CACHE_DIR"] = str(artefacts / "triton")
    _call_onednn_directly()


@functools.cache
def _call_onednn_directly() -> None:
    """In compiled code, put oneDNN's own operator in the place of `packed_linear`, whose detour through Python costs
    microseconds a call. Where torch's internals are not what they were it stays, and all is right but slower."""
    from backends import linears

    try:
        from torch._inductor.lowering import fallback_handler, register_lowering

        call = fallback_handler(torch.ops.mkldnn._linear_pointwise.default, add_to_fallback_set=False)
        lowering = register_lowering(torch.ops.dflash.packed_linear.default, type_promotion_kind=None)
    except (ImportError, AttributeError, TypeError):
        return
    lowering(lambda x, weight, bias, _size: call(x, weight, bias, *linears.NO_POST_OP))


def num_graphs() -> int:
    """Graphs that torch.compile has made in this process so far."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
