"""Pictures without a display: what matplotlib draws, as PNG or SVG. Needs matplotlib. Imports no torch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from dflash_cli.errors import DFlashError

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#999999"  # of Okabe and Ito's palette, for all kinds of colour vision


def require_matplotlib(wanted: str = "--plot") -> Any:
    """Its class Figure, which needs no display. Raises DFlashError saying what `wanted` it, and what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DFlashError(f"{wanted} needs matplotlib: pip install 'dflash-cli[plot]'") from None
    return Figure


def drawn(figure: Any, path: Path) -> bytes:
    """The content of the file `path`, PNG or SVG by its name."""
    kind, output = path.suffix[1:].lower(), io.BytesIO()
    figure.savefig(output, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return output.getvalue()
