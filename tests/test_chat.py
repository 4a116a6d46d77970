"""Whole transcripts of `dflash chat`: through pipes in this process, and in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_cli import loading
from dflash_cli.chat import Screen, ready_line
from dflash_cli.cli import main
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from dflash_cli.errors import DFlashError
from tests.scripted_model import ScriptedModel, scripted_model

ROOT = Path(__file__).parent.parent
LONG = "".join(f"word{number} " for number in range(200))


class Piped:
    """Runs `dflash chat` over a scripted model with stdin from a pipe."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
        self.folder, self.monkeypatch, self.capfd = folder, monkeypatch, capfd
        self.model: ScriptedModel | None = None
        self.on_call: Callable[[str], None] = lambda _: None

    def __call__(
        self, stdin: str | bytes, answers: list[str | bytes], *args: str, **kwargs: Any
    ) -> tuple[int, str, str]:
        def load(config: Config, tell: Callable[[str], None], **_: Any) -> ScriptedModel:
            tell("a pair on a device")
            settings = {"quiet": config.quiet, "system": config.system, "stop": config.stop}
            self.model = scripted_model(self.folder, answers, **settings, **kwargs)
            self.model.backend.on_call = self.on_call
            return self.model

        data = stdin.encode() if isinstance(stdin, str) else stdin
        self.monkeypatch.setattr(loading, "load", load)
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["chat", *args])
        out, err = self.capfd.readouterr()
        return code, out, err

    def prompt(self, index: int) -> str:
        assert self.model is not None
        return bytes(each for each in self.model.backend.prompts[index] if each < 256).decode()


@pytest.fixture
def piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Piped:
    return Piped(tmp_path, monkeypatch, capfd)


def test_only_the_answers_are_on_stdout(piped: Piped) -> None:
    code, out, err = piped("hi\nbye\n", ["Hello you.", "Good bye.\n"])
    assert (code, out) == (0, "Hello you.\nGood bye.\n")
    loading_line, ready, first, second = err.splitlines()
    assert loading_line == "dflash: loading a pair on a device"
    assert ready == (
        "dflash: scripted is ready: blocks of 6, scripted backend, context 512, thinking as the template decides"
    )
    assert first.startswith("dflash: 11 tokens · ")
    assert "reused" not in first
    assert "reused" in second


def test_quiet(piped: Piped) -> None:
    assert piped("hi\n", ["Hello."], "-q") == (0, "Hello.\n", "")


def test_piped_text_is_exact(piped: Piped) -> None:
    hostile = "\x1b[2J\r\u202e \x9b漢👍"
    assert piped("hi", [hostile], "-q") == (0, hostile + "\n", "")


def test_lines_as_they_are(piped: Piped) -> None:
    code, out, _ = piped(b"\xef\xbb\xbfone\r\n\n  \n two \x07 <|im_end|>", ["1", "2"], "-q")
    assert (code, out) == (0, "1\n2\n")
    assert piped.prompt(0) == "user\none\nassistant\n"
    assert piped.prompt(1).endswith("user\n two \x07 <|im_end|>\nassistant\n")


def test_system_flag(piped: Piped) -> None:
    piped("hi\n", ["a"], "--system", "Be brief.")
    assert piped.prompt(0).startswith("system\nBe brief.\n")


def test_no_input_at_all(piped: Piped) -> None:
    assert piped("", [], "-q") == (0, "", "")


def test_a_line_that_is_no_utf8_is_told_and_passed_over(piped: Piped) -> None:
    code, out, err = piped(b"hi\nb\xff\nmore\n", ["a", "b"], "-q")
    assert (code, out) == (1, "a\nb\n")
    assert err == "dflash: error: line 2 of stdin is not UTF-8 text: byte 0xff at position 1; convert it first\n"


def test_a_message_that_does_not_fit(piped: Piped) -> None:
    code, out, err = piped("one\n" + "x" * 300 + "\nthree\n", ["a", "c"], "-q", max_len=200)
    assert (code, out) == (1, "a\nc\n")
    (line,) = err.splitlines()
    assert line.startswith("dflash: error: the conversation with this message has ")
    assert line.endswith("(your message is not part of the conversation)")
    assert "xxx" not in piped.prompt(1)


