"""A run's target in another precision is refused, and what was saved before precision was goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.train.precision import check_precision, precision, quantised
from tests.tiny import make_target


def test_what_is_saved_is_what_is_compared() -> None:
    target = make_target()
    assert precision(target) == {"dtype": "float32", "quantize": "none"}
    assert quantised(target) is None
    for saved in ({}, {"dtype": "float32"}, precision(target)):
        check_precision(saved, target, Path("out"))
    with pytest.raises(DFlashError, match="out holds a run whose target has dtype 'bfloat16', now it has 'float32'"):
        check_precision({"dtype": "bfloat16"}, target, Path("out"))
    target.quantize = "int8"
    assert quantised(target) == "int8"
    with pytest.raises(DFlashError, match="pass --quantize none, or use another --out"):
        check_precision({"dtype": "float32", "quantize": "none"}, target, Path("out"))
