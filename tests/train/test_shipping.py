"""The best drafter lies in its folder with its own card, wherever the run is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import DFlashError
from dflash_cli.train.evaluate import Figures, Measured
from dflash_cli.train.sittings import FILE, read_sittings
from dflash_cli.train.trainer import Trainer
from tests.train.test_trainer import SHORT, make_trainer, never


def measure_as(monkeypatch: pytest.MonkeyPatch, taus: dict[int, float]) -> Any:
    """Let the next trainer measure these, by step; a function that says which trainer that is."""
    trainers: list[Trainer] = []

    def measured(*_: object) -> Measured:
        return Measured(Figures(passes=100, tokens=round(100 * taus[trainers[-1].state.step])), {})

    monkeypatch.setattr("dflash_cli.train.trainer.measure_together", measured)
    return trainers.append


def shipped(trainer: Trainer) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in trainer.out.iterdir() if path.is_file()}


@pytest.mark.parametrize("killed_at", ["model.safetensors", FILE])
def test_what_was_saved_as_the_best_and_not_shipped_is_shipped_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """Killed in between, and in the middle of shipping."""
    is_measured = measure_as(monkeypatch, {4: 1.5, 8: 2.0, 9: 1.25})
    recipe, real = replace(SHORT, save_every=1000), Path.replace
    whole, first = (make_trainer(tmp_path / name, recipe) for name in ("whole", "killed"))
    is_measured(whole)
    whole.run(never)

    def kill(self: Path, to: Path) -> Any:
        if first.state.step == 8 and to.name == killed_at:
            raise MemoryError
        return real(self, to)

    is_measured(first)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        with pytest.raises(MemoryError):
            first.run(never)
    assert read_sittings(first.out)[-1].steps == 4
    second = make_trainer(tmp_path / "killed", recipe)
    is_measured(second)
    assert second.resume()
    assert second.state.step == second.state.best_step == 8
    assert read_sittings(first.out)[-1].steps == 8
    second.run(never)
    (ours, theirs), names = (shipped(each) for each in (second, whole)), ("config.json", "model.safetensors")
    assert [ours[name] for name in names] == [theirs[name] for name in names]
    assert b"\n8 steps, " in ours["README.md"]


def test_a_run_that_goes_on_before_what_it_shipped_leaves_that_with_its_own_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk took the drafter of step 8 and not the checkpoint, and then the process was killed."""
    is_measured = measure_as(monkeypatch, {4: 1.5, 8: 2.0})
    first = make_trainer(tmp_path)
    is_measured(first)
    real = first.save

    def save() -> None:
        if first.state.step == 8:
            raise DFlashError("No space left on device")
        real()

    def die() -> bool:
        if first.state.best_step == 8:
            raise MemoryError
        return False

    first.save = save  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        first.run(die)
    before = shipped(first)
    assert read_sittings(first.out)[-1].steps == 8
    second = make_trainer(tmp_path)
    assert second.resume()
    assert second.state.best_step == 4
    with pytest.raises(KeyboardInterrupt):
        second.run(lambda: second.state.step == 7)
    assert shipped(second) == before
