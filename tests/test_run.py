"""`dflash run` from end to end on a tiny pair on disk: what stands on stdout, on stderr, and in the exit status."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import backends
import dflash_cli.run
from dflash_cli.cli import main
from dflash_cli.config import Config
from dflash_cli.events import Finished
from dflash_cli.prompts import Prompt
from dflash_cli.run import Runner
from dflash_cli.speculative import Decoder
from dflash_cli.trace import read_trace
from tests.scripted_model import scripted_model
from tests.tiny import write_pair

KEYS = [
    "text", "ids", "finish_reason", "prompt_tokens", "new_tokens", "reused_tokens", "target", "drafter", "backend",
    "device", "dtype", "quantize", "recompiles", "block_size", "acceptance", "timings",
]  # fmt: skip
TIMINGS = ["ttft_ms", "prefill_ms", "draft_ms", "verify_ms", "other_ms", "decode_s", "tokens_per_s"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that choose the tiny pair."""
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"))
    return ["--model", str(target), "--draft", str(drafter), "--device", "cpu", "--dtype", "float32"]


class Run:
    def __init__(self, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capfd, self.monkeypatch = capfd, monkeypatch

    def __call__(self, *args: str, stdin: bytes = b"") -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["run", *args])
        out, err = self.capfd.readouterr()
        return code, out, err


@pytest.fixture
def run(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capfd, monkeypatch)


