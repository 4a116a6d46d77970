from __future__ import annotations

from pathlib import Path

import pytest

from dflash_cli import slash_input
from dflash_cli.errors import DFlashError
from tests.test_chat_commands import Talk


@pytest.fixture
def talk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(tmp_path, capsys)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the editor is given; it adds a line to that."""
    texts: list[str] = []

    def edit(text: str) -> str:
        texts.append(text)
        return f"{text}\n/clear"

    monkeypatch.setattr(slash_input, "edit", edit)
    return texts


def test_text_goes_through_the_editor_to_the_model(talk: Talk, given: list[str]) -> None:
    out, err = talk("/edit  Write\n two lines")
    assert (out, err) == ("first\n", "")
    assert given == ["Write\n two lines"]
    assert "user\nWrite\n two lines\n/clear\n" in talk.prompts[0]


def test_without_text_it_is_the_last_prompt(talk: Talk, given: list[str]) -> None:
    talk("question", "/edit", "/clear", "/edit")
    assert given == ["question", "question\n/clear"]
    talk("/edit")
    assert given[2:] == [""]


@pytest.mark.parametrize(
    ("saved", "told"),
    [(None, "nothing was saved, so nothing is sent"), ("", "the text is empty, so nothing is sent"), (" \n", "empty")],
)
def test_nothing_is_sent(talk: Talk, monkeypatch: pytest.MonkeyPatch, saved: str | None, told: str) -> None:
    monkeypatch.setattr(slash_input, "edit", lambda _text: saved)
    out, err = talk("/edit x")
    assert out == ""
    assert told in err
    assert talk.prompts == []


def test_an_editor_that_fails(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_text: str) -> None:
        raise DFlashError("no editor")

    monkeypatch.setattr(slash_input, "edit", fail)
    assert talk("/edit x", "one") == ("first\n", "dflash: error: no editor\n")
