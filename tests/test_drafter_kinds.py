"""Which drafter a `config.json` describes, and the formats of others, refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from backends.config import CheckpointError, DrafterConfig, TargetConfig
from backends.dflash import DFlashDrafter
from backends.drafter_kinds import new_drafter
from backends.eagle import EagleDrafter
from dflash_cli.pairing import mismatches
from tests.tiny import NO_CONTEXT, drafter_dict, eagle_dict, target_dict

EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 100}
SPECULATORS = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"}


@pytest.mark.parametrize(
    ("config", "kind"),
    [(drafter_dict(), DFlashDrafter), (drafter_dict(**NO_CONTEXT), DFlashDrafter), (eagle_dict(), EagleDrafter)],
)
def test_each_config_makes_its_drafter_and_fits_its_target(config: dict[str, Any], kind: type) -> None:
    read = DrafterConfig.from_dict(config)
    assert type(new_drafter(read)) is kind
    assert list(mismatches(TargetConfig.from_dict(target_dict()), read)) == []
    with pytest.raises(CheckpointError, match="a drafter, not a target"):
        TargetConfig.from_dict(config)


@pytest.mark.parametrize("reader", [DrafterConfig, TargetConfig])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (EAGLE3, r"EAGLE drafter \(LlamaForCausalLMEagle3\).*--arch eagle3"),
        (SPECULATORS, r"format of the speculators library \(eagle3\)"),
        ({"speculators_config": {}, "model_type": "speculator_model"}, "format of the speculators library"),
    ],
)
def test_formats_of_others_are_refused_by_name(reader: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        reader.from_dict(target_dict("llama", **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 2}, "has 2 layers; an EAGLE-3 drafter has 1"),
        ({"eagle3_config": {}}, "no 'target_layer_ids'"),
        ({"eagle3_config": {"target_layer_ids": []}}, "reads at least one layer"),
        ({"eagle3_config": {"target_layer_ids": [], "target_context": False}}, "reads at least one layer"),
        ({"block_size": None}, "no 'block_size'"),
        ({"attention_bias": True}, "attention_bias to True"),
    ],
)
def test_what_an_autoregressive_drafter_must_say_is_never_guessed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        DrafterConfig.from_dict(eagle_dict(**changes))


def test_taps_outside_the_target_do_not_fit() -> None:
    found = list(
        mismatches(
            TargetConfig.from_dict(target_dict()),
            DrafterConfig.from_dict(eagle_dict(eagle3_config={"target_layer_ids": [0, 9]})),
        )
    )
    assert found == ["taps [0, 9], expected different layer ids from 0 to 4"]
