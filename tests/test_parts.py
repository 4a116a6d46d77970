from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_cli.parts import Parts


def shown(pieces: list[tuple[str, bool]]) -> list[str]:
    parts, texts = Parts(), []
    for text, thinking in pieces:
        text, parts = parts.show(text, thinking=thinking)
        texts.append(text)
    return texts


def test_tags_and_the_blanks_around_are_not_shown() -> None:
    pieces = [("<think>", True), ("\n", True), ("so", True), ("\n\n", True), ("then\n", True), ("</think>", True)]
    assert shown([*pieces, ("\n\n", False), ("Yes", False), ("\n", False)]) == [
        "", "", "so", "", "\n\nthen", "", "", "Yes", "\n",
    ]  # fmt: skip


words = st.sampled_from(["a", " ", "\n", "b c", "<think>"])


@given(st.lists(words))
def test_without_thinking_all_is_shown(texts: list[str]) -> None:
    assert shown([(text, False) for text in texts]) == texts


@given(st.lists(words.filter(lambda text: text != "<think>")), st.lists(words))
def test_both_parts_are_shown_stripped(thinking: list[str], answer: list[str]) -> None:
    pieces = [("<think>", True), *((text, True) for text in thinking), ("</think>", True)]
    texts = shown([*pieces, *((text, False) for text in answer)])
    assert "".join(texts[: len(pieces)]) == "".join(thinking).strip()
    assert "".join(texts[len(pieces) :]) == "".join(answer).lstrip()
