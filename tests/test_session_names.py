"""Names of saved chats: what is a name, and that none leaves the folder."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.errors import UsageError
from dflash_cli.session_names import MAX_BYTES, check_name, default_name, free_variant, is_name, same_name


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "Fibonacci 2",
        "2026-11-29-1504-k3f",
        "v1.2",
        "_x",
        "Größe",
        "日本語",
        "हिन्दी",
        "عربي",
        "con fusion",
        "x" * 80,
    ],
)
def test_good_names(name: str) -> None:
    assert check_name(name) == name
    assert is_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "it is empty"),
        (".", "it starts with '.'"),
        ("..", "it starts with '.'"),
        (".hidden", "it starts with '.'"),
        ("../up", "'/' is not allowed"),
        ("a/b", "'/' is not allowed"),
        ("/etc/passwd", "'/' is not allowed"),
        ("a\\b", r"'\\\\' is not allowed"),
        ("C:x", "':' is not allowed"),
        ("a\0b", r"'\\x00' is not allowed"),
        ("a\nb", r"'\\n' is not allowed"),
        ("\x1b[2J", r"'\\x1b' is not allowed"),
        ("a\u202eb", r"'\\u202e' is not allowed"),
        ("a\u200bb", r"'\\u200b' is not allowed"),
        ("\ud800", r"'\\ud800' is not allowed"),
        ("a*", r"'\*' is not allowed"),
        ("🙂", "is not allowed"),
        ("-rf", "it starts with '-'"),
        (" a", "it starts with ' '"),
        ("a ", "it ends with ' '"),
        ("a.", "it ends with '.'"),
        ("x" * 81, r"it is too long \(81 characters\)"),
        ("日" * 70, "it is too long"),
        ("con", "Windows keeps that name"),
        ("NUL", "Windows keeps that name"),
        ("Com1.txt", "Windows keeps that name"),
        ("lpt9", "Windows keeps that name"),
    ],
)
def test_bad_names(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be called .*{problem}.* Names have letters"):
        check_name(name)
    assert not is_name(name)


def test_names_are_composed() -> None:
    assert check_name("Gro\u0308ße") == "Größe"
    assert not is_name("Gro\u0308ße")


@given(st.text(max_size=90))
def test_no_name_leaves_its_folder(name: str) -> None:
    try:
        checked = check_name(name)
    except UsageError:
        return
    path = Path("folder") / f"{checked}.jsonl"
    assert path.parent == Path("folder")
    assert path.name == f"{checked}.jsonl"
    assert unicodedata.is_normalized("NFC", checked)
    assert len(path.name.encode()) < 255
    assert is_name(checked)


def test_case_is_no_difference() -> None:
    assert same_name("STRASSE", ["x", "straße"]) == "straße"
    assert same_name("GRÖSSE", ["Größe"]) == "Größe"
    assert same_name("a", ["ab"]) is None


def test_default_names() -> None:
    names = {default_name(datetime(2026, 11, 29, 15, 4)) for _ in range(50)}
    assert all(re.fullmatch(r"2026-11-29-1504-[a-z2-9]{3}", name) and is_name(name) for name in names)
    assert len(names) > 40


@pytest.mark.parametrize("name", ["a", "x" * 80, "日" * 66])
def test_variants(name: str) -> None:
    first = free_variant(name, [name])
    assert first.endswith("-2")
    second = free_variant(name, [name, first.upper()])
    assert second.endswith("-3")
    assert is_name(first)
    assert len(first.encode()) <= MAX_BYTES
