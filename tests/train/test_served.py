"""Answers by a server: the target's own ids whatever the server sends, what may pass tried again, the rest named."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.model import Model
from dflash_cli.train import server
from dflash_cli.train.corpus import Wanted, answers
from dflash_cli.train.data import answer_file, answer_missing
from dflash_cli.train.reading import Read
from dflash_cli.train.report import Reporter
from dflash_cli.train.served import Served, as_finished
from dflash_cli.train.signals import Stop
from tests.byte_tokenizer import IM_END, THINK
from tests.tiny import make_target
from tests.train.answering_server import JUNK, AnsweringServer, Reply
from tests.train.lessons import RECIPE, make_model

QUIET = Reporter(quiet=True)
KEY = "secret-key-0123456789"
ASKED = replace(RECIPE, answer_tokens=12, rows=3)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    target = make_target(seed=2)
    target.lm_head.weight.data[IM_END] *= 3  # some answers end by themselves
    target.lm_head.weight.data[[*range(128, IM_END), *range(IM_END + 1, 272)]] = 0  # ids that text can be made of
    return make_model(tmp_path / "tokenizer", target)


@pytest.fixture
def http(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnsweringServer]:
    monkeypatch.setattr(server, "DELAYS", (0.0, 0.01))
    served = AnsweringServer(model)
    yield served
    served.close()


def wanted(model: Model, count: int = 8) -> list[Wanted]:
    messages = [({"role": "user", "content": f"{i} and {i * i}"},) for i in range(count)]
    return [Wanted(each, model.encode(each), "sums") for each in messages]


def ask(model: Model, http: AnsweringServer, count: int = 8, **changes: Any) -> dict[str, tuple[list[int], str]]:
    served = Served(model, replace(ASKED, engine=http.address, **changes), QUIET)
    return {each.key: (ids, reason) for each, ids, reason in served.answers(wanted(model, count), lambda: None)}


def own(model: Model, count: int = 8) -> dict[str, tuple[list[int], str]]:
    return {each.key: (ids, reason) for each, ids, reason in answers(model, wanted(model, count), ASKED)}


@pytest.mark.parametrize("style", ["vllm", "llama.cpp", "text only"])
def test_the_servers_answers_are_those_made_here(model: Model, http: AnsweringServer, style: str) -> None:
    http.style = style
    http.models[0]["owned_by"] = "llamacpp" if style == "llama.cpp" else style
    found = ask(model, http, 24)
    assert found == own(model, 24)
    assert len(found) == 24
    assert {reason for _, reason in found.values()} == {"stop", "length"}
    assert sorted(body["prompt"] for body in http.bodies) == sorted(each.prompt_ids for each in wanted(model, 24))
    body = http.bodies[0]
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_k"]) == ("tiny", 12, 0, -1)
    assert IM_END in body["stop_token_ids"]
    assert ("logprobs" in body) == (style == "llama.cpp")


def test_a_server_that_leaves_out_the_end_of_the_turn(model: Model, http: AnsweringServer) -> None:
    def without_end(body: dict[str, Any]) -> Reply:
        _, reply = http.complete(body)
        assert isinstance(reply, dict)
        choice = reply["choices"][0]
        choice["token_ids"] = [each for each in choice["token_ids"] if each != IM_END]
        return 200, reply

    http.say = without_end
    assert ask(model, http, 24) == own(model, 24)


def test_sampling_is_asked_for_with_seeds_of_its_own(model: Model, http: AnsweringServer) -> None:
    first = ask(model, http, 3, temperature=0.7, top_k=5, top_p=0.9)
    assert len(first) == 3
    assert {(body["temperature"], body["top_k"], body["top_p"]) for body in http.bodies} == {(0.7, 5, 0.9)}
    seeds = {body["seed"] for body in http.bodies}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)
    ask(model, http, 3, temperature=0.7)
    assert {body["seed"] for body in http.bodies} == seeds


def test_the_key_is_sent_and_never_shown(model: Model, http: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_ENGINE_KEY", KEY)
    ask(model, http, 2)
    assert set(http.keys) == {f"Bearer {KEY}"}
    http.say = lambda _body: (400, {"error": f"no such parameter, {KEY}"})
    with pytest.raises(DFlashError, match=r"status 400: .*no such parameter, \*\*\*") as caught:
        ask(model, http, 2)
    assert KEY not in str(caught.value)
    http.say = lambda _body: (401, {})
    with pytest.raises(DFlashError, match="does not accept the key in the variable DFLASH_ENGINE_KEY"):
        ask(model, http, 2)
    monkeypatch.delenv("DFLASH_ENGINE_KEY")
    with pytest.raises(DFlashError, match="wants a key: put it into the variable DFLASH_ENGINE_KEY"):
        ask(model, http, 2)
    monkeypatch.setenv("DFLASH_ENGINE_KEY", "two\nlines")
    with pytest.raises(UsageError, match="holds characters that no key has"):
        ask(model, http, 2)


def test_what_may_pass_is_tried_again(model: Model, http: AnsweringServer) -> None:
    calls = itertools.count()
    http.say = lambda body: http.complete(body) if next(calls) % 2 else (503, "busy")
    assert ask(model, http, 6, rows=1) == own(model, 6)
    assert len(http.bodies) == 12
    http.say = lambda _body: (503, "busy")
    with pytest.raises(DFlashError, match="status 503: busy"):
        ask(model, http, 6)


def test_an_answer_that_was_given_up_is_asked_for_again(model: Model, http: AnsweringServer) -> None:
    given_up = 200, {"choices": [{"finish_reason": "abort", "text": ""}]}
    calls = itertools.count()
    http.say = lambda body: http.complete(body) if next(calls) % 2 else given_up
    assert ask(model, http, 4, rows=1) == own(model, 4)
    http.say = lambda _body: given_up
    with pytest.raises(DFlashError, match="ended an answer with 'abort'"):
        ask(model, http, 1)


def test_a_server_that_hangs_is_not_asked_again(
    model: Model, http: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.2)
    release = threading.Event()

    def hang(_body: dict[str, Any]) -> Reply:
        release.wait(60)
        return 503, ""

    http.say = hang
    with pytest.raises(DFlashError, match=r"gave no answer within 0\.2 s; lower --rows or --answer-tokens"):
        ask(model, http, 1)
    assert len(http.bodies) == 1
    release.set()


def saying(*texts: bytes) -> Callable[[dict[str, Any]], Reply]:
    """Answers of these ids, in turns."""
    turns = itertools.cycle(texts)
    return lambda _body: (200, {"choices": [{"finish_reason": "length", "token_ids": [*next(turns)]}]})


@pytest.mark.parametrize("texts", [(b"ab", b"cd", b"ef"), (b"ab", b"cd", b"a long answer of another")])
def test_nothing_of_another_model_is_kept(
    tmp_path: Path, model: Model, http: AnsweringServer, texts: tuple[bytes, ...]
) -> None:
    """Also where its answers are too short to be compared one by one."""
    http.say = saying(*texts)
    recipe = replace(ASKED, engine=http.address, rows=1)
    with pytest.raises(DFlashError, match="does not answer as tiny: "):
        answer_missing(Read(wanted=wanted(model)), answer_file(recipe, model, tmp_path), recipe, model, QUIET, Stop())
    assert answer_file(recipe, model, tmp_path).answers == {}


def test_short_answers_of_the_target_are_kept(
    model: Model, http: AnsweringServer, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {key: ids[:3] for key, (ids, _) in own(model).items()}
    assert {key: ids for key, (ids, _) in ask(model, http, answer_tokens=3).items()} == expected
    http.say = saying(b"ab")
    served = Served(model, replace(ASKED, engine=http.address), Reporter())
    assert [ids for _, ids, _ in served.answers(wanted(model, 2), lambda: None)] == [[*b"ab"]] * 2
    assert "too short to tell whether the server has the target" in capsys.readouterr().err


def test_answers_made_from_text_are_counted(
    model: Model, http: AnsweringServer, capsys: pytest.CaptureFixture[str]
) -> None:
    http.style = "text only"
    served = Served(model, replace(ASKED, engine=http.address), Reporter())
    assert len(list(served.answers(wanted(model, 7), lambda: None))) == 7
    assert "those of 7 answers were made from their text" in capsys.readouterr().err


REPLIES: list[tuple[Reply, str]] = [
    ((404, "nothing here"), "has no /completions .*expected an address such as"),
    ((307, ""), "status 307 and points to http://127.0.0.1:1/v1/models; correct --engine"),
    ((400, "too long"), "status 400: too long; .* raise the server's context, or lower --max-tokens/--answer-tokens"),
    ((200, JUNK), "gives no JSON object"),
    ((200, {"choices": []}), "an answer without choices"),
    ((200, {"choices": [{"finish_reason": "stop"}]}), "an answer without text"),
    ((200, {"choices": [{"finish_reason": "tool_calls", "text": ""}]}), "ended an answer with 'tool_calls'"),
    ((200, {"choices": [{"finish_reason": "stop", "token_ids": [5, 999]}]}), "ids that the target does not have"),
    ((200, {"choices": [{"finish_reason": "stop", "token_ids": [True]}]}), "ids that the target does not have"),
    ((200, {"choices": [{"finish_reason": "length", "token_ids": list(range(40, 52))}]}), "does not answer as tiny: "),
]


@pytest.mark.parametrize(("reply", "words"), REPLIES, ids=[words for _, words in REPLIES])
def test_what_no_retry_helps_is_named_at_once(model: Model, http: AnsweringServer, reply: Reply, words: str) -> None:
    http.say = lambda _body: reply
    with pytest.raises(DFlashError, match=words):
        ask(model, http, 2, rows=1)
    assert len(http.bodies) <= 2


def test_the_model_is_found_or_asked_for(model: Model, http: AnsweringServer) -> None:
    http.models += [{"id": "other"}]
    with pytest.raises(UsageError, match="has several models; pass --engine-model, one of tiny, other"):
        ask(model, http)
    assert ask(model, http, 2, engine_model="tiny") == own(model, 2)
    with pytest.raises(UsageError, match="has no model 'tinny'; did you mean 'tiny'"):
        ask(model, http, engine_model="tinny")
    http.models = []
    with pytest.raises(DFlashError, match="lists no model"):
        ask(model, http)
    http.close()
    with pytest.raises(DFlashError, match=r"cannot be reached .*; start it, or correct --engine"):
        ask(model, http)


def test_answers_by_a_server_are_kept_and_go_on(tmp_path: Path, model: Model, http: AnsweringServer) -> None:
    recipe = replace(ASKED, engine=http.address, rows=1)
    calls = itertools.count()
    http.say = lambda body: http.complete(body) if next(calls) < 3 else (400, "out of order")
    read = Read(wanted=wanted(model))
    with pytest.raises(DFlashError, match="out of order"):
        answer_missing(read, answer_file(recipe, model, tmp_path), recipe, model, QUIET, Stop())
    http.say = http.complete
    file = answer_file(recipe, model, tmp_path)
    assert len(file.answers) == 3
    answer_missing(read, file, recipe, model, QUIET, Stop())
    assert len(http.bodies) == 4 + 5
    assert file.answers == {key: ids for key, (ids, _) in own(model).items()}
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert {line["finish"] for line in lines} <= {"stop", "length"}
    with pytest.raises(DFlashError, match="made with engine 'server', now it is None"):
        answer_file(replace(recipe, engine=None), model, tmp_path)


def test_a_stop_does_not_wait_for_answers() -> None:
    begun, release = time.monotonic(), threading.Event()
    calls = itertools.count()

    def check() -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt

    closing = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        list(as_finished(lambda _item: release.wait(60), [1, 2, 3], 2, check, closing))
    assert closing.is_set()
    assert time.monotonic() - begun < 30
    release.set()


def test_many_are_asked_at_once() -> None:
    """Each call waits until three are under way."""
    together = threading.Barrier(3, timeout=60)
    found = as_finished(lambda item: (together.wait(), item)[1], range(6), 3, lambda: None, threading.Event())
    assert sorted(found) == list(range(6))


def test_an_answers_text_keeps_thinking_tags_and_no_other_control(model: Model) -> None:
    encode = model.codec.encode_answer
    assert encode("<think>a") == [THINK, ord("a")]
    assert IM_END not in encode("a<|im_end|>")
