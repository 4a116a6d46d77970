"""A drafter that does not fit is refused in words, before any forward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backends.config import DrafterConfig, TargetConfig
from dflash_cli.errors import DFlashError
from dflash_cli.models import PAIRS, Pair
from dflash_cli.pairing import check_pair
from tests.tiny import drafter_dict, target_dict

TARGET = TargetConfig.from_dict(target_dict())
DRAFTER = DrafterConfig.from_dict(drafter_dict())
PAIR = Pair("tiny", "folder/target", "folder/drafter", None, (), "")


def test_a_fitting_pair_passes() -> None:
    check_pair(PAIR, TARGET, DRAFTER, None)
    check_pair(PAIR, TARGET, DRAFTER, ("same", "same"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 64}, "hidden size 64, the target has 32"),
        ({"num_target_layers": 36}, "number of target layers 36, the target has 5"),
        ({"vocab_size": 999}, "vocabulary size 999, the target has 272"),
        ({"rope": replace(DRAFTER.rope, theta=1e6)}, "RoPE theta 1e[+]06, the target has 10000"),
        ({"target_layer_ids": (1, 5)}, r"taps \[1, 5\], expected different layer ids from 0 to 4"),
        ({"target_layer_ids": (-1, 3)}, "taps"),
        ({"target_layer_ids": (3, 3)}, "taps"),
        ({"target_layer_ids": ()}, "taps"),
        ({"mask_token_id": 272}, "mask id 272, expected one below the vocabulary size 272"),
        ({"block_size": 1}, "block size 1"),
    ],
)
def test_each_mismatch_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DFlashError, match=words) as caught:
        check_pair(PAIR, TARGET, replace(DRAFTER, **change), None)
    assert "--draft none" in str(caught.value)


def test_other_tokenizers_are_told_apart() -> None:
    with pytest.raises(DFlashError, match="tokenizer"):
        check_pair(PAIR, TARGET, DRAFTER, ("one", "other"))


def test_the_drafter_that_fits_is_named() -> None:
    swapped = replace(PAIRS["qwen3-8b"], drafter=PAIRS["qwen3-4b"].drafter)
    with pytest.raises(DFlashError, match=r"drafter for this target is z-lab/Qwen3-8B-DFlash-b16"):
        check_pair(swapped, TARGET, replace(DRAFTER, hidden_size=2560), None)
    stray = replace(PAIR, drafter=PAIRS["qwen3-4b"].drafter)
    with pytest.raises(DFlashError, match=r"belongs to Qwen/Qwen3-4B"):
        check_pair(stray, TARGET, replace(DRAFTER, hidden_size=2560), None)
