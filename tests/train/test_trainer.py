"""The loop: resumed equals uninterrupted, rows cut differently learn the same, disasters leave the last good state."""

from __future__ import annotations

import errno
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.train.data import Data
from dflash_cli.train.documents import Mixture
from dflash_cli.train.order import indices
from dflash_cli.train.precision import other_threads
from dflash_cli.train.recipe import Recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.saved_chats import SOURCE
from dflash_cli.train.shape import config_dict, make_drafter
from dflash_cli.train.signals import Stop
from dflash_cli.train.sittings import FILE, read_sittings, record
from dflash_cli.train.trainer import CHECKPOINT, Trainer
from tests.tiny import MASK_ID, make_target
from tests.train.lessons import PAIR, RECIPE, documents, make_model, weights

SHORT = replace(RECIPE, steps=9, eval_every=4, save_every=2)


def make_trainer(
    folder: Path, recipe: Recipe = SHORT, report: Reporter | None = None, source: str = PAIR.target
) -> Trainer:
    """`source`: where the target is said to come from."""
    target = make_target(seed=5)
    model = replace(make_model(folder / "tokenizer", target), pair=replace(PAIR, target=source))
    raw = config_dict(recipe, target.config, MASK_ID)
    drafter = make_drafter(recipe, raw, target, folder)
    data = Data(documents(11, seed=1), documents(3, seed=2))
    trainer = Trainer(recipe, model, drafter, raw, data, folder / "out", report or Reporter(quiet=True))
    if recipe.cache_features:
        trainer.cache_features(Stop())
    return trainer


def never() -> bool:
    return False


def after(calls: int) -> Any:
    """A stop that comes at that call."""
    count = iter(range(10_000))
    return lambda: next(count) >= calls


def figures(trainer: Trainer) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in trainer.metrics.path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {}, "adamw": {"optimizer": "adamw"}, "ema": {"ema": 0.9}, "d-pace": {"loss": "d-pace"},
    "random": {"masking": "random"}, "kl": {"loss": "kl"}, "loss-vocabulary": {"loss_vocabulary": 64},
    "cached": {"loss": "kl", "cache_features": True}, "warm": {"warm_start": "begun"},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_resumed_equals_uninterrupted_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = replace(SHORT, **change)
    if recipe.warm_start is not None:
        make_trainer(tmp_path / "first", replace(SHORT, steps=2)).run(never)
        (tmp_path / "first" / "out").rename(recipe.warm_start)
    whole = make_trainer(tmp_path / "whole", recipe)
    assert not whole.resume()
    whole.run(never)
    # Wherever the signal comes: between steps, or while it is measured.
    for calls in (2, 9, 17) if not change else (7,):
        place = tmp_path / f"parts{calls}"
        first = make_trainer(place, recipe)
        assert not first.resume()
        with pytest.raises(KeyboardInterrupt):
            first.run(after(calls))
        second = make_trainer(place, recipe)
        assert second.resume()
        second.run(never)
        ours, theirs = weights(whole.drafter), weights(second.drafter)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert all(torch.equal(whole.weights()[name], second.weights()[name]) for name in ours)
        assert figures(second) == figures(whole)
        assert (place / "out" / "model.safetensors").read_bytes() == (
            tmp_path / "whole" / "out" / "model.safetensors"
        ).read_bytes()


def test_killed_without_a_word_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    whole = make_trainer(tmp_path / "whole")
    whole.run(never)
    first = make_trainer(tmp_path / "killed")

    def die() -> bool:
        if first.state.step == 7:
            raise MemoryError
        return False

    with pytest.raises(MemoryError):
        first.run(die)
    second = make_trainer(tmp_path / "killed")
    assert second.resume()
    assert second.state.step == 6
    second.run(never)
    assert all(torch.equal(each, weights(second.drafter)[name]) for name, each in weights(whole.drafter).items())
    assert figures(second) == figures(whole)


def test_a_run_may_go_on_for_longer_or_shorter_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trainer(tmp_path).run(never)
    longer = make_trainer(tmp_path, replace(SHORT, steps=14), Reporter())
    assert longer.resume()
    assert "the run was to take 9 steps, now 14" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        longer.run(after(8))
    assert 9 < longer.state.step < 13
    with pytest.raises(UsageError, match=f"is at step {longer.state.step}, past the 4 asked for"):
        make_trainer(tmp_path, replace(SHORT, steps=4)).resume()
    stopped_at = longer.state.step
    last = make_trainer(tmp_path, replace(SHORT, steps=13))
    assert last.resume()
    last.run(never)
    assert last.state.step == 13
    assert [tuple(each) for each in last.state.given_up] == [(9, 9), (stopped_at, 14)]
    again = make_trainer(tmp_path, replace(SHORT, steps=13))
    assert again.resume()
    assert len(again.state.given_up) == 2
    (sitting,) = read_sittings(tmp_path / "out")
    assert sitting.given_up == [(9, 9), (stopped_at, 14)]
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"how fast the learning rate fell: 9 until step 9, 14 until step {stopped_at}." in card


