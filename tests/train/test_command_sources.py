"""`dflash train-drafter` with prompts and answers from everywhere: plain text, saved chats, a server, by weight."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_cli.cli import main
from dflash_cli.session_store import SessionStore
from tests.sessions import saved, turn
from tests.train.answering_server import AnsweringServer
from tests.train.lessons import make_model, plain_target, write_prompts, write_target
from tests.train.test_command import SMALL, lines

KEY = "secret-key-0123456789"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("pair") / "target")


@pytest.fixture
def arguments(target: Path, tmp_path: Path) -> list[str]:
    where = ["--model", str(target), "--device", "cpu", "--dtype", "float32", "--out", str(tmp_path / "out")]
    return ["train-drafter", *where, *SMALL]


@pytest.fixture
def http(tmp_path: Path) -> Iterator[AnsweringServer]:
    server = AnsweringServer(make_model(tmp_path / "tokenizer", plain_target()))
    yield server
    server.close()


def test_a_server_makes_the_answers(
    arguments: list[str],
    tmp_path: Path,
    http: AnsweringServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same answers as without one; of the key nothing is left anywhere."""
    monkeypatch.setenv("DFLASH_ENGINE_KEY", KEY)
    arguments += ["--prompts", str(write_prompts(tmp_path / "p.jsonl", 20)), "--steps", "1"]
    assert main([*arguments, "--engine", http.address, "--plan"]) == 0
    (planned,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("answers to make: 20, ")]
    assert planned.endswith(f", by the server {http.address}")
    assert http.bodies == []
    assert main([*arguments, "--engine", http.address + "/"]) == 0
    told = capsys.readouterr().err
    assert f"answers come from tiny at {http.address}" in told
    assert "20 answers made" in told
    assert "unknown variable" not in told
    arguments[arguments.index(str(tmp_path / "out"))] = str(tmp_path / "local")
    assert main(arguments) == 0
    served, own = ((tmp_path / name / "work" / "answers.jsonl") for name in ("out", "local"))
    assert sorted(served.read_text().splitlines()) == sorted(own.read_text().splitlines())
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_saved_chats_are_prompts_that_stay_the_same(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SessionStore()
    for number in range(6):
        saved(store, f"talk {number}", turn(f"{number}?", "Yes."), turn(f"And {number}?", "No."))
    asked = [*arguments, "--from-sessions", "--steps", "2"]
    assert main([*asked, "--plan"]) == 0
    assert "answers to make: 12" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert main(asked) == 0
    assert "12 answers made" in capsys.readouterr().err
    saved(store, "later", turn("More?"))
    assert main(asked) == 0
    told = capsys.readouterr().err
    assert "answers made" not in told
    assert "going on from step 2 of 2" in told


def test_weights_decide_how_long_an_epoch_is_and_must_name_a_source(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments += ["--prompts", str(write_prompts(tmp_path / "p.jsonl", 40)), "--plan"]  # of the source "sums"
    (tmp_path / "tales.txt").write_text("".join(f"Tale {number}.\n" for number in range(40)))
    arguments += ["--prompts", str(tmp_path / "tales.txt")]
    assert main(arguments) == 0
    assert "training: 60 steps" in capsys.readouterr().out
    assert main([*arguments, "--weight", "sums=2", "--weight", "tales=0.5"]) == 0
    assert "training: 75 steps" in capsys.readouterr().out
    assert main([*arguments, "--weight", "sum=2"]) == 2
    assert "--weight: no prompt to train on comes from 'sum'; did you mean 'sums'?" in capsys.readouterr().err
    assert main([*arguments, "--synthesize", "4", "--weight", "self-synthesised=0.5"]) == 0  # of which there are none
    assert "training: 62 steps" in capsys.readouterr().out
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('weight = ["sums=0.25"]\nprompts = ["p.jsonl"]\n')
    at = arguments.index("--prompts")
    assert main([*arguments[:at], "--recipe", str(recipe), "--plan"]) == 0
    assert "training: 8 steps" in capsys.readouterr().out


def test_a_weighted_run_trains_and_keeps_its_weights(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments += ["--prompts", str(write_prompts(tmp_path / "p.jsonl", 20)), "--steps", "3"]
    assert main([*arguments, "--weight", "sums=0.5"]) == 0
    assert main([*arguments, "--weight", "sums=2"]) == 1
    assert "holds a run with weight ['sums=0.5'], now it is ['sums=2']" in capsys.readouterr().err


def test_a_base_model_goes_on_with_plain_text(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = write_target(tmp_path / "bare")
    tokenizer = bare / "tokenizer_config.json"
    kept = {key: value for key, value in json.loads(tokenizer.read_text()).items() if key != "chat_template"}
    tokenizer.write_text(json.dumps(kept))
    arguments[arguments.index("--model") + 1] = str(bare)
    (tmp_path / "book.txt").write_text("".join(f"Chapter {n}\nIt was {n} o'clock.\n\n" for n in range(12)))
    arguments += ["--prompts", str(tmp_path / "book.txt"), "--steps", "1"]
    assert main(arguments) == 1
    assert f"{bare}: this model has no chat template; pass one with" in capsys.readouterr().err
    assert main([*arguments, "--raw"]) == 0
    assert "12 answers made" in capsys.readouterr().err
    made = lines(tmp_path / "out" / "work" / "answers.jsonl")
    assert {line["messages"][0]["content"] for line in made} == {f"Chapter {n}\nIt was {n} o'clock." for n in range(12)}
    arguments[arguments.index(str(tmp_path / "out"))] = str(tmp_path / "kept")
    assert main([*arguments, "--raw", "--keep-answers"]) == 0
    told = capsys.readouterr().err
    assert "11 documents to train on" in told
    assert "answers made" not in told


CONTRADICTIONS: list[tuple[list[str], str]] = [
    (["--engine", "ftp://here/v1"], "expected an address such as http://localhost:8000/v1"),
    (["--engine", "http://me:pass@here/v1"], "put a key into the variable DFLASH_ENGINE_KEY"),
    (["--engine", "http://me:pass@here:x/v1"], "found an address with a user or password"),
    (["--engine", "http://[me:pass@here/v1"], "found another value; expected"),
    (["--engine", "http://here/v1?key=pass@1"], "found an address with a query; put a key into the variable"),
    (["--engine", "http://here:x/v1"], "expected an address"),
    (["--engine-model", "tiny"], "pass its address with --engine"),
    (["--weight", "sums"], "expected SOURCE=X, X a number above 0"),
    (["--weight", "sums=0"], "expected SOURCE=X"),
    (["--weight", "a=1", "--weight", "a=2"], "names a source twice"),
    (["--from-sessions", "--engine", "https://far.example/v1"], "would send your chats to another machine"),
    (["--from-sessions", "--engine", "http://127.example.com/v1"], "chats to another machine's --engine"),
    (["--from-sessions", "--push-to-hub", "me/it", "--public"], "a drafter may repeat your chats"),
    (["--keep-answers", "--synthesize", "3"], "without --synthesize"),
]


@pytest.mark.parametrize(("flags", "words"), CONTRADICTIONS, ids=[words for _, words in CONTRADICTIONS])
def test_sources_that_cannot_be_are_said(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert main([*arguments, "--prompts", str(write_prompts(tmp_path / "p.jsonl")), *flags]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "pass@" not in told
