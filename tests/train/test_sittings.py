"""Several sittings: tokens, steps, data and the curve of the earlier ones go on in the card of the next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_cli.cli import main
from dflash_cli.errors import DFlashError
from dflash_cli.train.checkpoint import load_checkpoint, save_checkpoint
from dflash_cli.train.sittings import FILE, Sitting, later, read_sittings, record, recorded_sittings, whole_curve
from dflash_cli.train.trainer import CHECKPOINT
from tests.train.lessons import write_prompts, write_target
from tests.train.test_card import text, trained
from tests.train.test_trainer import SHORT, after, make_trainer, never

FIRST = Sitting(
    steps=30, tokens=1000, seconds=60.0, machine="A CPU", command="dflash train-drafter --model x --out DIR",
    data={"math|x": 7}, curve=[(10, 400, 1.5), (30, 1000, 2.0)],
)  # fmt: skip
SECOND = replace(FIRST, steps=5, tokens=500, curve=[(0, 0, 2.0), (5, 500, 2.25)], data={"chat": 3})


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_sittings(tmp_path) == []
    for sittings in ([FIRST, SECOND], [replace(FIRST, begun_with="seed", held=["a", "b"])], []):
        (tmp_path / FILE).write_bytes(record(sittings))
        assert read_sittings(tmp_path) == sittings


def damaged(key: str, value: object) -> str:
    (sitting,) = json.loads(record([FIRST]))["sittings"]
    return json.dumps({"sittings": [sitting | {key: value}]})


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "\xff", '{"sittings": 3}', '{"sittings": "abc"}', '{"sittings": [[]]}', '{"sittings": [{}]}',
        damaged("tokens", -1), damaged("steps", "3"), damaged("seconds", float("nan")), damaged("data", 3),
        damaged("curve", [[1, 2]]), damaged("seconds", 10**400), damaged("held", 3), "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_record_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_bytes(content.encode("latin-1"))
    assert read_sittings(tmp_path) == []
    with pytest.raises(DFlashError, match=r"training\.json cannot be read: it says what that drafter was trained on"):
        recorded_sittings(tmp_path)


def test_a_record_of_an_older_version_names_nothing_held_out(tmp_path: Path) -> None:
    (sitting,) = json.loads(record([FIRST]))["sittings"]
    del sitting["held"]
    (tmp_path / FILE).write_text(json.dumps({"sittings": [sitting]}))
    assert recorded_sittings(tmp_path) == [FIRST]
    assert recorded_sittings(tmp_path / "nowhere") == []


def test_the_curve_goes_on_where_the_weights_were_measured() -> None:
    assert whole_curve([FIRST, SECOND], [(0, 0, 2.2), (8, 80, 2.4)]) == [
        (10, 400, 1.5), (30, 1000, 2.0), (30, 1000, 2.0), (35, 1500, 2.25), (35, 1500, 2.2), (43, 1580, 2.4),
    ]  # fmt: skip
    assert later([FIRST, SECOND], [{"step": 8, "tokens": 80}]) == [{"step": 8, "tokens": 1580}]
    assert whole_curve([], [(1, 2, 3.0)]) == [(1, 2, 3.0)]


def test_the_card_tells_of_all_sittings() -> None:
    found = text(trained(earlier=[FIRST, SECOND]))
    for line in (
        "In 3 sittings, 37 steps, 1,700 answer tokens, 12 min in all. The last one:",
        "2 steps, 200 answer tokens, 10 min on Some CPU, 2 threads; torch 2.9; dflash 0.1.0. Answers are the target's ",
        "Sitting 1: 30 steps, 1,000 answer tokens, 60 s on A CPU.",
        r"| math\|x | 7 |",
        "| chat | 3 |",
        "            400   1.50  ",
        "          1,700   2.50  " + "▮" * 32,
        "| 2 | 1,700 | 2.500 | 2.50 | 2.25 | 3.00 |",
    ):
        assert line in found, line
    assert "sittings" not in text(trained())


def test_the_card_says_where_nothing_was_recorded() -> None:
    line = r"It began with the drafter a\[b\], which has no record of how it was trained."
    warm = replace(trained().recipe, warm_start="/some/where/a[b]")
    assert line in text(trained(recipe=warm))
    known = trained(recipe=warm, earlier=[FIRST])
    assert line not in text(known)
    assert [each.begun_with for each in known.sittings] == [None, None]
    assert line in text(trained(recipe=warm, earlier=[replace(FIRST, begun_with="a[b]")]))
    assert "/some/where" not in text(trained(recipe=warm))
    assert "no record" not in text(trained())


def test_only_what_is_in_the_weights_is_recorded() -> None:
    """They are those of the best measurement; what came after it is not in them."""
    made = trained(curve=[(1, 100, 1.25), (2, 200, 2.5), (3, 300, 2.4)], earlier=[FIRST])
    *before, own = made.sittings
    assert before == [FIRST]
    assert (own.steps, own.tokens, own.curve) == (2, 200, [(1, 100, 1.25), (2, 200, 2.5)])


def test_a_finished_run_of_an_older_version_gets_its_record(tmp_path: Path) -> None:
    """The same command again trains nothing more and says what was done."""
    make_trainer(tmp_path).run(never)
    path = tmp_path / "out" / FILE
    written = path.read_bytes()
    path.unlink()
    again = make_trainer(tmp_path)
    assert again.resume()
    again.run(never)
    assert path.read_bytes() == written
    (own,) = read_sittings(tmp_path / "out")
    assert own.curve == [tuple(point) for point in again.state.curve if point[0] <= (again.state.best_step or 0)]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_run_that_goes_on_keeps_the_sittings_it_began_with(tmp_path: Path, is_old: bool) -> None:
    """Also where the folder they came from has changed; an older version saved none."""
    first = make_trainer(tmp_path / "one")
    first.run(never)
    begun = tmp_path / "one" / "out"
    recipe = replace(SHORT, warm_start=str(begun))
    second = make_trainer(tmp_path / "two", recipe)
    with pytest.raises(KeyboardInterrupt):
        second.run(after(12))
    if is_old:
        groups, saved = load_checkpoint(second.work / CHECKPOINT)
        del saved["state"]["earlier"]
        save_checkpoint(second.work / CHECKPOINT, groups, saved)
    (begun / FILE).write_bytes(record([FIRST, SECOND]))
    again = make_trainer(tmp_path / "two", recipe)
    assert again.resume()
    again.run(never)
    *before, _ = read_sittings(tmp_path / "two" / "out")
    own = (first.state.best_step, first.state.best["tokens"])
    assert [(each.steps, each.tokens) for each in before] == ([(30, 1000), (5, 500)] if is_old else [own])


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    target, prompts = write_target(tmp_path / "target"), write_prompts(tmp_path / "prompts.jsonl", 12)
    where = ["--model", str(target), "--device", "cpu", "--dtype", "float32", "--prompts", str(prompts)]
    return ["train-drafter", *where, "--holdout", "2", "--answer-tokens", "12", "--anchors", "4", "--batch", "4"]


def test_three_sittings_of_the_command(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ["--block", "4", "--layers", "1", "--taps", "1,3"]
    assert main([*arguments, *shape, "--out", str(tmp_path / "a"), "--steps", "8", "--lr", "0.01"]) == 0
    for before, name in (("a", "b"), ("b", "c")):
        capsys.readouterr()
        rest = ["--out", str(tmp_path / name), "--warm-start", str(tmp_path / before), "--steps", "4"]
        assert main([*arguments, *rest, "--lr", "0.001"]) == 0
    sittings = read_sittings(tmp_path / "c")
    assert [each.data for each in sittings] == [{"sums": 11}] * 3
    assert sittings[0].steps == 8
    total = sum(each.tokens for each in sittings[:2])
    assert f"{total:>15,}  " in capsys.readouterr().err  # the curve on the terminal
    card = (tmp_path / "c" / "README.md").read_text()
    assert "In 3 sittings, " in card
    assert "--warm-start a " in card
    assert str(tmp_path) not in card + (tmp_path / "c" / FILE).read_text()


def test_what_is_measured_on_was_not_trained_on_in_an_earlier_sitting(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the second one has another seed and half of the prompts, with but one of those that were held out."""
    prompts = write_prompts(tmp_path / "prompts.jsonl", 40)
    shape = ["--block", "4", "--layers", "1", "--taps", "1,3", "--steps", "1"]
    assert main([*arguments, *shape, "--out", str(tmp_path / "a")]) == 0
    answered = (tmp_path / "a" / "work" / "answers.jsonl").read_text().splitlines()
    texts = {entry["key"]: entry["messages"][-1]["content"] for entry in map(json.loads, answered)}
    (first,) = read_sittings(tmp_path / "a")
    kept, gone = first.held
    half = [kept, *(key for key in texts if key not in first.held)][:20]
    prompts.write_text("".join(json.dumps({"prompt": texts[key]}) + "\n" for key in half))
    capsys.readouterr()
    rest = ["--warm-start", str(tmp_path / "a"), "--steps", "1", "--seed", "9"]
    assert main([*arguments, *rest, "--out", str(tmp_path / "b")]) == 0
    second = read_sittings(tmp_path / "b")[-1].held
    assert second[0] == kept
    assert len(second) == 2
    assert "1 of those held out may have been trained on in an earlier sitting" in capsys.readouterr().err
    assert "(1 of them may have been in an earlier one)" in (tmp_path / "b" / "README.md").read_text()
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts.values()))
    assert main([*arguments, *rest, "--out", str(tmp_path / "c")]) == 0
    assert set(read_sittings(tmp_path / "c")[-1].held) == {kept, gone}
    assert "may have been" not in capsys.readouterr().err


def test_what_an_earlier_sitting_saw_counts_before_a_push(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_cli.train.push.check_hub", lambda *_, **__: None)
    monkeypatch.setattr("dflash_cli.train.command.load_model", lambda *_, **__: exit(7))
    began = tmp_path / "began"
    began.mkdir()
    push = [*arguments, "--out", str(tmp_path / "out"), "--warm-start", str(began), "--push-to-hub", "ann/x"]
    (began / FILE).write_bytes(record([replace(FIRST, data={"sessions": 2})]))
    assert main([*push, "--public"]) == 2
    assert "that drafter learned from saved chats and may repeat them" in capsys.readouterr().err
    (began / FILE).write_text("{}")
    assert main([*push, "--public"]) == 1
    assert "training.json cannot be read" in capsys.readouterr().err
    (began / FILE).write_bytes(record([replace(FIRST, command="dflash train-drafter --system Psst --out DIR")]))
    with pytest.raises(SystemExit):
        main(push)
    assert "will show those who may see it your system prompt" in capsys.readouterr().err