def test_the_size_of_rows_changes_no_gradient(tmp_path: Path) -> None:
    """One normaliser for the step: many small rows add up to what one large row gives."""
    found = []
    for limit in (64, 5000):
        trainer = make_trainer(tmp_path / str(limit), replace(SHORT, row_tokens=limit, steps=1, eval_every=5))
        trainer.learner.optimizers.step = lambda _step: 0.0  # type: ignore[method-assign]
        chosen = indices(0, trainer.recipe, trainer.data.mixture)
        rows = trainer.learner.rows([(epoch, index, trainer.data.train[index]) for epoch, index in chosen])
        loss, _ = trainer.learner.learn(rows, trainer.read([index for _, index in chosen]), 0)
        found.append((len(rows), loss.loss, {name: each.grad for name, each in trainer.learner.named.items()}))
    (many, first, ours), (one, second, theirs) = found
    assert many > one == 1
    assert first == pytest.approx(second, rel=1e-5)
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], atol=1e-5, rtol=1e-3)


def test_documents_come_once_an_epoch_in_new_orders() -> None:
    recipe = Recipe(prompts=("p",), batch=4)
    mixture = Mixture(documents(8), {})
    seen = [each for step in range(6) for each in indices(step, recipe, mixture)]
    for epoch in range(3):
        assert sorted(index for found, index in seen if found == epoch) == list(range(8))
    assert [index for epoch, index in seen if epoch == 0] != [index for epoch, index in seen if epoch == 1]


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    good = trainer.read
    trainer.read = lambda chosen: [
        each._replace(taps=each.taps * (torch.nan if trainer.state.step == 5 else 1)) for each in good(chosen)
    ]
    with pytest.raises(DFlashError, match=r"loss is nan at step 6: training has diverged; the last good checkpoint"):
        trainer.run(never)
    again = make_trainer(tmp_path)
    assert again.resume()
    assert again.state.step == 4
    assert all(each.isfinite().all() for each in weights(again.drafter).values())


def test_a_full_disk_costs_a_checkpoint_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make_trainer(tmp_path, report=Reporter())
    real = Path.replace

    def full(self: Path, target: Any) -> Any:
        if trainer.state.step == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    trainer.run(never)
    told = capsys.readouterr().err
    assert "No space left on device; training goes on with the checkpoint before it" in told
    assert "No space left on device; training goes on\n" in told  # the drafter of step 4 could not be shipped
    assert trainer.state.step == 9
    assert not [path for path in trainer.work.iterdir() if path.name.startswith(".")]
    assert make_trainer(tmp_path).resume()


def test_a_run_with_saved_chats_behind_it_does_not_go_on_to_everyone(tmp_path: Path) -> None:
    """Also where the drafter it began with is gone."""
    make_trainer(tmp_path / "begun", replace(SHORT, steps=1)).run(never)
    begun = tmp_path / "begun" / "out"
    sittings = [replace(each, data={SOURCE: 3}) for each in read_sittings(begun)]
    (begun / FILE).write_bytes(record(sittings))
    recipe = replace(SHORT, warm_start=str(begun))
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path, recipe).run(after(5))
    (begun / FILE).write_bytes(record([]))
    with pytest.raises(UsageError, match="learned from saved chats and may repeat them; leave --public out"):
        make_trainer(tmp_path, replace(recipe, public=True)).resume()
    assert make_trainer(tmp_path, recipe).resume()


def test_other_threads_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path).run(after(5))
    assert make_trainer(tmp_path, replace(SHORT, threads=3), Reporter()).resume()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert make_trainer(tmp_path, report=Reporter()).resume()
    (line,) = capsys.readouterr().err.splitlines()
    assert "saved with 3 CPU threads and goes on with 2: from here on it is no longer bit for bit" in line
    assert line.endswith("pass --threads 3 for that")
    assert other_threads(3, torch.device("cuda")) is None
    assert other_threads(None, torch.device("cpu")) is None  # saved by an older version


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.work.mkdir(parents=True)
    (trainer.work / CHECKPOINT).write_bytes(b"half a file")
    with pytest.raises(DFlashError, match=r"checkpoint\.safetensors cannot be read"):
        trainer.resume()


def test_the_running_mean_is_what_is_measured_and_shipped(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, replace(SHORT, ema=0.9, steps=2, eval_every=1))
    begun = weights(trainer.drafter)
    trainer.run(never)
    name = "fc.weight"
    moved, mean = (trainer.drafter.fc.weight - begun[name]).norm(), (trainer.weights()[name] - begun[name]).norm()
    assert 0 < mean < moved * 1.01
    assert not torch.equal(trainer.weights()[name], trainer.drafter.fc.weight)


def test_measuring_shows_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_cli.train.report.SECONDS_BETWEEN_LINES", 0.0)
    make_trainer(tmp_path, replace(SHORT, steps=1), Reporter()).run(never)
    told = capsys.readouterr().err.splitlines()
    shown = [line for line in told if line.startswith("dflash: measuring ")]
    assert [line.split()[2] for line in shown] == ["1/3", "2/3"]
    assert all(re.search(r"(a second|s each) · .* left · peak [\d.]+ GB$", line) for line in shown)
