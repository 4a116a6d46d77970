"""A `config.json` whose values have the wrong type: what was found and what was expected, never a traceback."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.config import CheckpointError, DrafterConfig, TargetConfig
from tests.tiny import drafter_dict, target_dict

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hidden_size", "32", "config.json has hidden_size '32'; expected a number"),
        ("hidden_size", 32.5, "config.json has hidden_size 32.5; expected a whole number"),
        ("hidden_size", 0, "config.json has hidden_size 0; expected at least 1"),
        ("num_hidden_layers", [5], r"num_hidden_layers \[5\]; expected a number"),
        ("vocab_size", True, "vocab_size True; expected a number"),
        ("rope_theta", {}, "rope_theta {}; expected a number"),
        ("rope_scaling", "linear", "rope_scaling 'linear'; expected an object"),
        ("layer_types", "full_attention", "layer_types 'full_attention'; expected an array of strings"),
        ("rms_norm_eps", float("nan"), "rms_norm_eps nan; expected a number"),
        ("num_key_value_heads", 0, "4 query heads over 0 kv heads"),
    ],
)
def test_a_targets_values_have_types(key: str, value: object, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        TargetConfig.from_dict(target_dict(**{key: value}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"block_size": "6"}, "block_size '6'; expected a number"),
        ({"dflash_config": []}, r"dflash_config \[\]; expected an object"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": "13"}}, "target_layer_ids '13'; expected an array"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": ["1"]}}, "expected an array of whole numbers"),
        ({"architectures": 3}, "architectures 3; expected an array of strings"),
    ],
)
def test_a_drafters_values_have_types(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        DrafterConfig.from_dict(drafter_dict(**change))


@given(key=st.sampled_from(sorted(target_dict())), value=JSON)
def test_no_value_of_a_target_breaks_the_reading(key: str, value: object) -> None:
    with suppress(CheckpointError):
        assert isinstance(TargetConfig.from_dict(target_dict(**{key: value})), TargetConfig)


@given(key=st.sampled_from(sorted(drafter_dict())), value=JSON)
def test_no_value_of_a_drafter_breaks_the_reading(key: str, value: object) -> None:
    with suppress(CheckpointError):
        assert isinstance(DrafterConfig.from_dict(drafter_dict(**{key: value})), DrafterConfig)