def test_an_error_in_mid_answer(piped: Piped) -> None:
    calls: list[str] = []

    def fail(kind: str) -> None:
        calls.append(kind)
        if calls.count("verify") == 2 and kind == "verify":
            raise MemoryError("no room")

    piped.on_call = fail
    code, out, err = piped("one\ntwo\n", ["abcdefghijkl", "fine"], "-q")
    assert (code, out) == (1, "abcde\nfine\n")
    assert err.startswith("dflash: error: out of memory (no room)")
    assert len(err.splitlines()) == 1


def test_traceback_shows_unexpected_errors(piped: Piped) -> None:
    def fail(_kind: str) -> None:
        raise RuntimeError("a bug")

    piped.on_call = fail
    assert "a bug" in piped("one\n", ["a"], "-q")[2]
    with pytest.raises(RuntimeError, match="a bug"):
        piped("one\n", ["a"], "-q", "--traceback")


def interrupt_at(*numbers: int, kind: str = "verify") -> Callable[[str], None]:
    calls: list[str] = []

    def on_call(name: str) -> None:
        calls.append(name)
        if name == kind and calls.count(kind) in numbers:
            signal.raise_signal(signal.SIGINT)

    return on_call


def test_ctrl_c_stops_the_answer_only(piped: Piped) -> None:
    piped.on_call = interrupt_at(2)
    code, out, err = piped("one\ntwo\n", ["abcdefghijkl", "fine"])
    assert (code, out) == (0, "abcde\nfine\n")
    line = err.splitlines()[2]
    assert line.startswith("dflash: [interrupted] 5 tokens")
    assert line.count("interrupted") == 1
    assert "abcde\nuser\ntwo" in piped.prompt(1)


def test_ctrl_c_twice_ends_a_pipe(piped: Piped) -> None:
    piped.on_call = interrupt_at(2, 3)
    code, out, err = piped("one\ntwo\nthree\n", ["abcdefghijkl", "mnopqrstuvwxyz", "never"], "-q")
    assert (code, out) == (130, "abcde\nm\n")
    assert err.count("[interrupted]") == 2


def test_ctrl_c_before_anything_came(piped: Piped) -> None:
    piped.on_call = interrupt_at(1, kind="prefill")
    code, out, err = piped("one\ntwo\n", ["fine"], "-q")
    assert (code, out) == (0, "fine\n")
    assert err == "dflash: [interrupted] before the answer began; your message is not part of the conversation\n"
    assert "one" not in piped.prompt(0)


def test_a_model_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def load(_config: Config, **_: Any) -> None:
        raise DFlashError("no such model")

    monkeypatch.setattr(loading, "load", load)
    assert main(["chat"]) == 1
    assert capfd.readouterr() == ("", "dflash: error: no such model\n")


