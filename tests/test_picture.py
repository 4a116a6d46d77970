from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.picture import drawn, require_matplotlib


def test_what_wanted_a_picture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DFlashError, match=r"^a page needs matplotlib: pip install 'dflash-cli\[plot\]'$"):
        require_matplotlib("a page")


@pytest.mark.parametrize(("name", "begin"), [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")])
def test_the_name_decides_the_kind(name: str, begin: bytes) -> None:
    pytest.importorskip("matplotlib")
    assert drawn(require_matplotlib()(), Path(name)).startswith(begin)
    assert drawn(require_matplotlib()(), Path(name)).count(b"dc:date") == 0  # the same figure, the same bytes
