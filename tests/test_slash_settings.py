"""/model, /draft, /backend, /block, /spec, /think, /system, /set and /show in mid-chat, on real tiny pairs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends import DRAFT_VOCABULARY
from backends.draft_vocabulary import draft_ids_file
from dflash_cli.chat_commands import COMMANDS
from dflash_cli.cli import main
from dflash_cli.config import SETTINGS, Config
from dflash_cli.loading import load
from dflash_cli.slash import PATHS
from dflash_cli.slash_settings import find_setting
from dflash_cli.switching import can_change
from tests.scripted_model import scripted_model
from tests.talk import Talk
from tests.tiny import VOCAB, write_pair

Start = Callable[..., Talk]
PLAIN_TEMPLATE = "{% for message in messages %}{{ message.role + ': ' + message.content + ';' }}{% endfor %}"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Two pairs of different weights."""
    found = {}
    for name, seed in (("a", 0), ("b", 7)):
        target, drafter = write_pair(tmp_path_factory.mktemp(name), seed=seed)
        found[name] = str(target), str(drafter)
    return found


@pytest.fixture
def start(pairs: dict[str, tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> Start:
    def begin(**config: Any) -> Talk:
        settings: dict[str, Any] = {"model": pairs["a"][0], "draft": pairs["a"][1], "max_new_tokens": 12} | config
        return Talk(load(Config(device="cpu", dtype="float32", **settings)), capsys)

    return begin


@pytest.fixture
def scripted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Start:
    return lambda **config: Talk(scripted_model(tmp_path, ["first", "second", "third"], **config), capsys)


def reused_share(talk: Talk, prompt: str = "and more?") -> tuple[int, int]:
    """How many ids of the next prompt were reused, and how many the cache of an undisturbed chat would have had."""
    last = talk.conversation.turns[-1]
    cached = [*talk.conversation.encode_first(len(talk.conversation.turns) - 1, last.prompt), *last.stats.ids[:-1]]
    ids = talk.conversation.encode(prompt)
    there = next((i for i, (a, b) in enumerate(zip(ids, cached, strict=False)) if a != b), len(cached))
    assert there >= last.stats.prompt_tokens
    return talk.conversation.ask(prompt).stats.reused_tokens, there


def test_block_and_speculation_keep_the_cache(start: Start) -> None:
    talk = start()
    talk("one")
    for command, said, width in (
        ("/spec off", "speculation off, plain decoding", 1),
        ("/spec on", "speculation on, blocks of up to 6", 6),
        ("/block 3", "block  3 (set in this chat)", 3),
        ("/spec off", "speculation off, plain decoding", 1),
        ("/spec on", "speculation on, blocks of 3", 3),
        ("/block 1", "block  1 (set in this chat)", 1),
        ("/block default", "block  auto, up to 6 (default)", 6),
        ("/block auto", "block  auto, up to 6 (default)", 6),
    ):
        assert talk(command)[1] == [said]
        assert talk.conversation.decoder.width == width
        reused, there = reused_share(talk)
        assert reused == there, command


def test_drafts_after_plain_turns_are_those_of_a_chat_that_always_drafted(start: Start) -> None:
    """The drafter reads along while it is not used: its context is whole when it is switched back on."""
    texts = []
    for commands in (["/spec off", "one", "/spec on"], ["one"]):
        talk = start()
        talk("/block 6", *commands, "two")
        stats = talk.conversation.turns[-1].stats
        texts.append((stats.ids, stats.lengths))
    assert texts[0] == texts[1]
    assert start()("/spec on")[1] == ["speculation on, blocks of up to 6"]


def test_another_draft_vocabulary_keeps_the_cache(start: Start, tmp_path: Path) -> None:
    """The drafter's context does not depend on what is read out of it."""
    target, drafter = write_pair(tmp_path)
    (drafter / DRAFT_VOCABULARY).write_bytes(draft_ids_file(range(0, VOCAB, 2), VOCAB))
    lengths = []
    for first, then in (("full", "auto"), ("auto", "full"), ("full", "full")):
        talk = start(model=str(target), draft=str(drafter), draft_vocabulary=first, block=6)
        talk("one", f"/set draft_vocabulary {then}")
        assert (talk.conversation.decoder.backend.draft_ids is None) == (then == "full")
        reused, there = reused_share(talk)
        assert reused == there > 0, (first, then)
        lengths.append(talk.conversation.turns[-1].stats.lengths)
    assert lengths[1] == lengths[2]  # drafts after the switch are those of a chat that always drafted all


def test_a_block_that_cannot_be_changes_nothing(start: Start) -> None:
    talk = start()
    _, err = talk("/block 7", "/block 0", "/block six")
    assert err[0].startswith("error: block size 7 is not possible: the drafter was trained on blocks of 6")
    assert err[1:] == [
        "error: block: found '0'; expected a whole number of at least 1, or auto",
        "error: block: found 'six'; expected a whole number of at least 1, or auto",
    ]
    assert talk.conversation.decoder.width == 6
    assert talk.conversation.model.config.block is None


def test_speculation_that_was_off_from_the_start(start: Start) -> None:
    talk = start(block=1)
    talk("one")
    assert talk.conversation.decoder.backend.block_size == 1
    assert talk("/spec on")[1] == ["speculation on, blocks of up to 6"]
    assert reused_share(talk)[0] == 0  # the drafter has not read along
    assert talk.conversation.decoder.backend.block_size == 6  # whether it drafts depends on what passes cost here


def test_no_drafter_no_speculation(start: Start, pairs: dict[str, tuple[str, str]]) -> None:
    talk = start(draft="none")
    assert "has no drafter: plain decoding only; /draft NAME loads one" in talk("/spec on")[1][0]
    _, err = talk("one", f"/draft {pairs['a'][1]}", "two")
    assert any("blocks of up to 6" in line for line in err)
    assert talk.conversation.decoder.backend.block_size == 6  # whether it drafts depends on what passes cost here


def test_another_drafter_keeps_the_targets_weights(start: Start, pairs: dict[str, tuple[str, str]]) -> None:
    talk = start(block=4)
    talk("one")
    target = talk.conversation.model.target
    _, err = talk("/draft none")
    assert err[0] == "the block size is auto again"
    assert any("plain decoding" in line for line in err)
    assert talk.conversation.model.target is target
    talk("two")
    assert talk.conversation.turns[-1].stats.drafted == 0
    talk(f"/draft {pairs['a'][1]}", "three")
    assert talk.conversation.model.target is target
    assert talk.conversation.decoder.backend.block_size == 6  # whether it drafts depends on what passes cost here
    assert len(talk.conversation.turns) == 3


def test_another_model(start: Start, pairs: dict[str, tuple[str, str]]) -> None:
    talk = start()
    talk("one")
    old = talk.conversation.turns[0]
    _, err = talk(f"/model {pairs['b'][0]}", "two")
    assert any("is ready: plain decoding" in line for line in err)  # nobody knows a drafter for a folder
    assert any("is read anew with your next message" in line for line in err)
    _, err = talk("/set theme tol", f"/model {pairs['a'][0]}", "/set temperature 1", "/set theme mono")
    assert sum("is read anew" in line for line in err) == 1, "what was not in the cache is not told again"
    assert talk.conversation.turns[0] is old
    fresh = load(Config(model=pairs["b"][0], device="cpu", dtype="float32", max_new_tokens=12))
    expected = fresh.encode(talk.conversation.messages("x"))
    assert talk.conversation.encode("x") == expected
    assert talk.conversation.turns[1].stats.reused_tokens == 0
    assert f"note {pairs['b'][0]}" in talk.log.calls


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/model qwen3-9b", "unknown model 'qwen3-9b'; did you mean 'qwen3-"),
        ("/model nowhere/at.gguf", "does not exist"),
        ("/draft nowhere/at.gguf", "does not exist"),
        ("/backend egaer", "backend: found 'egaer'; expected one of auto, eager"),
        ("/set context 99999", "--context 99999 is more than this target was made for"),
        ("/set temprature 1", "unknown setting 'temprature'; did you mean 'temperature'?"),
        ("/set temperature hot", "temperature: found 'hot'; expected a number at least 0"),
        ("/set top_p 0", "top_p: found 0.0; expected a number above 0 and at most 1"),
        ("/set color always", "color cannot change in a running chat; leave, and start one with --color"),
        ("/set device gpu", "device: found 'gpu'; expected auto, cpu"),
        ("/spec maybe", "/spec takes on or off"),
        ("/show nothing-such", "unknown setting 'nothing-such'"),
    ],
)
def test_what_fails_leaves_everything_as_it_was(start: Start, command: str, said: str) -> None:
    talk = start()
    talk("one")
    model, decoder, width = talk.conversation.model, talk.conversation.decoder, talk.conversation.decoder.width
    _, err = talk(command)
    assert len(err) == 1
    assert err[0].startswith("error: ")
    assert said in err[0]
    assert (talk.conversation.model, talk.conversation.decoder) == (model, decoder)
    assert talk.conversation.decoder.width == width
    assert not talk.conversation.changed
    reused, there = reused_share(talk)
    assert reused == there


