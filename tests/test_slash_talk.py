"""Going back and forth in a conversation: /retry, /undo, /clear, /stats, /context and /race."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.config import Config
from dflash_cli.conversation import Turn
from dflash_cli.loading import load
from dflash_cli.slash_talk import context_rows, figures, totals
from dflash_cli.stats import AnswerStats
from tests.scripted_model import scripted_model
from tests.talk import Talk
from tests.test_conversation import after, ctrl_c
from tests.tiny import write_pair

Start = Callable[..., Talk]


@pytest.fixture
def start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Start:
    def begin(*answers: str, **config: Any) -> Talk:
        return Talk(scripted_model(tmp_path, answers or ("first", "second", "third"), **config), capsys)

    return begin


def prompts(talk: Talk) -> list[str]:
    backend: Any = talk.conversation.decoder.backend
    return [bytes(each for each in ids if each < 256).decode() for ids in backend.prompts]


def answers(talk: Talk) -> list[str]:
    return [turn.answer for turn in talk.conversation.turns]


def test_retry_answers_the_last_prompt_again(start: Start) -> None:
    talk = start()
    out, err = talk("one", "two", "/retry")
    assert out == "first\nsecond\nthird\n"
    assert err == ["sampling is greedy: unless a setting has changed, the text will be the same (/set temperature 0.7)"]
    assert answers(talk) == ["first", "third"]
    assert prompts(talk)[1] == prompts(talk)[2]
    assert talk.log.calls[-3:] == ["undo", "note scripted", "turn two"]


@pytest.mark.parametrize(
    ("config", "said"),
    [({"temperature": 0.7}, []), ({"temperature": 0.7, "seed": 3}, ["the seed is 3"])],
)
def test_retry_says_when_the_text_will_be_the_same(start: Start, config: dict[str, Any], said: list[str]) -> None:
    _, err = start(**config)("one", "/retry")
    assert [line[: len(text)] for line, text in zip(err, said, strict=True)] == said


def test_a_retry_that_comes_to_nothing_leaves_the_old_answer(start: Start) -> None:
    talk = start()
    talk("one")
    backend: Any = talk.conversation.decoder.backend
    backend.on_call = after(1, ctrl_c, "prefill")
    _, err = talk("/retry")
    assert err[-1] == "the earlier answer stays"
    assert answers(talk) == ["first"]
    assert talk.log.calls[-2:] == ["undo", "turn one"]

    def fail() -> None:
        raise RuntimeError("out of something")

    backend.on_call = after(1, fail, "verify")
    _, err = talk("/retry")
    assert any("out of something" in line for line in err)
    assert answers(talk) == ["first"]


@pytest.mark.parametrize("command", ["/retry", "/undo", "/undo 2", "/race"])
def test_nothing_to_go_back_to(start: Start, command: str) -> None:
    talk = start()
    _, err = talk(command)
    assert err[0].startswith("error: there is no ")
    assert talk.log.calls == []


def test_undo(start: Start) -> None:
    talk = start()
    talk("one", "two", "three")
    _, err = talk("/undo", "/undo 3", "/undo 2")
    assert err == [
        "took back 1 turn, from 'three' on",
        "error: there are only 2 turns to take back",
        "took back 2 turns, from 'one' on",
    ]
    assert answers(talk) == []
    assert talk.log.calls.count("undo") == 3
    assert "three" in talk.chat.last_turn.prompt  # type: ignore[union-attr]


@pytest.mark.parametrize("word", ["0", "-1", "x", "1.5", "٣"])
def test_undo_takes_a_number(start: Start, word: str) -> None:
    talk = start()
    _, err = talk("one", f"/undo {word}")
    assert err == [f"error: /undo takes a number of turns, at least 1; found {word!r}"]
    assert answers(talk) == ["first"]


def test_after_undo_the_cache_is_of_use(start: Start) -> None:
    talk = start()
    talk("one", "two", "/undo", "three")
    first, last = (turn.stats for turn in talk.conversation.turns)
    assert last.reused_tokens >= first.prompt_tokens + len(first.ids) - 1


def test_clear_is_noted(start: Start) -> None:
    talk = start()
    assert talk("one", "/clear")[1] == ["forgot 1 turn"]
    assert talk.log.calls[-1] == "clear"


def answered(tokens: int, *, thinking: int = 0, drafted: bool = True) -> AnswerStats:
    """Each pass committed 2 ids, 1 of 5 drafts among them (or one id without drafts); 10 ms a token."""
    each = 2 if drafted else 1
    passes = (tokens - 1) // each
    return AnswerStats(
        ids=[1] * tokens, lengths=[each] * passes, accepted_each=[each - 1] * passes,
        drafted_each=[5 if drafted else 0] * passes, thinking_tokens=thinking,
        thinking_passes=thinking // each, decode_ms=(tokens - 1) * 10.0,
    )  # fmt: skip


def test_thinking_and_answer_have_figures_apart() -> None:
    rows = dict(figures(answered(21, thinking=8)))
    assert rows["thinking"] == "8 tokens, τ 2.00, 20% of drafts accepted"
    assert rows["after it"] == "13 tokens, τ 2.00, 20% of drafts accepted"
    assert "thinking" not in dict(figures(answered(21)))


def test_totals() -> None:
    assert totals([answered(21)]) == []
    rows = dict(totals([answered(21, thinking=8), answered(11, drafted=False), answered(11)]))
    assert rows["conversation"] == "3 answers, 43 tokens, 100.0 tok/s"
    assert rows["its thinking"] == "8 tokens, τ 2.00, 20% of drafts accepted"
    assert rows["its answers"] == "22 tokens, τ 2.00, 20% of drafts accepted"  # the plain answer's are not drafted


def test_stats_of_the_chat(start: Start) -> None:
    assert start()("/stats")[1] == ["no answer yet"]
    _, err = start()("one", "two", "/stats")
    assert any(line.startswith("conversation") and "2 answers, 13 tokens" in line for line in err)


def test_context_adds_up(start: Start) -> None:
    talk = start("first", "second", system="Be brief.")
    talk("one", "two " * 20)
    rows = dict(context_rows(talk.conversation))
    parts = [int(text.split()[0]) for name, text in rows.items() if name not in ("used", "for more")]
    assert rows["used"].startswith(f"{sum(parts)} of 512 tokens")
    assert sum(parts) == len(talk.conversation.encode("Hello"))
    assert rows["turn 2"].endswith("…'")
    assert rows["for more"] == "/undo and /clear make room"
    assert rows["template"].endswith("with the system prompt and a message of one word")
    assert dict(context_rows(start().conversation)).keys() == {"used", "template"}
    assert talk("/context")[1][0].startswith("used")


def test_more_context_is_offered_where_there_is_some(start: Start) -> None:
    talk = start(max_len=100)
    _, err = talk("x" * 200)
    assert err[0].startswith("error: the message has 2")
    assert "shorten it, `/set context N` (or --context) gives a larger one, up to 512" in err[0]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"))


def test_a_race_of_a_real_pair(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model = load(
        Config(model=str(pair[0]), draft=str(pair[1]), dtype="float32", block=6, max_new_tokens=24, device="cpu")
    )
    talk = Talk(model, capsys)
    talk("hello")
    (turn,) = talk.conversation.turns
    before = list(talk.conversation.turns)
    _, err = talk("/race")
    assert [line.split()[0] for line in err] == ["plain", "DFlash", "result"]
    assert f"{len(turn.stats.ids)} tokens" in err[0]
    assert "τ" in err[1]
    assert err[2].endswith("identical text")
    assert talk.conversation.turns == before
    after_race: Turn = talk.conversation.ask("and now?")
    fresh = model.decoder()
    assert after_race.stats.reused_tokens >= turn.stats.prompt_tokens
    assert after_race.stats.ids == [
        each
        for event in fresh.generate(model.request(talk.conversation.encode_first(1, "and now?")))
        for each in getattr(event, "new_ids", ())
    ]
