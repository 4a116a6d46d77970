from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dflash_cli.overlay_render import ASCII
from dflash_cli.stats import AnswerStats
from dflash_cli.toolbar import Fragments, Status, render, status_of

STATUS = Status("qwen3-8b", "eager", "full", 1024, 4096, "on", 3.26, 41.4, "my plans")


def plain(line: Fragments) -> str:
    return "".join(text for _, text in line)


def test_all_of_it() -> None:
    expected = "qwen3-8b · eager · thinking on · overlay full · ctx ▮⋅⋅⋅⋅ 1024/4096 · τ 3.3 · 41 tok/s · my plans"
    assert plain(render(STATUS, 200)) == expected
    assert plain(render(STATUS, cell_len(expected))) == expected
    assert {style for style, _ in render(STATUS, 200)} == {"class:toolbar"}


def test_what_is_not_known_is_left_out() -> None:
    bare = Status("m", "eager", "off", 0, 512)
    assert plain(render(bare, 80)) == "m · eager · overlay off · ctx ⋅⋅⋅⋅⋅ 0/512"


def test_a_narrow_line_gives_up_the_least_important_first() -> None:
    lines = [plain(render(STATUS, width)) for width in range(95, 0, -1)]
    shown = list(dict.fromkeys(lines))
    assert shown[:9] == [
        "qwen3-8b · eager · thinking on · overlay full · ctx ▮⋅⋅⋅⋅ 1024/4096 · τ 3.3 · 41 tok/s",
        "qwen3-8b · thinking on · overlay full · ctx ▮⋅⋅⋅⋅ 1024/4096 · τ 3.3 · 41 tok/s",
        "qwen3-8b · overlay full · ctx ▮⋅⋅⋅⋅ 1024/4096 · τ 3.3 · 41 tok/s",
        "qwen3-8b · overlay full · ctx ▮⋅⋅⋅⋅ 1024/4096 · τ 3.3",
        "qwen3-8b · overlay full · ctx ▮⋅⋅⋅⋅ 1024/4096",
        "qwen3-8b · overlay full · ctx 1024/4096",
        "qwen3-8b · ctx 1024/4096",
        "qwen3-8b · ctx 25%",
        "ctx 25%",
    ]
    assert plain(render(STATUS, 20)) == "qwen3-8b · ctx 25%"


@pytest.mark.parametrize(
    ("used", "style", "signs"),
    [
        (0, "class:toolbar", ""),
        (79, "class:toolbar", ""),
        (80, "class:toolbar.nearly", "!"),
        (95, "class:toolbar.full", "!!"),
        (120, "class:toolbar.full", "!!"),
    ],
)
def test_a_context_that_fills_up(used: int, style: str, signs: str) -> None:
    status = replace(STATUS, used=used, limit=100)
    (context,) = [part for part in render(status, 200) if "ctx" in part[1]]
    assert context[0] == style
    line = render(status, 200, has_color=False)
    assert {style for style, _ in line} == {""}
    assert f"{used}/100{signs} ·" in plain(line)


def test_ascii() -> None:
    assert plain(render(STATUS, 200, glyphs=ASCII)).isascii()
    assert "ctx #.... 1024/4096 | tau 3.3" in plain(render(STATUS, 200, glyphs=ASCII))
    assert plain(render(replace(STATUS, model="x" * 99), 12, glyphs=ASCII)) == "ctx 25%"
    assert "xxx... |" in plain(render(replace(STATUS, model="x" * 99), 200, glyphs=ASCII))


@given(
    st.builds(
        Status,
        model=st.text("a漢👍é ", max_size=40),
        backend=st.sampled_from(["eager", "compiled"]),
        overlay=st.sampled_from(["off", "tokens", "full"]),
        used=st.integers(0, 10**7),
        limit=st.integers(0, 10**7),
        thinking=st.sampled_from(["", "on", "hidden"]),
        tau=st.none() | st.floats(1, 16),
        tokens_per_s=st.none() | st.floats(0, 10**5),
        session=st.text("a漢👍 ", max_size=90),
    ),
    st.integers(0, 200),
)
def test_it_never_is_wider_than_the_terminal(status: Status, width: int) -> None:
    line = plain(render(status, width))
    assert cell_len(line) <= width
    assert "\n" not in line
    if width >= 20:
        assert "ctx " in line
        assert line.endswith(plain(render(status, 10**6))) or cell_len(plain(render(status, 10**6))) > width


def a_chat(**changes: Any) -> Any:
    stats = AnswerStats(prompt_tokens=100, ids=[1] * 21, lengths=[4] * 5, accepted_each=[3] * 5, drafted_each=[7] * 5)
    stats.decode_ms = 500
    turn = SimpleNamespace(stats=stats)
    model = SimpleNamespace(
        pair=SimpleNamespace(name="a\x1b[31m\nmodel"),
        codec=SimpleNamespace(supports_thinking=True),
        thinking=None,
        config=SimpleNamespace(show_thinking=None),
    )
    decoder = SimpleNamespace(backend=SimpleNamespace(name="eager"))
    chat = {
        "conversation": SimpleNamespace(model=model, decoder=decoder, turns=[turn], max_len=512, is_released=False),
        "overlay": SimpleNamespace(mode="tokens"),
        "last_turn": turn,
        "log": SimpleNamespace(name="one", is_saved=True),
    }
    return SimpleNamespace(**chat | changes)


def test_the_status_of_a_chat() -> None:
    status = status_of(a_chat())
    assert status == Status("a␛[31m model", "eager", "tokens", 121, 512, "auto", 4.0, 40.0, "one")


def test_the_status_of_a_new_chat() -> None:
    chat = a_chat(last_turn=None, log=None)
    chat.conversation.turns = []
    chat.conversation.model.codec.supports_thinking = False
    assert status_of(chat) == Status("a␛[31m model", "eager", "tokens", 0, 512)


def test_an_undone_turn_frees_the_context_and_its_figures_stay() -> None:
    chat = a_chat(log=SimpleNamespace(name="one", is_saved=False))
    chat.conversation.turns = []
    status = status_of(chat)
    assert (status.used, status.tau, status.session) == (0, 4.0, "")


@pytest.mark.parametrize(
    ("thinking", "shown", "expected"),
    [(True, None, "on"), (False, None, "off"), (False, False, "off"), (True, False, "hidden"), (None, False, "hidden")],
)
def test_thinking(thinking: bool | None, shown: bool | None, expected: str) -> None:
    chat = a_chat()
    chat.conversation.model.thinking = thinking
    chat.conversation.model.config.show_thinking = shown
    assert status_of(chat).thinking == expected


def test_no_acceptance_where_nothing_was_drafted() -> None:
    chat = a_chat()
    chat.last_turn.stats.drafted_each = []
    assert status_of(chat).tau is None
