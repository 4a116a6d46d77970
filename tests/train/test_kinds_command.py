"""`dflash train-drafter` with the two drafters that DFlash is compared with, to the folder that `--draft` takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_cli.cli import main
from tests.train.lessons import write_prompts, write_target

SMALL = ["--block", "4", "--answer-tokens", "24", "--eval-tokens", "24", "--holdout", "2", "--batch", "4"]
SMALL += ["--anchors", "12", "--row-tokens", "300", "--steps", "20", "--eval-every", "20", "--lr", "0.01"]


@pytest.mark.parametrize(
    ("flags", "part", "words"),
    [
        (["--arch", "eagle3"], {"eagle3_config": {"target_layer_ids": [1, 2]}}, "An autoregressive drafter"),
        (
            ["--no-context", "--layers", "1"],
            {"dflash_config": {"mask_token_id": 261, "target_layer_ids": [], "target_context": False}},
            "without the target's hidden states",
        ),
    ],
    ids=["eagle3", "no-context"],
)
def test_from_prompts_to_a_drafter_that_drafts(
    flags: list[str], part: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, out = write_target(tmp_path / "target"), tmp_path / "out"
    where = ["--model", str(target), "--device", "cpu", "--dtype", "float32"]
    command = ["train-drafter", *where, "--out", str(out), "--prompts", str(write_prompts(tmp_path / "p.jsonl", 16))]
    assert main([*command, *SMALL, *flags]) == 0
    assert "done: τ " in capsys.readouterr().err
    config = json.loads((out / "config.json").read_text())
    assert config | part == config
    assert words in (out / "README.md").read_text()
    (tmp_path / "prompt").write_text("3 and 5")
    texts = []
    for draft in (str(out), "none"):
        asked = ["run", *where, "--draft", draft, "--json", "-n", "20", str(tmp_path / "prompt")]
        assert main(asked) == 0
        answer = json.loads(capsys.readouterr().out)
        texts.append(answer["text"])
        assert answer["block_size"] == (1 if draft == "none" else 4)
    assert texts[0] == texts[1]
    assert main([*command, *SMALL, *flags, "--plan"]) == 0
    assert "autoregressive" in (plan := capsys.readouterr().out) or "no context" in plan
    if "--no-context" in flags:
        assert main([*command, *SMALL, *flags, "--check"]) == 2
        assert "--check expects full blocks" in capsys.readouterr().err