def test_sampling_settings_take_effect(start: Start) -> None:
    talk = start()
    talk("one", "/set temperature=0.8", "/set top-k 5", "/set seed 3")
    params = talk.conversation.model.params
    assert (params.temperature, params.top_k, params.seed) == (0.8, 5, 3)
    talk("/set temperature default")
    assert talk.conversation.model.params.greedy
    reused, there = reused_share(talk)
    assert reused == there


def test_a_smaller_context_is_told_and_nothing_dropped(start: Start) -> None:
    talk = start()
    talk("one " * 20)
    _, err = talk("/set context 64")
    assert any("the context holds 64: nothing is dropped" in line for line in err)
    assert len(talk.conversation.turns) == 1
    _, err = talk("two")
    assert err[0].startswith("error: the conversation with this message has ")
    talk("/set context 512", "two")
    assert len(talk.conversation.turns) == 2


def test_precision_and_back(start: Start) -> None:
    talk = start()
    talk("one", "/set dtype bfloat16", "two")
    assert str(talk.conversation.decoder.backend.dtype) == "torch.bfloat16"
    assert len(talk.conversation.turns) == 2


def test_think(scripted: Start) -> None:
    talk = scripted()
    _, err = talk("/think", "/think hide", "/think on", "/think off", "/think of")
    assert err == [
        "thinking as the template decides",
        "thinking on, hidden",
        "thinking on",
        "thinking off",
        "error: /think takes on, off or hide; found 'of'; did you mean 'off'?",
    ]
    talk("/think hide")
    config = talk.conversation.model.config
    assert (config.thinking, config.show_thinking) == (True, False)


