"""A run goes on with what it was begun with, or it is said what has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from dflash_cli.errors import DFlashError
from dflash_cli.train.checkpoint import load_checkpoint, save_checkpoint
from dflash_cli.train.data import Data
from dflash_cli.train.trainer import CHECKPOINT
from tests.train.lessons import documents, write_target
from tests.train.test_trainer import SHORT, after, make_trainer


def test_another_recipe_or_other_data_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path).run(after(5))
    with pytest.raises(DFlashError, match=r"a run with lr None, now it is 0\.5; use another --out"):
        make_trainer(tmp_path, replace(SHORT, lr=0.5)).resume()
    other = make_trainer(tmp_path)
    other.data = Data(documents(11, seed=9), other.data.held)
    with pytest.raises(DFlashError, match="the data or the target"):
        other.resume()
    assert make_trainer(tmp_path, replace(SHORT, eval_every=2, save_every=1)).resume()


def test_a_target_in_another_precision_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path).run(after(5))
    other = make_trainer(tmp_path)
    other.model.target.quantize = "int8"
    with pytest.raises(DFlashError, match="target has quantize 'none', now it has 'int8'; pass --quantize none"):
        other.resume()
    assert make_trainer(tmp_path).resume()


def test_a_target_with_other_weights_does_not_go_on(tmp_path: Path) -> None:
    """Of the same shape, and with the same embedding."""
    source = write_target(tmp_path / "target")
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path, source=str(source)).run(after(5))
    again = make_trainer(tmp_path, source=str(source))
    assert again.resume()
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.2.mlp.down_proj.weight"] += 0.01
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(DFlashError, match=r"the target's checkpoint has changed since the run in .* was saved"):
        make_trainer(tmp_path, source=str(source)).resume()
    groups, saved = load_checkpoint(again.work / CHECKPOINT)
    del saved["checkpoint"]  # as an older version
    save_checkpoint(again.work / CHECKPOINT, groups, saved)
    assert make_trainer(tmp_path, source=str(source)).resume()
