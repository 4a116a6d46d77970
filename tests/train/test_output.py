"""What a run leaves: a drafter that the reference loads, a card and a curve to its end, also where the disk is full."""

from __future__ import annotations

import errno
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from dflash_cli.bench.peer_reference import reference_module
from dflash_cli.bench.subject import PeerUnavailable
from dflash_cli.cli import main
from dflash_cli.errors import DFlashError
from dflash_cli.train.report import Reporter
from tests.train.lessons import write_prompts, write_target
from tests.train.test_trainer import SHORT, make_trainer, never

SMALL = ["--block", "4", "--layers", "1", "--taps", "1,3", "--answer-tokens", "12", "--batch", "8", "--anchors", "4"]


@pytest.fixture(scope="module")  # before `home` hides the variable
def reference() -> ModuleType:
    try:
        return reference_module()
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.reference
def test_the_reference_loads_what_is_shipped(reference: ModuleType, tmp_path: Path) -> None:
    """All weights, none missing and none too many, and they are the ones that were measured."""
    trainer = make_trainer(tmp_path)
    trainer.run(never)
    theirs, told = reference.DFlashDraftModel.from_pretrained(
        tmp_path / "out", dtype=torch.float32, output_loading_info=True
    )
    assert not any(told.values()), told
    assert theirs.target_layer_ids == [1, 3]
    assert (theirs.block_size, theirs.mask_token_id) == (6, trainer.raw["dflash_config"]["mask_token_id"])
    if trainer.state.best_step == trainer.state.step:
        ours = {name: each.bfloat16().float() for name, each in trainer.weights().items()}
        assert all(torch.equal(each, ours[name]) for name, each in theirs.named_parameters())


