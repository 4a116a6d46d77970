from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_cli.chat import Chat, Screen
from dflash_cli.chat_commands import COMMANDS
from dflash_cli.config import Config
from dflash_cli.conversation import Conversation
from dflash_cli.events import BlockVerified, Finished, Prefilled
from dflash_cli.slash_talk import figures
from dflash_cli.stats import AnswerStats
from tests.scripted_model import ScriptedModel, scripted_model
from tests.talk import Typed

PLAIN_TEMPLATE = "{% for message in messages %}{{ message.role + ': ' + message.content + ';' }}{% endfor %}"


class Talk:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.model: ScriptedModel | None = None

    def __call__(self, *messages: str, quiet: bool = True, **kwargs: Any) -> tuple[str, str]:
        self.model = scripted_model(self.folder, ["first", "second", "third"], **kwargs)
        self.source = Typed(*messages)
        self.chat = Chat(Conversation(self.model), self.source, Screen(Config(quiet=quiet)))
        assert self.chat.run() == 0
        out, err = self.capsys.readouterr()
        return out, err

    def tell(self, message: str) -> str:
        """What an error says of one message."""
        chat = Chat(Conversation(scripted_model(self.folder, [])), Typed(message), Screen(Config()))
        chat.run()
        return self.capsys.readouterr().err

    @property
    def prompts(self) -> list[str]:
        assert self.model is not None
        return [bytes(each for each in ids if each < 256).decode() for ids in self.model.backend.prompts]


@pytest.fixture
def talk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(tmp_path, capsys)


def test_help_names_every_command_and_key(talk: Talk) -> None:
    out, err = talk("/help")
    assert out == ""
    for command in COMMANDS:
        assert f"\n{command.name} " in "\n" + err
        assert command.help in err
    assert "Ctrl-R" in err
    assert talk.prompts == []


def test_help_is_grouped(talk: Talk) -> None:
    lines = talk("/help")[1].splitlines()
    groups = " ".join(line or "|" for line in lines if not line.startswith(("/", "Alt", "Tab", "F2", "Ctrl")))
    assert groups == "Help | The conversation | What you see | How it answers | Saved chats | Keys"
    assert lines[1].startswith("/help [NAME] ")


def test_help_on_one_command_or_setting(talk: Talk) -> None:
    err = talk("/help quit", "/help /EXIT")[1].splitlines()
    assert err[:2] == err[2:] == ["/quit        Leave.", "also called  /exit, /bye"]
    assert talk("/help temperature")[1].startswith("temperature  0 ")
    assert "is no help on 'quti'; did you mean 'quit'?" in talk.tell("/help quti")


def test_help_on_the_overlay_has_its_legend(talk: Talk) -> None:
    err = talk("/help overlay")[1]
    assert "[kept]   guessed by the drafter, kept by the model\n" in err
    assert "~gone~ " in err
    assert "τ        tokens per pass" in err


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye", "/QUIT", " /quit "])
def test_quit_leaves(talk: Talk, word: str) -> None:
    assert talk(word, "never read") == ("", "")
    assert talk.source.messages == ["never read"]


def test_clear_forgets(talk: Talk) -> None:
    out, err = talk("one", "/clear", "two")
    assert (out, err) == ("first\nsecond\n", "dflash: forgot 1 turn\n")
    assert "one" not in talk.prompts[1]


def test_system_is_set_and_taken_away(talk: Talk) -> None:
    _, err = talk("/system Be  brief.\nAlways.", "one", "/system", "two")
    assert err.splitlines() == [
        "dflash: the system prompt is set",
        "dflash: no system prompt but the template's own",
    ]
    assert talk.prompts[0].startswith("system\nBe  brief.\nAlways.\nuser\none")
    assert talk.prompts[1].startswith("user\none\nassistant\nfirst")


def test_think(talk: Talk) -> None:
    _, err = talk("/think", "/think off", "one", "/think", "/think on", "two", "/think of")
    assert err.splitlines() == [
        "dflash: thinking as the template decides",
        "dflash: thinking off",
        "dflash: thinking off",
        "dflash: thinking on",
        "dflash: error: /think takes on, off or hide; found 'of'; did you mean 'off'?",
    ]
    assert talk.prompts[0].endswith("assistant\n\n\n\n\n")
    assert talk.prompts[1].endswith("assistant\n")


def test_think_without_a_switch(talk: Talk) -> None:
    _, err = talk("/think on", template=PLAIN_TEMPLATE)
    assert err == "dflash: error: scripted cannot switch thinking: its chat template has no such switch\n"


def test_stats(talk: Talk) -> None:
    assert talk("/stats") == ("", "dflash: no answer yet\n")
    _, err = talk("one", "/stats")
    assert "answer      6 tokens" in err
    assert "acceptance" in err


def test_figures() -> None:
    stats = AnswerStats()
    stats.add(Prefilled(10, 4, (1,), 5.0))
    stats.add(BlockVerified(10, 2, (1, 2, 3), 5, 1.0, 2.0))
    stats.add(BlockVerified(13, 0, (4,), 5, 1.0, 2.0))
    stats.add(Finished("length", 10.0))
    stats.ttft_ms = 7
    assert dict(figures(stats)) == {
        "prompt": "10 tokens, 4 of them reused from the cache",
        "answer": "5 tokens in 2 passes after the first, end: length",
        "speed": "400.0 tok/s, first token after 7 ms",
        "time": "prefill 5 ms, draft 2 ms, verify 4 ms, other 4 ms",
        "acceptance": "τ 2.00 tokens a pass, longest 3",
        "drafts": "2 of 10 accepted (20%)",
    }
    assert set(dict(figures(AnswerStats()))) == {"prompt", "answer", "speed", "time"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("/claer", "unknown command '/claer'; did you mean '/clear'?"),
        ("/etc/passwd?", "unknown command '/etc/passwd?'; /help lists the commands"),
        ("/", "unknown command '/'; /help lists the commands"),
        ("/clear all", "/clear takes nothing after it; found 'all'"),
        ("/x\x1b[2J", "unknown command"),
    ],
)
def test_what_is_no_command_never_reaches_the_model(talk: Talk, message: str, expected: str) -> None:
    out, err = talk(message)
    assert out == ""
    assert err.startswith(f"dflash: error: {expected}")
    assert len(err.splitlines()) == 1
    assert "\x1b" not in err
    assert talk.prompts == []


def test_several_lines_that_are_no_command_are_given_back(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[str] = []
    monkeypatch.setattr(Typed, "prefill", lambda _self, text: offered.append(text))
    _, err = talk("/usr/lib/x.py: line 3\n  more", "/nothing")
    assert [text for text in offered if text] == ["//usr/lib/x.py: line 3\n  more"]
    first, second = err.splitlines()
    assert first.endswith("(your message is at the prompt again, with // in front: Enter sends it)")
    assert second.endswith("(to send such a message, start it with //)")


def test_the_name_of_a_command_ends_at_any_space(talk: Talk) -> None:
    talk("/system\nBe brief.", "/system\tand so on", "one")
    assert talk.prompts[0].startswith("system\nand so on\n")


def test_two_slashes_send_one(talk: Talk) -> None:
    assert talk("//clear /all", "//") == ("first\nsecond\n", "")
    assert "user\n/clear /all\n" in talk.prompts[0]
    assert "user\n/\n" in talk.prompts[1]


def test_a_system_prompt_that_the_template_refuses(talk: Talk) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('never') }}{% endif %}" + PLAIN_TEMPLATE
    out, err = talk("/system Be brief.", "one", template=refusing)
    assert out == "first\n"
    assert err == "dflash: error: the chat template does not take this conversation: never\n"
