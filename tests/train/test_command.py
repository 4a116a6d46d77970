"""`dflash train-drafter` as it is used: whole transcripts on a tiny target, and what a person is told of bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from dflash_cli.cli import main
from tests.train.lessons import write_prompts, write_target
from tests.waiting import poll

ROOT = Path(__file__).parents[2]
SMALL = ["--block", "4", "--layers", "2", "--taps", "1,3", "--answer-tokens", "24", "--batch", "8", "--anchors", "16"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("pair") / "target")


@pytest.fixture
def arguments(target: Path, tmp_path: Path) -> list[str]:
    prompts = write_prompts(tmp_path / "prompts.jsonl")
    where = ["--model", str(target), "--device", "cpu", "--dtype", "float32", "--out", str(tmp_path / "out")]
    return ["train-drafter", *where, "--prompts", str(prompts), *SMALL]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_from_prompts_to_a_drafter_that_drafts(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], target: Path
) -> None:
    """The whole way: answers, training, measuring, and the folder as `run --draft` takes it."""
    assert main([*arguments, "--steps", "80", "--eval-every", "40", "--lr", "0.01"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "40 answers made" in told.err
    assert "36 documents to train on, 864 answer tokens; 4 held out" in told.err
    assert "a sample (sums): " in told.err
    out = tmp_path / "out"
    measured = [line for line in lines(out / "work" / "metrics.jsonl") if "tau" in line]
    assert [line["step"] for line in measured] == [40, 80]
    best = max(line["tau"] for line in measured)
    assert best > max(2.0, measured[0]["tau"])  # plain decoding is 1, full blocks are 4
    assert f"done: τ {best:.2f}" in told.err
    config = json.loads((out / "config.json").read_text())
    assert config["dflash_config"] == {"mask_token_id": 261, "target_layer_ids": [1, 3]}
    card = (out / "README.md").read_text()
    assert f"| all | 4 | {best:.2f} |" in card
    assert "| sums | 36 |" in card
    assert str(tmp_path) not in card
    with safe_open(out / "model.safetensors", framework="pt") as file:
        assert len(list(file.keys())) == 2 * 11 + 3
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {"torch.bfloat16"}  # noqa: SIM118
    asked = ["run", "--model", str(target), "--draft", str(out), "--device", "cpu", "--dtype", "float32"]
    (tmp_path / "p").write_text("3 and 5")
    assert main([*asked, "--block", "4", "--json", "-n", "20", str(tmp_path / "p")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["block_size"] == 4
    assert answer["acceptance"]["tau"] > 1.5


def test_check_learns_documents_by_heart_and_drafts_them_whole(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """17 tokens an answer: the first comes from the prefill, four full blocks follow."""
    arguments[arguments.index("--answer-tokens") + 1] = "17"
    assert main([*arguments, "--check", "--lr", "0.01"]) == 0
    told = capsys.readouterr().err
    assert "τ 4.00, 100% of drafts accepted through the decoder" in told
    assert re.search(
        r"^a sample \(sums\): \d+ prompt and 17 answer tokens, \d+ blocks, \d+ tokens learned \(in", told, re.M
    )
    assert told.index("its first block: from ") < told.index("check passed")
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_check_fails_where_nothing_can_be_learned(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_cli.train.check.CHECK_STEPS", 25)
    assert main([*arguments, "--check", "--lr", "0.0000001"]) == 1
    assert "check failed: after 25 steps" in capsys.readouterr().err


def test_plan_says_everything_and_does_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*arguments, "--plan", "--quiet"]) == 0
    told = capsys.readouterr()
    for word in (
        "target",
        "drafter: 2 layers, block 4, taps 1, 3",
        "answers to make: 40",
        "training: 30 steps",
        "memory",
    ):
        assert word in told.out
    assert told.err == ""
    assert not (tmp_path / "out").exists()


def test_a_terminated_run_goes_on_to_the_same_drafter(arguments: list[str], tmp_path: Path) -> None:
    """SIGTERM in the middle; the second process ends with the bits of one that was never stopped."""
    rest = ["--steps", "60", "--eval-every", "30", "--save-every", "1000", "--threads", "1"]
    command = [sys.executable, "-m", "dflash_cli", *arguments, *rest]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "out" / "work" / "metrics.jsonl"
    poll(
        lambda: metrics.read_text() if metrics.is_file() else "",
        lambda text: text.count("\n") > 4 or process.poll() is not None,
        seconds=300,
    )
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130, told
    assert re.search(r"saved at step \d+\n.*the same command goes on from there", told)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=True)
    assert "going on from step" in done.stderr
    stopped = (tmp_path / "out" / "model.safetensors").read_bytes()
    command[command.index(str(tmp_path / "out"))] = str(tmp_path / "again")
    subprocess.run(command, env=environ, capture_output=True, timeout=100, check=True)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == stopped


def test_answers_are_made_once(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = tmp_path / "out" / "work" / "answers.jsonl"
    assert main([*arguments, "--steps", "1"]) == 0
    whole = answers.read_text()
    answers.write_text(whole[: len(whole) // 2])  # cut in the middle of a line, as a power cut does
    (tmp_path / "out" / "work" / "checkpoint.safetensors").unlink()
    capsys.readouterr()
    assert main([*arguments, "--steps", "1"]) == 0
    assert re.search(r"2[01] answers made", capsys.readouterr().err)
    assert sorted(lines(answers), key=lambda line: line["key"]) == sorted(
        map(json.loads, whole.splitlines()), key=lambda line: line["key"]
    )
    assert main([*arguments, "--steps", "1", "--temperature", "0.5"]) == 1
    assert "were made with temperature 0.0, now it is 0.5; use another --out" in capsys.readouterr().err


def test_a_corpus_needs_no_answers(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--steps", "1"]) == 0
    corpus = (tmp_path / "out" / "work" / "answers.jsonl").rename(tmp_path / "corpus.jsonl")
    capsys.readouterr()
    at = arguments.index("--prompts")
    arguments[at : at + 2] = ["--corpus", str(corpus)]
    arguments[arguments.index(str(tmp_path / "out"))] = str(tmp_path / "other")
    assert main([*arguments, "--steps", "1"]) == 0
    told = capsys.readouterr().err
    assert "answers made" not in told
    assert "36 documents to train on" in told


def test_kept_answers_are_trained_on_with_the_end_of_the_turn(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "Good day to you."}]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Once more."}]
    (tmp_path / "prompts.jsonl").write_text(
        "\n".join(map(json.dumps, [{"conversations": chat}, {"messages": turns}, {"prompt": "x", "answer": "yes"}]))
    )
    assert main([*arguments, "--steps", "1", "--keep-answers"]) == 0
    told = capsys.readouterr().err
    assert "2 documents to train on" in told
    assert "[<|im_end|>]" in told  # the sample


def test_held_out_prompts_are_measured_and_not_trained_on(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = tmp_path / "held.jsonl"
    held.write_text("".join((tmp_path / "prompts.jsonl").read_text().splitlines(keepends=True)[:5]))
    assert main([*arguments, "--steps", "1", "--eval-prompts", str(held)]) == 0
    assert "35 documents to train on, 840 answer tokens; 5 held out" in capsys.readouterr().err


def test_a_recipe_file_gives_way_to_flags(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('prompts = ["prompts.jsonl"]\nbatch = 3\nsteps = 7\ntaps = [0, 2]\n')
    at = arguments.index("--prompts")
    del arguments[at : at + 2]
    assert main([*arguments, "--recipe", str(recipe), "--plan"]) == 0
    assert "training: 7 steps of 8 documents" in capsys.readouterr().out
    recipe.write_text("stepz = 7\n")
    assert main([*arguments, "--recipe", str(recipe)]) == 2
    assert "recipe.toml has an unknown key 'stepz'; did you mean 'steps'?" in capsys.readouterr().err
    recipe.write_text('taps = "many"\n')
    assert main([*arguments, "--recipe", str(recipe)]) == 2
    assert "found 'many'; expected different layer numbers" in capsys.readouterr().err


BAD_LINES = [
    ("not json", "line 41 is not valid JSON"),
    ("[1]", "line 41 is a JSON list; expected an object"),
    ('{"text": "x"}', "line 41 has neither prompt (text) nor messages or conversations (lists)"),
    ('{"prompt": "  "}', "line 41 has an empty prompt"),
    ('{"conversations": [{"from": "cat", "value": "x"}]}', "line 41: a turn is from 'cat'"),
    ('{"messages": [{"role": "assistant", "content": "x"}]}', "line 41 has no turn of the user"),
    ('{"prompt": "x", "source": "openai_humaneval"}', "a set that drafters are judged on: never train on it"),
    (json.dumps({"prompt": "long " * 110}), "tokens and the target's context is 512"),
    (json.dumps({"prompt": "a\ud800b"}), "prompts.jsonl line 41: the text is not valid UTF-8 (lone surrogate U+D800"),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES, ids=[words for _, words in BAD_LINES])
def test_bad_lines_are_named_and_only_left_out_when_asked(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    with (tmp_path / "prompts.jsonl").open("a") as file:
        file.write(line + "\n")
    assert main([*arguments, "--plan"]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert "pass --skip-bad to leave such lines out" in told
    assert main([*arguments, "--plan", "--skip-bad"]) == 0
    told = capsys.readouterr()
    assert f"left out: {tmp_path / 'prompts.jsonl'} line 41" in told.err or words in told.err
    assert "answers to make: 40" in told.out


BAD_FLAGS = [
    (["--taps", "1,9"], 2, "taps [1, 9], expected different layer ids from 0 to 4"),
    (["--taps", "1,1"], 2, "expected different layer numbers"),
    (["--mask-id", "300"], 2, "--mask-id 300 is not below 272"),
    (["--mask-id", "97"], 2, "--mask-id 97 occurs in the training data"),
    (["--block", "1"], 2, "expected a whole number of at least 2"),
    (["--warm-start", "nowhere", "--layers", "2"], 2, "--layers does not go with --warm-start"),
    (["--prompts", "missing.jsonl"], 1, "missing.jsonl cannot be read"),
    (["--ema", "1"], 2, "--ema 1 never moves"),
    (["--plan", "--check"], 2, "choose one"),
    (["--check", "--temperature", "0.5"], 2, "leave out --temperature"),
]


@pytest.mark.parametrize(("flags", "status", "words"), BAD_FLAGS, ids=[words for *_, words in BAD_FLAGS])
def test_what_cannot_be_is_said(
    arguments: list[str], capsys: pytest.CaptureFixture[str], flags: list[str], status: int, words: str
) -> None:
    if flags[0] == "--warm-start":
        arguments = [each for each in arguments if each not in SMALL[:6]]
    assert main([*arguments, "--steps", "1", *flags]) == status
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_nothing_to_train_on_and_no_template(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["train-drafter", "--model", str(target), "--out", str(tmp_path / "out")]
    assert main(where) == 2
    assert "nothing to train on: pass --prompts" in capsys.readouterr().err
    bare = write_target(tmp_path / "bare")
    tokenizer = bare / "tokenizer_config.json"
    tokenizer.write_text(
        json.dumps({k: v for k, v in json.loads(tokenizer.read_text()).items() if k != "chat_template"})
    )
    prompts = write_prompts(tmp_path / "p.jsonl")
    where[2] = str(bare)
    assert main([*where, "--prompts", str(prompts)]) == 1
    assert "this model has no chat template; pass one with --chat-template FILE, or --raw" in capsys.readouterr().err
    assert main([*where, "--prompts", str(prompts), "--raw", "--plan"]) == 0


def test_a_warm_start_begins_where_the_other_run_ended(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], target: Path
) -> None:
    assert main([*arguments, "--steps", "40", "--lr", "0.01"]) == 0
    tau = [line["tau"] for line in lines(tmp_path / "out" / "work" / "metrics.jsonl") if "tau" in line][-1]
    again = [each for each in arguments if each not in SMALL[:6]]
    again[again.index(str(tmp_path / "out"))] = str(tmp_path / "more")
    assert main([*again, "--warm-start", str(tmp_path / "out"), "--steps", "1"]) == 0
    first = next(line for line in lines(tmp_path / "more" / "work" / "metrics.jsonl") if "tau" in line)
    assert first["step"] == 0
    assert first["tau"] == pytest.approx(tau, abs=0.3)  # shipped in bfloat16
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps(config | {"num_target_layers": 9}))
    capsys.readouterr()
    again[again.index(str(tmp_path / "more"))] = str(tmp_path / "third")
    assert main([*again, "--warm-start", str(tmp_path / "out")]) == 1
    assert "does not fit the target" in capsys.readouterr().err


@pytest.mark.parametrize("loss", ["kl", "d-pace"])
def test_other_losses_and_cached_features_learn_as_well(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], loss: str
) -> None:
    flags = ["--steps", "40", "--eval-every", "40", "--lr", "0.01", "--loss", loss, "--cache-features", "--ema", "0.5"]
    assert main([*arguments, *flags]) == 0
    assert "100% of it to be made" in capsys.readouterr().err
    (measured,) = [line for line in lines(tmp_path / "out" / "work" / "metrics.jsonl") if "tau" in line]
    assert measured["tau"] > 1.5
    assert main([*arguments, *flags]) == 0
    told = capsys.readouterr().err
    assert "0% of it to be made" in told
    assert "going on from step 40 of 40" in told


def test_a_stop_between_answers_keeps_them(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered before the signal is not answered again."""
    calls = iter(range(100))
    monkeypatch.setattr("dflash_cli.train.signals.Stop.check", lambda stop: _raise_after(next(calls), 10))
    assert main([*arguments, "--steps", "1"]) == 130
    assert "stopped; what is made is kept in" in capsys.readouterr().err
    assert 5 < len(lines(tmp_path / "out" / "work" / "answers.jsonl")) < 15


def _raise_after(call: int, last: int) -> None:
    if call >= last:
        raise KeyboardInterrupt