def test_think_where_only_hiding_is_possible(scripted: Start) -> None:
    talk = scripted(template=PLAIN_TEMPLATE)
    _, err = talk("/think off", "/think on", "/think hide", "/think on", "/think on")
    refused = "error: scripted cannot switch thinking: its chat template has no such switch"
    shown = "thinking as the template decides"
    assert err == [refused, refused, f"{shown}, hidden", shown, refused]


def test_settings_that_mean_nothing_are_told(scripted: Start) -> None:
    talk = scripted(template=PLAIN_TEMPLATE)
    assert "thinking on means nothing to scripted: the chat template has no such switch" in talk("/set think yes")[1]
    raw = scripted(raw=True)
    assert "thinking off means nothing to scripted: raw text goes through no template" in raw("/set thinking no")[1]
    assert list(scripted(raw=True, chat_template="x").conversation.model.idle_settings()) == [
        "the chat template is not used: raw text goes through none"
    ]
    assert list(scripted().conversation.model.idle_settings()) == []


def test_show(start: Start) -> None:
    talk = start(top_k=7)
    talk("/set temperature 0.5")
    rows = {line.split()[0]: line.split(None, 1)[1] for line in talk("/show")[1]}
    assert set(rows) == set(SETTINGS)
    assert rows["temperature"] == "0.5 (set in this chat)"
    assert rows["top_k"] == "7 (given)"
    assert rows["min_p"] == "0 (the checkpoint's)"
    assert rows["block"] == "auto, up to 6 (default)"
    assert rows["backend"] == "eager (default)"
    assert rows["seed"] == "another one each time (default)"
    assert rows["context"] == "512 (default)"
    one = talk("/show max-new-tokens")[1]
    assert one == [
        "max_new_tokens  12 (given)",
        f"for             {SETTINGS['max_new_tokens'].help}",
        "takes           a whole number of at least 1",
    ]
    assert any(line.startswith("target") for line in talk("/show model")[1])


