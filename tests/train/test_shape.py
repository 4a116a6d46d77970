"""The drafter to train: its mask token, its first weights, and that its config is what loaders read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backends.config import DrafterConfig
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.text import TextCodec
from dflash_cli.train.shape import config_dict, make_drafter, pick_mask_id, warm_config
from tests.byte_tokenizer import IM_END, VOCAB_SIZE, make_byte_tokenizer_folder
from tests.tiny import make_target, target_dict
from tests.train.lessons import PAIR, RECIPE, documents, write_target


@pytest.fixture
def codec(tmp_path: Path) -> TextCodec:
    return TextCodec.from_folder(make_byte_tokenizer_folder(tmp_path / "tokenizer"))


def test_the_mask_is_the_first_row_after_the_tokenizers_ids(codec: TextCodec) -> None:
    assert pick_mask_id(RECIPE, make_target().config, codec, documents()) == VOCAB_SIZE


def test_without_spare_rows_it_is_a_control_token_that_no_text_has(codec: TextCodec) -> None:
    target = replace(make_target().config, vocab_size=VOCAB_SIZE)
    found = pick_mask_id(RECIPE, target, codec, documents())
    assert codec.token_text(found) == "<|endoftext|>"
    assert found != IM_END
    used = [replace(document, ids=document.ids + type(document.ids)("i", [found])) for document in documents()]
    assert codec.token_text(pick_mask_id(RECIPE, target, codec, used)) == "<|im_start|>"
    for each in (found, 256):
        used = [replace(document, ids=document.ids + type(document.ids)("i", [each])) for document in used]
    with pytest.raises(DFlashError, match="pass --mask-id"):
        pick_mask_id(RECIPE, target, codec, used)


def test_layers_of_the_target_are_a_place_to_begin(tmp_path: Path) -> None:
    folder, target = write_target(tmp_path / "target", seed=4), make_target(seed=4)
    raw = config_dict(RECIPE, target.config, 271)
    drafter = make_drafter(replace(RECIPE, init="target"), raw, target, folder)
    stored = {2: 0, 4: 1}  # target layer -> drafter layer
    for source, layer in stored.items():
        found = drafter.layers[layer].mlp.up_proj.weight
        torch.testing.assert_close(found, target.model.layers[source].mlp.up_proj.weight * 0.2)
    assert all(each.requires_grad for each in drafter.parameters())
    with pytest.raises(UsageError, match="leave out --hidden"):
        make_drafter(replace(RECIPE, init="target"), raw | {"intermediate_size": 40}, target, folder)


def test_first_weights_depend_on_the_seed_alone() -> None:
    target = make_target()
    raw = config_dict(RECIPE, target.config, 271)
    torch.manual_seed(1)
    one = make_drafter(RECIPE, raw, target, Path())
    torch.manual_seed(2)
    assert torch.equal(make_drafter(RECIPE, raw, target, Path()).fc.weight, one.fc.weight)
    assert not torch.equal(make_drafter(replace(RECIPE, seed=9), raw, target, Path()).fc.weight, one.fc.weight)


def test_the_targets_rope_scaling_is_kept() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}  # fmt: skip
    config = type(make_target().config).from_dict(target_dict("llama", rope_scaling=scaling))
    raw = json.loads(json.dumps(config_dict(RECIPE, config, 271)))
    assert DrafterConfig.from_dict(raw).rope == config.rope


def test_a_warm_start_does_not_tell_where_the_other_drafter_lay(tmp_path: Path) -> None:
    target = make_target().config
    raw = config_dict(RECIPE, target, 271) | {"transformers_version": "5.0"}
    there = raw | {"_name_or_path": "/home/ann/drafter", "_commit_hash": "abc"}
    (tmp_path / "config.json").write_text(json.dumps(there))
    assert warm_config(tmp_path, PAIR, target) == raw