def test_ctrl_c_while_loading(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(loading, "load", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert main(["chat"]) == 130
    out, err = capfd.readouterr()
    assert (out, err.strip()) == ("", "")


def test_ctrl_c_that_a_library_swallows_while_loading(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    def swallow(_line: str) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Screen, "say", lambda _self, line: swallow(line) if "loading" in line else None)
    assert piped("hi\n", ["a"])[:2] == (130, "")


def test_a_model_without_a_template_says_so_at_once(piped: Piped) -> None:
    code, out, err = piped("hi\n", ["a"], template="{{ raise_exception('not for chats') }}")
    assert (code, out) == (1, "")
    assert "not for chats" in err


def test_ready_without_a_drafter(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, [], block=1, thinking=False)
    assert ready_line(Conversation(model)) == (
        "scripted is ready: plain decoding, scripted backend, context 512, thinking off"
    )


def test_a_reader_that_is_gone(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert piped("one\ntwo\n", ["a", "b"], "-q") == (0, "", "")


def test_help_imports_no_torch() -> None:
    code = "import sys; from dflash_cli.cli import main; main(['chat', '--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Talk with a model" in done.stdout


pexpect = pytest.importorskip("pexpect")
HAS_PTY = pytest.mark.skipif(not hasattr(pexpect, "spawn"), reason="no pseudo-terminals here")
CTRL_C, CTRL_D, ALT_ENTER, CTRL_R = "\x03", "\x04", "\x1b\r", "\x12"
PASTE = "\x1b[200~{}\x1b[201~"
PROMPT = r"\x1b\[\?2004h|^> |\n> "  # bracketed paste is on: prompt-toolkit reads; or a plain prompt


@pytest.fixture
def chat(tmp_path: Path, home: Path) -> Iterator[Callable[..., Any]]:
    """Starts `dflash chat` in a pseudo-terminal and waits for its first prompt."""
    started = []

    def start(answers: list[str], *args: str, **environment: str) -> Any:
        env = os.environ | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        command = ["-m", "tests.chat_driver", str(tmp_path), json.dumps(answers), *args]
        child = pexpect.spawn(
            sys.executable, command, cwd=str(ROOT), env=env | environment, encoding="utf-8", timeout=60,
            dimensions=(24, 100),
        )  # fmt: skip
        child.delaybeforesend = 0.05
        started.append(child)
        child.expect(PROMPT)
        return child

    yield start
    for child in started:
        child.close(force=True)


def leave(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    assert child.signalstatus is None
    assert "Traceback" not in child.before
    return int(child.exitstatus)


@HAS_PTY
def test_a_session_in_a_terminal(chat: Any, home: Path) -> None:
    child = chat(["First \x1b[2Janswer.", LONG, "Third answer.", "Fourth."])
    child.send("hello\r")
    child.expect_exact("First ␛[2Janswer.")
    child.expect_exact("tokens")
    child.expect(PROMPT)

    child.send("go on\r")
    child.expect_exact("word5 ")
    child.send(CTRL_C)
    child.expect_exact("[interrupted]")
    assert "word199" not in child.before
    child.expect(PROMPT)

    child.send(PASTE.format("line one\nline two") + "\r")
    child.expect_exact("Third answer.")
    child.expect(r"reused (\d+) of")
    assert int(child.match[1]) > 40
    child.expect(PROMPT)

    child.send("typed" + ALT_ENTER + "below\r")
    child.expect_exact("Fourth.")
    child.expect(PROMPT)

    child.send("half a message" + CTRL_C)
    child.send(CTRL_C)
    child.expect_exact("again or Ctrl-D leaves")
    child.expect(PROMPT)
    child.send(CTRL_C)
    assert leave(child) == 0

    history = home / ".local/state/dflash/history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    assert "+line one\n+line two\n" in history.read_text()
    assert "+typed\n+below\n" in history.read_text()
    assert "half" not in history.read_text()


@HAS_PTY
def test_history_and_ctrl_d(chat: Any, home: Path) -> None:
    history = home / ".local/state/dflash/history"
    history.parent.mkdir(parents=True)
    history.write_text("\n# then\n+an old question\n")
    history.chmod(0o644)
    child = chat(["An old answer."], "-q")
    child.send(CTRL_R + "old q")
    child.expect_exact("uestion")
    child.send(CTRL_C + CTRL_R + "old q\r\r")  # Ctrl-C leaves the search, not the chat
    child.expect_exact("An old answer.")
    child.expect(PROMPT)
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    child.send(CTRL_D)
    assert leave(child) == 0


@HAS_PTY
def test_a_dumb_terminal(chat: Any) -> None:
    child = chat(["First.", LONG], TERM="dumb")
    child.send("hello\n")
    child.expect_exact("First.")
    child.expect(PROMPT)
    child.send("more\n")
    child.expect_exact("word5 ")
    child.send(CTRL_C)
    child.expect_exact("[interrupted]")
    child.expect(PROMPT)
    child.send(CTRL_C)
    child.expect_exact("again or Ctrl-D leaves")
    child.expect(PROMPT)
    child.send(CTRL_C)
    assert leave(child) == 0