@pytest.mark.parametrize("how", [[], ["--compare"], ["--jsonl"]], ids=str)
def test_a_fallback_of_auto_is_told_once(
    run: Run, pair: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: list[str]
) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text('{"prompt": "hello"}\n')
    arguments = (*pair, "-n", "5", *how, str(prompts), str(prompts))
    assert "falling back" not in run(*arguments)[2]
    monkeypatch.setitem(backends.AUTO, "cpu", ("compile", "it is faster"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, _, err = run(*arguments)
    assert code == 0
    assert err.count("dflash: falling back to eager: the compile backend cannot run here: ") == 1
    assert err.count("no-such-compiler is not there (install g++, or set CXX)") == 1
    assert "falling back" not in run("--quiet", *arguments)[2]


def test_the_answer_alone_is_on_stdout(run: Run, pair: list[str]) -> None:
    code, out, err = run(*pair, "-n", "12", "-", stdin=b"hello\n")
    assert code == 0
    assert out.endswith("\n")
    assert err.startswith("dflash: 12 tokens · ")
    assert "eager, float32, cpu" in err
    assert len(err.splitlines()) == 1
    assert run(*pair, "-n", "12", "-q", "-", stdin=b"hello\n") == (0, out, "")


def test_a_misspelt_variable_is_told(run: Run, pair: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_TEMPRATURE", "1")
    err = run(*pair, "-n", "3", "-", stdin=b"hello")[2]
    assert err.startswith("dflash: warning: unknown variable DFLASH_TEMPRATURE; did you mean 'DFLASH_TEMPERATURE'?")


def test_json_has_the_documented_shape(run: Run, pair: list[str], tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("hello")
    code, out, _ = run(*pair, "-n", "20", "--json", str(tmp_path / "prompt.txt"), "-", stdin=b"hello")
    first, second = (json.loads(line) for line in out.splitlines())
    assert code == 0
    assert list(first) == KEYS
    assert list(first["timings"]) == TIMINGS
    assert list(first["acceptance"]) == ["tau", "rate", "lengths"]
    assert first["text"] == second["text"]
    assert (first["reused_tokens"], second["reused_tokens"]) == (0, first["prompt_tokens"] - 1)
    assert first["new_tokens"] == len(first["ids"]) == 1 + sum(first["acceptance"]["lengths"]) == 20
    assert (first["finish_reason"], first["block_size"], first["dtype"]) == ("length", 6, "float32")
    assert first["drafter"] == pair[3]


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_a_quantised_target_is_told_and_keeps_its_own_text(run: Run, pair: list[str], method: str) -> None:
    code, out, err = run(*pair, "-n", "40", "--json", "--compare", "--quantize", method, "-", stdin=b"hello")
    found = json.loads(out)
    assert (code, found["dtype"], found["quantize"]) == (0, "float32", method)
    assert found["compare"]["identical"] is True
    assert f"eager, float32 with {method} weights, cpu" in err


def test_compare_finds_the_texts_identical(run: Run, pair: list[str]) -> None:
    for sampling in ([], ["-t", "1.2"], ["-t", "0.8", "--seed", "5", "--repetition-penalty", "1.3"]):
        code, out, err = run(*pair, "-n", "40", "--json", "--compare", "-", *sampling, stdin=b"hello")
        compare = json.loads(out)["compare"]
        assert (code, compare["identical"], compare["first_difference"]) == (0, True, None)
        assert compare["speedup"] == pytest.approx(
            json.loads(out)["timings"]["tokens_per_s"] / compare["plain_tokens_per_s"], rel=0.01
        )
        assert "identical text" in err


def test_compare_warms_up_before_it_measures(run: Run, pair: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    step, own = Decoder._step, dflash_cli.run.answer
    monkeypatch.setattr(Decoder, "_step", lambda self, rows: log.append(f"pass of {self.width}") or step(self, rows))
    monkeypatch.setattr(dflash_cli.run, "answer", lambda *args: log.append("answer") or own(*args))
    code, out, _ = run(*pair, "-n", "9", "--json", "--compare", "-", stdin=b"hello")
    assert code == 0
    assert set(log[: log.index("answer")]) == {"pass of 6", "pass of 1"}
    assert json.loads(out)["reused_tokens"] == 0


@pytest.mark.parametrize("flags", [["--draft", "none"], ["--block", "1"]])
def test_plain_decoding_is_called_so(run: Run, pair: list[str], flags: list[str]) -> None:
    err = run(*pair, "-n", "9", "--compare", "-", *flags, stdin=b"hello")[2]
    assert "DFlash" not in err
    assert " · plain decoding · cut" in err
    assert "both are plain decoding, nothing was drafted · identical text" in err
    err = run(*pair, "-n", "9", "--jsonl", *flags, stdin=b'"a"')[2]
    assert err.startswith("dflash: 1 answer · 9 tokens · ")
    assert err.endswith(" tok/s over all rows · plain decoding · eager, float32, cpu\n")
    assert "plain" not in run(*pair, "-n", "9", "--jsonl", stdin=b'"a"\n"b"')[2]


def test_one_token_has_no_speed_to_compare(run: Run, pair: list[str]) -> None:
    err = run(*pair, "--compare", "-n", "1", "-", stdin=b"hello")[2]
    assert err.splitlines()[0].startswith("dflash: 1 token · cut at the length limit · eager")
    assert err.splitlines()[1] == "dflash: too short to compare speeds · identical text"
    assert "1 answer · 1 token · " in run(*pair, "-n", "1", "--jsonl", stdin=b'"hello"')[2]


def test_the_trace_has_every_answer(run: Run, pair: list[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    one = json.loads(run(*pair, "-n", "9", "--json", "--trace", str(path), "-", stdin=b"hello")[1])
    code, out, _ = run(*pair, "-n", "9", "--jsonl", "--trace", str(path), stdin=b'"a"\n"bb"\n"ccc"')
    recordings = read_trace(path)
    assert code == 0
    assert [each.text for each in recordings[:1]] == [one["text"]]
    assert {each.head.prompt: each.text for each in recordings[1:]} == dict(
        zip(("a", "bb", "ccc"), (json.loads(line)["text"] for line in out.splitlines()), strict=True)
    )
    assert (recordings[0].head.pair, recordings[0].head.block_size) == (pair[1], 6)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_trace_that_cannot_be_written_costs_no_answer(run: Run, pair: list[str]) -> None:
    for flags, stdin in ((["--json", "-"], b"hello"), (["--jsonl", "--batch", "1"], b'"hello"\n"b"')):
        code, out, err = run(*pair, "-n", "9", "--trace", "/dev/full", *flags, stdin=stdin)
        assert (code, json.loads(out.splitlines()[0])["new_tokens"]) == (1, 9)
        assert err.splitlines()[-1] == "dflash: error: cannot write the trace /dev/full: No space left on device"


def test_an_interrupted_answer_is_in_the_trace(
    run: Run, pair: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, own = iter(range(100)), Decoder._step

    def step(self: Decoder, running: Any) -> Any:
        if next(steps) == 2:
            raise KeyboardInterrupt
        return own(self, running)

    monkeypatch.setattr(Decoder, "_step", step)
    assert run(*pair, "-n", "40", "--trace", str(tmp_path / "t"), "-", stdin=b"hello")[0] == 130
    events = [each.event for each in read_trace(tmp_path / "t")[0].steps]
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "interrupted"


def test_a_character_cut_in_half_is_left_out_everywhere(tmp_path: Path, capfd: Any) -> None:
    model = scripted_model(tmp_path, ["a€".encode()] * 4, max_new_tokens=3, draft="none")
    prompt = Prompt("stdin", ({"role": "user", "content": "x"},))
    assert "".join(model.stream("x")) == "a"
    Runner(model, [prompt]).each(as_json=False, comparing=False)
    assert capfd.readouterr().out == "a\n"
    Runner(model, [prompt]).each(as_json=True, comparing=False)
    Runner(model, [prompt]).many(1)
    assert [json.loads(line)["text"] for line in capfd.readouterr().out.splitlines()] == ["a", "a"]


def test_every_block_size_gives_the_same_text(run: Run, pair: list[str]) -> None:
    texts = set()
    for flags in (["--block", "1"], ["--block", "3"], [], ["--draft", "none"]):
        code, out, _ = run(*pair, "-n", "30", *flags, "-", stdin=b"some prompt")
        assert code == 0
        texts.add(out)
    assert len(texts) == 1


def test_jsonl_keeps_the_order_and_the_single_answers(run: Run, pair: list[str]) -> None:
    lines = [{"prompt": "a" * n, "id": n} for n in (9, 1, 30, 4, 17)]
    lines.append({"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "x"}]})
    data = "\n".join(json.dumps(line) for line in lines).encode()
    code, out, err = run(*pair, "--jsonl", "--batch", "3", "--block", "4", "-n", "15", stdin=data + b"\n\n")
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [answer.get("id") for answer in answers] == [9, 1, 30, 4, 17, None]
    assert "6 answers · 90 tokens" in err
    for line, answer in zip(lines[:5], answers, strict=False):
        alone = json.loads(run(*pair, "--json", "--block", "4", "-n", "15", "-", stdin=line["prompt"].encode())[1])  # type: ignore
        assert alone["ids"] == answer["ids"]
        assert alone["acceptance"] == answer["acceptance"]


def test_stop_strings_and_stop_flags(run: Run, pair: list[str]) -> None:
    whole = json.loads(run(*pair, "-n", "40", "--json", "-", stdin=b"hello")[1])
    stop = whole["text"][5:7]
    cut = json.loads(run(*pair, "-n", "40", "--json", "--stop", stop, "-", stdin=b"hello")[1])
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["finish_reason"] == "stop"
    assert cut["ids"] == whole["ids"][: len(cut["ids"])]
    assert cut["new_tokens"] < whole["new_tokens"]


@pytest.mark.parametrize(
    ("args", "stdin", "code", "words"),
    [
        (["-"], b"", 1, "the prompt from stdin is empty"),
        (["-"], b" \n", 1, "is empty"),
        (["-"], b"caf\xe9", 1, "stdin is not UTF-8 text: byte 0xe9 at position 3"),
        (["nowhere.txt"], b"", 1, "nowhere.txt cannot be read: No such file"),
        (
            ["Why is it so?"],
            b"",
            1,
            "Why is it so? cannot be read: No such file or directory; to answer a text that is",
        ),
        (["Why? " * 99], b"", 1, "Why? ... cannot be read: File name too long; to answer a text that is not in a file"),
        (["."], b"", 1, "the prompt file . cannot be read: Is a directory\n"),
        (["--jsonl"], b'{"prompt": "x"}\n{oops', 1, "stdin line 2 is not JSON"),
        (["--jsonl"], b'{"prompt": "x", "id": ' + b"1" * 5000 + b"}", 1, "stdin line 1 is not JSON (Exceeds the limit"),
        (["--jsonl"], b"[1]", 1, "stdin line 1 is a JSON list"),
        (["--jsonl"], b'{"id": 1}', 1, "neither prompt"),
        (["--jsonl"], b'"x"\n{"promt": "x"}', 1, "stdin line 2 has an unknown key 'promt'; did you mean 'prompt'?"),
        (["--jsonl"], b'{"text": 1}', 1, "unknown key 'text'; expected prompt, messages, system, id"),
        (["--jsonl"], b'{"prompt": "x", "messages": []}', 1, "line 1 has both prompt and messages"),
        (
            ["--jsonl"],
            b'{"messages": [{"role": "user", "content": "x", "contents": "y"}]}',
            1,
            "line 1: a message has an unknown key 'contents'; did you mean 'content'?",
        ),
        (["-", "--batch", "2"], b"x", 2, "--batch goes with --jsonl only"),
        (["-", "--trace", "/no/where/t"], b"x", 1, "cannot write the trace /no/where/t: the folder /no/where does not"),
        (["--jsonl"], b'{"messages": [{"role": "user"}]}', 1, "must have role"),
        (["--jsonl"], b"", 1, "has no prompts"),
        (["--jsonl", "--compare"], b'"a"\n"b"', 2, "--compare goes with single prompts"),
        (["-", "--context", "20"], b"much longer than twenty tokens", 1, "the context holds 20"),
        (["-", "--context", "9999"], b"x", 2, "at most 512"),
        (["-", "--block", "7"], b"x", 2, "at most 6"),
        (["-", "--temperature", "-1"], b"x", 2, "expected a number at least 0"),
        (["-", "--device", "cuda:7"], b"x", 1, "--device cpu"),
    ],
)
def test_bad_input_is_one_helpful_line(
    run: Run, pair: list[str], args: list[str], stdin: bytes, code: int, words: str
) -> None:
    got, out, err = run(*pair, *args, stdin=stdin)
    assert (got, out) == (code, "")
    assert err.startswith("dflash: error: ")
    assert len(err.splitlines()) == 1
    assert words in err


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "dflash_cli", "run", *args]


def test_ctrl_c_keeps_what_there_is(run: Run, pair: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(run(*pair, "--json", "-n", "40", "-", stdin=b"hello")[1])
    steps, own = iter(range(100)), Decoder._step

    def step(self: Decoder, running: Any) -> Any:
        if next(steps) == 3:
            raise KeyboardInterrupt
        return own(self, running)

    monkeypatch.setattr(Decoder, "_step", step)
    code, out, err = run(*pair, "--json", "-n", "40", "-", stdin=b"hello")
    answer = json.loads(out)
    assert (code, answer["finish_reason"], len(answer["acceptance"]["lengths"])) == (130, "interrupted", 3)
    assert answer["ids"] == whole["ids"][: len(answer["ids"])]
    assert "interrupted" in err


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (RuntimeError("CUDA error"), 1), (MemoryError(), 1)]
)
def test_what_ends_a_batch_leaves_every_finished_answer(
    run: Run, pair: list[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    own = Decoder.generate_many

    def first_never_ends(self: Decoder, requests: Any) -> Any:
        finished = 0
        for index, event in own(self, requests):
            if index == 0 and isinstance(event, Finished):
                raise error
            yield index, event
            finished += isinstance(event, Finished)

    monkeypatch.setattr(Decoder, "generate_many", first_never_ends)
    # The first prompt has the most room in the context, so it is the last to finish.
    data = "\n".join(json.dumps({"prompt": "x" * n, "id": n}) for n in (1, 20, 25)).encode()
    code, out, _ = run(*pair, "--jsonl", "--batch", "3", "--context", "90", stdin=data)
    assert code == status
    assert [json.loads(line)["id"] for line in out.splitlines()] == [20, 25]


def test_ctrl_c_while_an_answer_is_written_writes_it_once(
    run: Run, pair: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dflash_cli.run.emit

    def emit(entry: dict[str, Any]) -> None:
        own(entry)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(dflash_cli.run, "emit", emit)
    data = "\n".join(json.dumps({"prompt": "x", "id": n}) for n in range(3)).encode()
    code, out, _ = run(*pair, "--jsonl", "--batch", "1", "-n", "3", stdin=data)
    assert code == 130
    assert [json.loads(line)["id"] for line in out.splitlines()] == [0]


def test_remarks_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    dflash_cli.run.say(Config(), "a model called \x1b]0;x\x07")
    assert capsys.readouterr().err == "dflash: a model called ␛]0;x␇\n"


def test_an_id_that_is_no_unicode_comes_back_escaped(run: Run, pair: list[str]) -> None:
    code, out, _ = run(*pair, "--jsonl", "-n", "3", stdin=b'{"prompt": "x", "id": "\\ud800"}')
    assert code == 0
    assert json.loads(out)["id"] == "\ud800"


def test_a_real_ctrl_c_ends_a_real_process(pair: list[str]) -> None:
    process = subprocess.Popen(
        command(*pair, "-t", "2", "--seed", "1", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello")
    process.stdin.close()
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    err = process.stderr.read() if process.stderr else b""
    assert process.wait(timeout=60) == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(("stream", "words"), [("<&-", "stdin is closed"), (">&-", "stdout is closed")])
def test_a_closed_stream_is_told(pair: list[str], stream: str, words: str) -> None:
    line = " ".join(f"'{each}'" for each in command(*pair, "-n", "3", "-"))
    result = subprocess.run(["bash", "-c", f"{line} {stream}"], input=b"hello", capture_output=True, check=False)
    assert result.returncode == 1
    assert f"dflash: error: {words}" in result.stderr.decode()


def test_a_closed_pipe_is_quiet(pair: list[str]) -> None:
    line = " ".join(f"'{each}'" for each in command(*pair, "-n", "200", "-"))
    result = subprocess.run(["bash", "-c", f"echo hello | {line} | head -c 1"], capture_output=True, check=False)
    assert b"Traceback" not in result.stderr
    assert b"Broken pipe" not in result.stderr
