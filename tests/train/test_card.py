"""The model card: the hub can read it, everything measured is in it, and no name from a file can break it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from dflash_cli.config import Config
from dflash_cli.train.card import Trained, base_model, card
from dflash_cli.train.data import Data
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.shape import config_dict
from tests.tiny import MASK_ID, make_target
from tests.train.lessons import RECIPE, documents

EVIL = "s1|x\n---\n<script>"


def trained(**changes: object) -> Trained:
    measured = {
        "tau": 2.5, "rate": 0.4, "positions": [0.8, 0.5], "tau_by_source": {"s0": 2.25, EVIL: 3.0},
        "positions_by_source": {"s0": [0.75, 0.5]},
    }  # fmt: skip
    entries = [{"step": n, "tokens": 100 * n, "loss": 4.0 - n, "proxy_tau": 1.0} for n in (1, 2)]
    entries.append({"step": 2, "tokens": 200, **measured})
    held = [replace(each, source=EVIL if each.source == "s1" else "s0") for each in documents(3)]
    made = Trained(
        config=Config(model="smollm2-135m"), target="embedded:smollm2-135m", thinking=False,
        machine="Some CPU, 2 threads; torch 2.9", recipe=replace(RECIPE, license="apache-2.0"),
        data=Data(documents(5), held), step=2, tokens=200, seconds=600.0, measured=measured,
        curve=[(1, 100, 1.25), (2, 200, 2.5)], entries=entries,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def text(made: Trained, **raw: object) -> str:
    return card(config_dict(Recipe(prompts=("p",), taps=(1, 3)), make_target().config, MASK_ID) | raw, made)


def test_the_hub_reads_it() -> None:
    read = ModelCard(text(trained()))
    assert read.data.to_dict() == {
        "library_name": "dflash", "base_model": "HuggingFaceTB/SmolLM2-135M-Instruct", "license": "apache-2.0",
        "pipeline_tag": "text-generation", "tags": ["dflash", "speculative-decoding"],
    }  # fmt: skip
    assert read.text.strip().startswith("# DFlash drafter for embedded:smollm2-135m")
    assert "license" not in ModelCard(text(trained(recipe=RECIPE))).data.to_dict()


def test_everything_that_was_measured_is_in_it() -> None:
    found = text(trained())
    for line in (
        "| s0 | 2 | 2.25 | 0.75 0.50 |",
        "| all | 3 | 2.50 | 0.80 0.50 |",
        "Slots: the share of passes that kept this draft and all before it.",
        "2 steps, 200 answer tokens, 10 min on Some CPU, 2 threads; torch 2.9; dflash 0.1.0. Answers are the target's "
        "own. Thinking off.",
        "| s0 | 3 |",
        "            200   2.50  " + "▮" * 32,
        "the last doubling of the tokens brought +1.25",
        "| 2 | 200 | 2.500 | 2.50 | 2.25 | 3.00 |",
        "| block | 6 |",
        "| taps | 1,3 |",
        "dflash train-drafter --model smollm2-135m --prompts p ",
    ):
        assert line in found, line


def test_names_from_files_break_no_table() -> None:
    (line,) = [
        line for line in text(trained()).splitlines() if "script" in line and "2.5" not in line and "step" not in line
    ]
    assert line == r"| s1\|x --- &lt;script> | 1 | 3.00 |  |"


@pytest.mark.parametrize("name", ["[s1](http://x)", "`s1`", r"s1\|x", r"s1\[a](http://x)", "![s1](http://x)"])
def test_names_from_files_are_read_as_they_are(name: str) -> None:
    held = [replace(each, source=name) for each in documents(2)]
    measured = trained().measured | {"tau_by_source": {name: 3.0}}
    found = text(trained(data=Data(documents(5), held), measured=measured))
    section = found[found.index("## Measured") : found.index("## Training")]
    tokens = MarkdownIt().enable("table").parse(section)
    cell = tokens[[token.type for token in tokens].index("td_open") + 1]
    assert [(each.type, each.content) for each in cell.children or ()] == [("text", name)]


@pytest.mark.parametrize("fence", ["", "```", "````", "`" * 9])
def test_no_system_prompt_ends_its_block(fence: str) -> None:
    system = f"Be\n{fence}\n# kind\n{fence}"
    found = text(trained(config=Config(model="smollm2-135m", system=system)))
    fenced = [token.content for token in MarkdownIt().parse(found) if token.type == "fence"]
    (command,) = [each for each in fenced if "train-drafter" in each]
    assert system in command


def test_others_are_named_where_they_can_load_it() -> None:
    found = text(trained())
    assert '"method": "dflash", "model": "THIS_FOLDER", "num_speculative_tokens": 7}' in found
    assert "--model-path HuggingFaceTB/SmolLM2-135M-Instruct --speculative-algorithm DFLASH" in found
    more = {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1], "own": True}}
    assert "vLLM" not in text(trained(), **more)


def test_other_kinds_of_drafter_are_named() -> None:
    blind = {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [], "target_context": False}}
    assert "block 8, without the target's hidden states, mask id 1, bfloat16" in text(trained(), **blind)
    raw = {"num_hidden_layers": 1, "eagle3_config": {"block_size": 6, "target_layer_ids": [1, 2, 3]}}
    found = card(raw | {"block_size": 6}, trained())
    assert "(EAGLE-3, arXiv 2503.01840): 1 layers, block 6, taps 1, 2, 3, bfloat16" in found
    assert "vLLM" not in found


def test_targets_without_a_hub_id_have_no_base_and_no_place(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    folder = str(tmp_path / "mine")
    assert base_model(folder) is None
    assert base_model("Qwen/Qwen3-4B@main") == "Qwen/Qwen3-4B"
    found = text(trained(config=Config(model=folder), target=folder, measured=trained().measured))
    assert "# DFlash drafter for mine\n" in found
    assert str(tmp_path) not in found
    assert "base_model" not in found
    (tmp_path / "mine").rmdir()
    found = text(trained(config=Config(), target=folder))
    assert "--model mine " in found
    assert str(tmp_path) not in found


@pytest.mark.parametrize("count", [0, 300])
def test_runs_of_any_length_fit(count: int) -> None:
    made = trained()
    last = made.entries[-1]
    found = text(replace(made, entries=[last | {"step": n} for n in range(count)], curve=made.curve * 100))
    assert len(found.splitlines()) < 160