def test_the_card_knows_the_end_of_the_run(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    assert not trainer.resume()
    trainer.run(never)
    card = ModelCard.load(tmp_path / "out" / "README.md")
    for step, tokens, tau in trainer.state.curve:
        assert f"| {step} | {tokens:,} | " in card.text
        assert f"| {tau:.2f} | " in card.text
    assert f"\n{trainer.state.best_step} steps, " in card.text
    assert str(tmp_path) not in card.text


def test_a_stop_shows_the_curve_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer(tmp_path, report=Reporter())
    assert not trainer.resume()
    with pytest.raises(KeyboardInterrupt):
        trainer.run(lambda: trainer.state.step >= 6)
    told = capsys.readouterr().err
    assert trainer.state.curve
    assert f"{trainer.state.curve[-1][1]:>15,}  {trainer.state.curve[-1][2]:5.2f}" in told
    assert told.splitlines()[-1] == f"dflash: saved at step {trainer.state.step}"


def test_a_drafter_that_no_disk_took_is_shipped_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Full to the end: the run fails and says so; with some space again the same command completes it."""
    whole = make_trainer(tmp_path / "whole")
    whole.run(never)
    trainer = make_trainer(tmp_path / "full", report=Reporter())
    real = Path.replace

    def full(self: Path, target: Any) -> Any:
        if trainer.state.step >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(DFlashError, match="No space left on device"):
            trainer.run(never)
    assert "Traceback" not in capsys.readouterr().err
    again = make_trainer(tmp_path / "full")
    assert again.resume()
    assert again.state.step < 9
    again.run(never)
    assert again.state == replace(whole.state, seconds=again.state.seconds, best=again.state.best)
    shipped = [(tmp_path / name / "out" / "model.safetensors").read_bytes() for name in ("whole", "full")]
    assert shipped[0] == shipped[1]


def test_a_full_disk_at_the_end_costs_what_is_written_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Card and picture: each is a line, the drafter of before stays whole."""
    pytest.importorskip("matplotlib")
    trainer = make_trainer(tmp_path, replace(SHORT, tensorboard=False), Reporter())
    real = Path.replace

    def full(self: Path, target: Path) -> Any:
        if target.name in ("curve.svg",) or (target.name == "README.md" and trainer.state.measured == 9):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    trainer.run(never)
    told = capsys.readouterr().err
    assert "curve.svg: No space left on device" in told
    assert "README.md: No space left on device; the model card does not know the end of the run" in told
    assert json.loads((tmp_path / "out" / "config.json").read_text())["block_size"] == 6
    assert not [path for path in (tmp_path / "out").rglob(".*") if path.is_file()]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    target, prompts = write_target(tmp_path / "target"), write_prompts(tmp_path / "prompts.jsonl", 12)
    where = ["--model", str(target), "--device", "cpu", "--dtype", "float32", "--out", str(tmp_path / "out")]
    return ["train-drafter", *where, "--prompts", str(prompts), "--holdout", "2", "--steps", "2", *SMALL]


def test_a_finished_folder_is_pushed_without_training(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("dflash_cli.train.push.check_hub", lambda repo, **given: asked.append(f"may {repo} {given}?"))
    monkeypatch.setattr("dflash_cli.train.push.push", lambda out, repo, _report, **_: asked.append(f"{out} {repo}"))
    assert main(arguments) == 0
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    steps = (tmp_path / "out" / "work" / "metrics.jsonl").read_text()
    assert asked == []
    assert main([*arguments, "--push-to-hub", "ann/x", "--public"]) == 0
    assert "going on from step 2 of 2" in capsys.readouterr().err
    assert asked == ["may ann/x {'public': True, 'offline': False}?", f"{tmp_path / 'out'} ann/x"]
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights
    assert (tmp_path / "out" / "work" / "metrics.jsonl").read_text() == steps
    card = (tmp_path / "out" / "README.md").read_text()
    assert "--push-to-hub ann/x --public" in card
    assert str(tmp_path) not in card


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--system", "Psst", "--public"], ["dflash: the model card in ann/x will show everyone your system prompt"]),
        (["--system", "Psst"], ["dflash: the model card in ann/x will show those who may see it your system prompt"]),
        ([], []),
    ],
)
def test_who_will_see_the_system_prompt_is_said_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    told: list[str],
) -> None:
    monkeypatch.setattr("dflash_cli.train.push.check_hub", lambda *_, **__: None)
    monkeypatch.setattr("dflash_cli.train.command.load_model", lambda *_, **__: exit(7))
    where = ["--model", "smollm2-135m", "--out", str(tmp_path / "out"), "--prompts", "p"]
    with pytest.raises(SystemExit):
        main(["train-drafter", *where, "--push-to-hub", "ann/x", *flags])
    assert [line for line in capsys.readouterr().err.splitlines() if "system prompt" in line] == told


def test_what_cannot_be_is_said_before_any_work(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    for flags, status, words in (
        (["--tensorboard"], 1, "pip install 'dflash-cli[tensorboard]'"),
        (["--push-to-hub", "ann/x"], 1, "--push-to-hub needs the network"),
        (["--push-to-hub", "x"], 2, "expected OWNER/NAME"),
        (["--public"], 2, "add --push-to-hub OWNER/NAME"),
        (["--license", "Ask me!"], 2, "names no licence"),
    ):
        assert main([*arguments, *flags]) == status
        assert words in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_the_plan_says_what_would_be_pushed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--plan", "--tensorboard", "--push-to-hub", "ann/x"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "output: drafter and model card, figures for TensorBoard, pushed to ann/x on the hub, private"


def test_tensorboard_is_written_where_asked_for(arguments: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert main([*arguments, "--tensorboard", "--quiet"]) == 0
    (file,) = (tmp_path / "out" / "work" / "tensorboard").iterdir()
    content = file.read_bytes()
    for tag in (b"training/loss", b"training/proxy_tau", b"hits/slot_03", b"training/lr", b"training/norm",
                b"measured/tau", b"tau_by_source/sums"):  # fmt: skip
        assert tag in content
