"""Two processes are one: the same losses, weights and answers, one decision to stop, and no waiting for the dead."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from click.exceptions import Exit
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from dflash_cli.cli import main
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.train.launch import Place, device_for, join, read_place
from dflash_cli.train.notes import FAILED, Notes
from dflash_cli.train.ranks import Ranks
from dflash_cli.train.report import Reporter
from dflash_cli.train.shared_answers import answer_together, join_parts
from dflash_cli.train.signals import Stop
from dflash_cli.train.trainer import Trainer
from tests.tiny import make_target
from tests.train.lessons import make_model, write_prompts, write_target
from tests.train.ranks_job import LOST_AT, STOPPED_AT
from tests.train.ranks_lessons import ANSWERED, LESSONS, make_trainer, wanted

WITHIN = 1e-5
ROOT = Path(__file__).parents[2]
PATIENCE_S = 900  # a busy machine may take minutes to import torch
ENVIRON = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def curve(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "out" / "work" / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def assert_same_curve(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert [(each["step"], each["tokens"]) for each in ours] == [(each["step"], each["tokens"]) for each in theirs]
    assert len(ours) > 1
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        if "tau" in one:
            assert one["tau"] == pytest.approx(other["tau"], abs=WITHIN)
            assert one["tau_by_source"] == pytest.approx(other["tau_by_source"], abs=WITHIN)
        if "loss" in one:
            assert one["loss"] == pytest.approx(other["loss"], rel=WITHIN, abs=WITHIN)
            assert one["norm"] == pytest.approx(other["norm"], rel=1e-3)


def assert_same_weights(ours: Trainer, theirs: Trainer) -> None:
    for name, each in ours.weights().items():
        if ours.recipe.optimizer == "adamw":
            torch.testing.assert_close(each, theirs.weights()[name], rtol=1e-4, atol=1e-5)
        else:  # Muon rounds gradients to bfloat16, and gives directions that hardly matter the length of all others
            assert (each - theirs.weights()[name]).norm() < 0.02 * each.norm()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of two processes that have run all scenarios, and what each found."""
    folder = tmp_path_factory.mktemp("pair")
    begun = make_trainer(folder / "begun", LESSONS["adamw"])
    with pytest.raises(KeyboardInterrupt):
        begun.run(lambda: begun.state.step == STOPPED_AT)
    environ = {**os.environ, **ENVIRON, "MASTER_PORT": str(free_port()), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.train.ranks_job", str(folder)]
    processes = [
        subprocess.Popen(command, env={**environ, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    told = [each.communicate(timeout=PATIENCE_S)[1] for each in processes]
    assert [each.returncode for each in processes] == [0, 9], told
    return folder, [json.loads((folder / f"found-{rank}.json").read_text()) for rank in "01"]


@pytest.mark.parametrize("name", LESSONS)
def test_two_processes_learn_what_one_does(pair: tuple[Path, Any], tmp_path: Path, name: str) -> None:
    folder, found = pair
    alone = make_trainer(tmp_path, LESSONS[name])
    alone.run(lambda: False)
    assert_same_curve(curve(folder / name), curve(tmp_path))
    both = make_trainer(folder / name, LESSONS[name])
    assert both.state.step == both.num_steps
    assert_same_weights(both, alone)
    assert found[0]["lessons"][name] == found[1]["lessons"][name]  # bit for bit the same move in each


def test_a_run_goes_on_with_another_number_of_processes(pair: tuple[Path, Any], tmp_path: Path) -> None:
    folder, found = pair
    alone = make_trainer(tmp_path, LESSONS["adamw"])
    alone.run(lambda: False)
    assert [each["resumed"] for each in found] == [STOPPED_AT] * 2
    assert [each["stopped"] for each in found] == [STOPPED_AT] * 2
    assert_same_curve(curve(folder / "begun"), curve(tmp_path))
    one = make_trainer(folder / "stopped", LESSONS["adamw"])
    assert one.state.step == STOPPED_AT
    one.run(lambda: False)
    assert_same_curve(curve(folder / "stopped"), curve(tmp_path))
    assert_same_weights(one, alone)


def test_what_fails_in_one_process_is_told_in_all(pair: tuple[Path, Any]) -> None:
    _, (first, second) = pair
    assert "the loss is nan at step 1: training has diverged" in first["diverged"]
    assert first["diverged"] == second["diverged"]
    assert "read different data or checkpoints" in first["other_data"]
    assert first["other_data"] == second["other_data"]


def test_the_end_of_a_process_ends_the_others(pair: tuple[Path, Any]) -> None:
    folder, (first, _) = pair
    assert first["lost"].startswith("process 0 of 2 lost the others: one was ended or does not answer")
    assert len([line for line in curve(folder / "lost") if "loss" in line]) == LOST_AT


def test_answers_are_shared_and_joined(pair: tuple[Path, Any], tmp_path: Path) -> None:
    folder, (first, second) = pair
    model = make_model(tmp_path / "model", make_target(seed=5))
    report, stop, alone = Reporter(quiet=True), Stop(), Ranks()
    ours = answer_together(wanted(), ANSWERED, model, tmp_path / "work", report, stop, alone)
    assert first["answers"] == second["answers"] == ours
    assert len(ours) == 9
    assert sorted(path.name for path in (folder / "answers").iterdir()) == ["answers.json", "answers.jsonl"]


def test_parts_of_an_interrupted_run_are_joined_once(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", make_target(seed=5))
    work = tmp_path / "work"
    made = answer_together(wanted(), ANSWERED, model, work, Reporter(quiet=True), Stop(), Ranks())
    whole = (work / "answers.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    (work / "answers.jsonl").write_bytes(b"".join(lines[:4]))
    (work / "answers-0.jsonl").write_bytes(b"".join(lines[2:7]))  # two were joined before it was interrupted
    (work / "answers-5.jsonl").write_bytes(b"".join(lines[7:]) + lines[0][:20])
    kept = ["answers-2-old.jsonl", "answers-backup.jsonl"]  # somebody's own
    for name in kept:
        (work / name).write_bytes(b"")
    join_parts(ANSWERED, model, work)
    assert (work / "answers.jsonl").read_bytes() == whole
    assert sorted(path.name for path in work.iterdir()) == [*kept, "answers.json", "answers.jsonl"]
    assert answer_together(wanted(), ANSWERED, model, work, Reporter(quiet=True), Stop(), Ranks()) == made


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 9))
def test_work_is_shared_evenly_and_whole(sizes: list[int], count: int) -> None:
    shares = []
    for rank in range(count):
        ranks = Ranks(rank)
        ranks.size = count
        shares.append(ranks.share(sizes))
    assert sorted(index for share in shares for index in share) == list(range(len(sizes)))
    assert all(share == sorted(share) for share in shares)
    if len(sizes) >= count:
        assert all(shares)
    loads = [sum(max(1, sizes[index]) for index in share) for share in shares]
    assert max(loads) - min(loads) <= max(1, *sizes)


def test_alone_nothing_is_asked_of_anyone(tmp_path: Path) -> None:
    ranks, flat = Ranks(), torch.ones(3, requires_grad=True)
    flat.grad = gradient = torch.full((3,), 0.1)
    ranks.sum_gradients([flat])
    assert flat.grad is gradient
    assert ranks.total([0.1, 2]) == [0.1, 2]
    assert ranks.share([3, 9, 1]) == [0, 1, 2]
    assert ranks.any(True)
    assert not ranks.any(False)
    ranks.meet(lambda: True)
    with ranks:
        ranks.agree(1)


def test_a_process_that_waits_hears_of_stops_and_failures() -> None:
    store = HashStore()
    waiting, working = (Notes(store, rank, 2, patience=30) for rank in (0, 1))
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            waiting.wait(lambda: waiting.stop(True))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not working.stop(False):  # a signal that came only to the one that waits
        assert time.monotonic() < end
        time.sleep(0.01)
    assert thread.is_alive()
    working.leave(KeyboardInterrupt())
    thread.join(20)
    assert [type(each) for each in ended] == [KeyboardInterrupt]


def test_one_error_is_told_once() -> None:
    store = HashStore()
    first, second, third = (Notes(store, rank, 3) for rank in range(3))
    first.leave(UsageError("no such file"))
    with pytest.raises(Exit) as same:
        second.leave(UsageError("no such file"))
    assert same.value.exit_code == 2
    with pytest.raises(Exit):
        third.raise_if_failed()
    third.leave(DFlashError("something else"))  # is told, too
    assert store.get(FAILED) == b"2 0 no such file"


def test_a_process_that_gives_no_sign_is_given_up() -> None:
    store = HashStore()
    with pytest.raises(DFlashError, match=r"process 1 of 2 \(counted from 0\) gave no sign for 0 s"):
        Notes(store, 0, 2, patience=0.2).wait(lambda: False)


BAD_PLACES = [
    ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', expected a whole number of at least 1"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 and RANK is not set; start with `torchrun"),
    ({**ENVIRON, "RANK": "2"}, "RANK is 2, expected less than WORLD_SIZE, which is 2"),
    ({**ENVIRON, "MASTER_PORT": "x"}, "MASTER_PORT is 'x'"),
]


@pytest.mark.parametrize(("environ", "words"), BAD_PLACES, ids=[words for _, words in BAD_PLACES])
def test_an_environment_that_is_not_whole_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_place(environ)
    assert words in str(error.value)


def test_one_process_needs_no_others() -> None:
    assert read_place({}) is None
    assert read_place({**ENVIRON, "WORLD_SIZE": "1"}) is None
    assert read_place(ENVIRON) == Place(1, 2, 1, "127.0.0.1:29999")


def test_each_process_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(5, 8, 1, "x:1")
    assert device_for(place, "auto") == "cpu" or torch.cuda.is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_for(place, "auto") == device_for(place, "cuda") == "cuda:1"
    assert device_for(place, "cpu") == "cpu"
    with pytest.raises(UsageError, match="--device cuda:0 is one device for 8 processes"):
        device_for(place, "cuda:0")
    with pytest.raises(UsageError, match=r"process 2 of this machine .* has no GPU of its own: torch sees 2"):
        device_for(Place(6, 8, 2, "x:1"), "auto")


def test_others_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_cli.train.launch.CONNECT_S", 1)
    port = str(free_port())
    for name, value in {**ENVIRON, "RANK": "0", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DFlashError, match=rf"process 0 of 2 did not reach the others at 127\.0\.0\.1:{port} \("):
        join(Place(0, 2, 0, f"127.0.0.1:{port}"), "cpu")


def test_a_batch_has_a_document_for_each_process() -> None:
    ranks = Ranks()
    ranks.size = 4
    ranks.check_batch(4)
    with pytest.raises(UsageError, match="--batch 3 is less than the 4 processes"):
        ranks.check_batch(3)


def test_torchrun_trains_what_one_process_trains(tmp_path: Path) -> None:
    """The whole way, answers included."""
    target, prompts = write_target(tmp_path / "target"), write_prompts(tmp_path / "prompts.jsonl", 20)
    flags = ["--model", str(target), "--device", "cpu", "--dtype", "float32", "--prompts", str(prompts), "--block", "4"]
    flags += ["--layers", "2", "--taps", "1,3", "--answer-tokens", "12", "--batch", "8", "--anchors", "8"]
    flags += ["--steps", "6", "--eval-every", "6", "--lr", str(LESSONS["muon"].lr)]
    assert main(["train-drafter", *flags, "--out", str(tmp_path / "one" / "out")]) == 0
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "dflash_cli"]
    command = [*start, "train-drafter", *flags, "--out", str(tmp_path / "two" / "out")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "2 processes, each with a share of the work" in done.stderr
    assert "20 answers made by 2 processes in all" in done.stderr
    assert done.stderr.count("done: τ") == 1
    assert_same_curve(curve(tmp_path / "two"), curve(tmp_path / "one"))
    assert (tmp_path / "two" / "out" / "model.safetensors").is_file()