def test_settings_of_the_screen(start: Start) -> None:
    talk = start()
    talk("/set overlay tokens", "/set quiet on", "/set theme tol")
    assert talk.chat.overlay.mode == "tokens"
    assert talk.chat.screen.is_quiet


def test_interrupted_loading_changes_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = start()
    talk("one")
    model = talk.conversation.model

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dflash_cli.loading.load_target", interrupted)
    assert talk(f"/model {model.pair.target}/../target")[1][-1] == "interrupted: all is as it was"
    assert talk.conversation.model is model
    talk.source.has_person = False
    with pytest.raises(KeyboardInterrupt):
        talk(f"/model {model.pair.target}/../target")


def test_every_setting_is_found_by_name_and_flag() -> None:
    for name, setting in SETTINGS.items():
        assert find_setting(name) is setting
        assert find_setting(name.upper().replace("_", "-")) is setting
        long = [flag.split("/")[0] for flag in setting.flags if flag.startswith("--")]
        assert all(find_setting(flag) is setting for flag in long)
    assert not can_change("color")
    assert can_change("model")


@pytest.mark.parametrize(
    ("name", "before", "some"),
    [
        ("/model", [], {"qwen3-8b", PATHS}),
        ("/draft", [], {"none", "qwen3-8b", PATHS}),
        ("/backend", [], {"auto", "eager"}),
        ("/spec", [], {"on", "off"}),
        ("/think", [], {"on", "off", "hide"}),
        ("/block", [], {"auto"}),
        ("/set", [], {"temperature", "model"}),
        ("/set", ["overlay"], {"off", "full", "default"}),
        ("/set", ["think"], {"on", "off", "default"}),
        ("/set", ["dtype"], {"float32"}),
        ("/set", ["draft"], {"none"}),
        ("/set", ["chat_template"], {PATHS}),
        ("/show", [], {"color", "model"}),
    ],
)
def test_words(scripted: Start, name: str, before: list[str], some: set[str]) -> None:
    (command,) = [each for each in COMMANDS if each.name == name]
    chat = scripted().chat
    assert some <= set(command.words(chat, before))
    assert not list(command.words(chat, [*before, "x", "y"]))
    if name == "/set" and not before:
        assert "color" not in set(command.words(chat, before))


def test_settings_that_mean_nothing_are_told_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command, arguments in (("chat", ["--no-save"]), ("run", ["-"])):
        monkeypatch.setattr(
            "dflash_cli.loading.load",
            lambda config, **_: scripted_model(tmp_path, ["x"], template=PLAIN_TEMPLATE, thinking=config.thinking),
        )
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
        assert main([command, "--think", *arguments]) == 0
        assert "thinking on means nothing to scripted: the chat template has no such switch" in capsys.readouterr().err
