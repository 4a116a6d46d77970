"""What plain text becomes for a target without a chat template: a beginning that it goes on with. Imports no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dflash_cli.errors import DFlashError
from dflash_cli.train.documents import longest
from dflash_cli.train.prompts import TrainingPrompt

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe


def check_template(model: Model) -> None:
    """Raises DFlashError for a target that takes no messages, before any file is read."""
    try:
        model.encode([{"role": "user", "content": "x"}])
    except DFlashError as error:
        raise DFlashError(f"{model.pair.target}: {error}") from None


def as_beginning(prompt: TrainingPrompt, recipe: Recipe, model: Model) -> TrainingPrompt:
    """The text as a prompt, cut between words so that an answer has room.

    Where answers are kept, its first half is the prompt and the rest the answer.
    """
    *before, last = prompt.messages
    whole = text = last["content"]
    most = longest(recipe, model)
    room = most - min(recipe.answer_tokens, most // 2)
    if recipe.keep_answers:
        text = cut(text, len(text) // 2)
    while (count := len(model.encode([*before, {"role": "user", "content": text}]))) > room and len(text) > 1:
        text = cut(text, len(text) * room // count)
    answer = whole[len(text) :] if recipe.keep_answers else None
    return replace(prompt, messages=(*before, {"role": "user", "content": text}), answer=answer)


def cut(text: str, length: int) -> str:
    """The words that end within the first `length` characters, or a part of the first one, never nothing."""
    length = min(length, len(text) - 1)
    at = max(text.rfind(" ", 1, length + 1), text.rfind("\n", 1, length + 1))
    return text[: max(1, at if at > 0 and text[:at].strip() else length)]
