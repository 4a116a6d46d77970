"""Exports: pages whose structure no text can break, objects that read back, files that stay private."""

from __future__ import annotations

import json
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dflash_cli.conversation import Turn
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.session_export import to_json, to_markdown, write_export
from dflash_cli.stats import AnswerStats
from dflash_cli.terminal import printable
from tests.test_markdown_blocks import documents

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def turn(prompt: str, answer: str, thinking: str = "", **stats: object) -> Turn:
    return Turn(prompt, answer, thinking, answer, AnswerStats(ids=[1, 2, 3], reason="stop", **stats))  # type: ignore[arg-type]


TURNS = [
    turn("Hello", "Hi **you**.", lengths=[2], accepted_each=[1], drafted_each=[4], decode_ms=100.0),
    turn("a *b*\nc", "```py\nx = 1", "hm `", prompt_tokens=9, reused_tokens=4),
]
hostile = documents | st.sampled_from(
    ["<!-- x", "<details>", "</details>", "<pre>", "# You", "[a]: b\n\n[a]", "``````", "x"]
)


def test_a_page() -> None:
    assert to_markdown("My *chat*", "a-pair", "Be brief.", TURNS) == (
        "# My \\*chat\\*\n\nModel: `a-pair`\n\n## System\n\nBe brief.\n\n"
        "## You\n\nHello\n\n## Answer\n\nHi **you**.\n\n*3 tokens · 20.0 tok/s · τ 2.00 · 25% of drafts accepted*\n\n"
        "## You\n\n```text\na *b*\nc\n```\n\n## Answer\n\n"
        "<details>\n<summary>Thinking</summary>\n\nhm `\n\n</details>\n\n"
        "````markdown\n```py\nx = 1\n````\n\n*3 tokens · reused 4 of 9*\n"
    )


def test_nothing_in_a_page_acts_on_a_terminal() -> None:
    text = "a\x1b[2J\x9b31m\u202eb\rc\x07"
    page = to_markdown(text, text, text, [turn(text, text, text)])
    assert printable(page) == page
    assert page.count("␛[2J") == 5
    assert page.startswith("# a␛\\[2J")
    data = to_json(text, text, text, [turn(text, text, text)])
    assert printable(data) == data
    assert json.loads(data)["turns"][0]["answer"] == text


def test_a_models_name_is_one_line() -> None:
    page = to_markdown("t", "x\n\n<script>\n\n# You", None, [turn("x", "y")])
    assert "Model: `x <script> # You`\n" in page
    assert outline(page) == ["You", "Answer", "*3 tokens*"]


def test_halves_of_characters_are_escaped() -> None:
    data = to_json("t", "m", None, [turn("\ud800", "日本")])
    assert data.encode("utf-8")
    assert "日本" in data
    assert json.loads(data)["turns"][0]["prompt"] == "\ud800"


def outline(page: str) -> list[str]:
    """The headings that are parts of a page, and its footers."""
    tokens = PARSER.parse(page)
    found = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    footers = [token.content for token in tokens if token.type == "inline" and token.content.startswith("*3 tokens")]
    details = [token.content for token in tokens if token.type == "html_block"]
    return [each for each in found if each in ("System", "You", "Answer")] + footers + details


@given(hostile, hostile, hostile, hostile)
def test_no_text_breaks_a_page(system: str, prompt: str, thinking: str, answer: str) -> None:
    page = to_markdown("t", "m", system or None, [turn(prompt, answer, thinking), turn("x", "y")])
    details = ["<details>\n<summary>Thinking</summary>\n", "</details>\n"] if thinking.strip() else []
    assert outline(page) == [
        *(["System"] if system else []), *["You", "Answer"] * 2, *["*3 tokens*"] * 2, *details,
    ]  # fmt: skip
    env: dict[str, object] = {}
    PARSER.parse(page, env)
    assert not env.get("references")


@given(st.text(), st.text())
def test_a_persons_text_is_shown_as_it_is(system: str, prompt: str) -> None:
    tokens = PARSER.parse(to_markdown("t", "m", system, [turn(prompt, "y")]))
    heading = next(i for i, token in enumerate(tokens) if token.content == "You")
    shown = tokens[heading + 2] if tokens[heading + 2].type == "fence" else tokens[heading + 3]
    expected = printable(prompt)
    assert shown.content.removesuffix("\n") == expected.removesuffix("\n") or shown.content == expected + "\n"


@given(st.text(), st.text(), st.none() | st.text(), st.text(), st.text())
def test_json_reads_back(title: str, model: str, system: str | None, prompt: str, answer: str) -> None:
    page = json.loads(to_json(title, model, system, [turn(prompt, answer, "t")]))
    assert (page["title"], page["model"], page["system"], page["schema"]) == (title, model, system, 1)
    assert (page["turns"][0]["prompt"], page["turns"][0]["answer"]) == (prompt, answer)


def test_json_has_the_figures() -> None:
    found = json.loads(to_json("t", "m", None, TURNS))["turns"]
    assert list(found[0]) == [
        "prompt", "thinking", "answer", "interrupted", "finish_reason", "prompt_tokens", "new_tokens", "reused_tokens",
        "acceptance", "timings",
    ]  # fmt: skip
    assert (found[0]["acceptance"]["tau"], found[0]["timings"]["tokens_per_s"], found[1]["thinking"]) == (
        2.0,
        20.0,
        "hm `",
    )


def test_files_are_private_and_never_overwritten_unasked(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.md", "t", "m", None, TURNS)
    assert path.read_text(encoding="utf-8") == to_markdown("t", "m", None, TURNS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(DFlashError, match="exists and is not overwritten; name another file, or remove it first"):
        write_export(path, "other", "m", None, TURNS)
    assert path.read_text(encoding="utf-8") == to_markdown("t", "m", None, TURNS)
    write_export(path, "other", "m", None, TURNS, overwrite=True)
    assert path.read_text(encoding="utf-8").startswith("# other")
    assert write_export(tmp_path / "a.JSON", "t", "m", None, TURNS).read_text(encoding="utf-8")[0] == "{"


def test_a_home_folder_may_be_short(home: Path) -> None:
    assert write_export(Path("~/a.md"), "t", "m", None, []) == home / "a.md"


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a name that ends in \.md or \.json"):
        write_export(tmp_path / "a.txt", "t", "m", None, [])
    with pytest.raises(UsageError, match=r"cannot write ~nobody-here/a\.md: there is no user with that home folder"):
        write_export(Path("~nobody-here/a.md"), "t", "m", None, [])
    with pytest.raises(DFlashError, match=r"the folder x{300} does not exist"):
        write_export(Path("x" * 300, "a.md"), "t", "m", None, [])
    with pytest.raises(DFlashError, match=r"the folder .* does not exist"):
        write_export(tmp_path / "no" / "a.md", "t", "m", None, [])
    (tmp_path / "b.md").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DFlashError, match="exists"):
        write_export(tmp_path / "b.md", "t", "m", None, [])
