"""The kind of an answer, told from its text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.stats_store.kind import KINDS, kind_of

PROSE = "The sea was calm that day.\n\nNobody had expected it, least of all the captain; he had 3 sons."
CODE = "Here you are:\n\n```python\ndef f(x):\n    return x * 2\n\nprint(f(3))\n```\n\nCall it."
BARE_CODE = "import os\n\ndef main():\n    x = os.getcwd()\n    return x\n"
C_CODE = "#include <stdio.h>\nint main(void) {\n  int x = 3;\n  return x;\n}\n"
MATH = "First 3 * 4 = 12 eggs are left.\nThen 12 + 5 = 17.\nSo the answer is 17."
TEX = "By the formula\n\\[ x = \\frac{1}{2} \\]\nwe get \\boxed{0.5}."
LIST = "- apples\n- pears; plums\n- the rest, as 2026-01-31 showed\n1. one\n2. two\nWell, that is all there is to say."


@pytest.mark.parametrize(
    ("text", "kind"),
    [(PROSE, "prose"), (CODE, "code"), (BARE_CODE, "code"), (C_CODE, "code"), (MATH, "math"), (TEX, "math"),
     (LIST, "prose"), ("", "prose"), ("\n \n", "prose"), ("```\nunfinished", "code")],
)  # fmt: skip
def test_kinds(text: str, kind: str) -> None:
    assert kind_of(text, 0, 100) == kind


def test_thinking_is_more_than_half_of_the_tokens() -> None:
    text = f"<think>\n{MATH}\n</think>\n\n{PROSE}"
    assert kind_of(text, 51, 100) == "thinking"
    assert kind_of(text, 50, 100) == "prose"  # what is thought says nothing of the answer


@given(st.text())
def test_any_text_has_a_kind(text: str) -> None:
    assert kind_of(text, 0, 1) in KINDS


@pytest.mark.parametrize("piece", ["```\n", "$ a", "x = ", "((((", "a" * 5, "\\(", "~~~\n  "])
def test_it_takes_no_time(piece: str) -> None:
    begun = time.perf_counter()
    kind_of(piece * 100_000, 0, 1)
    assert time.perf_counter() - begun < 10  # what goes back and forth in it would take hours
