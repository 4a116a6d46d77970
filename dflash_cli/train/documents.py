"""What is trained on: prompt ids and the target's own answer, told apart by `start`."""

from __future__ import annotations

import functools
import hashlib
import random
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError
from dflash_cli.prompts import messages_of
from dflash_cli.train.prompts import BadLine, TrainingPrompt, read_lines, source_of

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.text import Message
    from dflash_cli.train.recipe import Recipe

SHORTEST_ANSWER = 2  # an anchor and a token after it to predict


@dataclass(frozen=True)
class Document:
    """Token ids (int32); those from `start` on are the answer, which is what a drafter learns."""

    ids: array[int]
    start: int
    source: str

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The part that was given."""
        return tuple(self.ids[: self.start])

    @property
    def key(self) -> str:
        """Equal for documents with the same prompt."""
        return prompt_key(self.ids[: self.start])

    @property
    def num_anchors(self) -> int:
        """Places an anchor may stand: answer tokens that have a token after them."""
        return len(self.ids) - self.start - 1


def prompt_key(ids: Iterable[int]) -> str:
    """A short name of a prompt's ids."""
    return hashlib.sha256(array("i", ids).tobytes()).hexdigest()[:16]


def longest(recipe: Recipe, model: Model) -> int:
    """Most tokens of a document: as many as were asked for, where the target's context holds them."""
    return min(recipe.max_tokens, model.max_len)


def make_document(
    prompt_ids: Sequence[int], answer_ids: Sequence[int], source: str, max_tokens: int
) -> Document | None:
    """A document cut to `max_tokens`, or None where nothing is left to learn from."""
    ids = array("i", [*prompt_ids, *answer_ids][:max_tokens])
    return Document(ids, len(prompt_ids), source) if len(ids) - len(prompt_ids) >= SHORTEST_ANSWER else None


@contextmanager
def named(name: str) -> Iterator[None]:
    """Says of an error where what it is about came from."""
    try:
        yield
    except DFlashError as error:
        raise DFlashError(f"{name}: {error}") from None


def encoded(model: Model, messages: Sequence[Message], name: str) -> list[int]:
    """`Model.encode` with errors that begin with `name`."""
    with named(name):
        return model.encode(messages)


def read_corpus(files: Sequence[str], model: Model) -> Iterator[tuple[str, list[int], list[int], str] | BadLine]:
    """(its place, prompt ids, answer ids, source) of each line of answers the target has already given."""

    def parse(file: str, where: str, entry: dict[str, Any]) -> tuple[str, list[int], list[int], str]:
        messages = messages_of(where, entry.get("messages"), None)
        answer = entry.get("answer_ids")
        size = model.target.config.vocab_size
        good = isinstance(answer, list) and all(type(each) is int and 0 <= each < size for each in answer)
        if not isinstance(answer, list) or not good:
            raise DFlashError(f"{where}: answer_ids is no list of token ids below {size}; expected those of the target")
        return where, encoded(model, messages, where), answer, source_of(where, entry, file)

    for file in files:
        yield from read_lines(file, functools.partial(parse, file))


def given_answer(model: Model, prompt: TrainingPrompt) -> list[int]:
    """Ids of the answer a file gives, with the token that ends a turn. Raises DFlashError."""
    if prompt.answer_ids is not None:
        return list(prompt.answer_ids)
    if not prompt.answer:
        raise DFlashError(f"{prompt.name} has no answer to keep: its last message is the user's")
    if model.config.raw:
        with named(prompt.name):
            return model.codec.encode_answer(prompt.answer)
    messages: list[Message] = [*prompt.messages, {"role": "assistant", "content": prompt.answer}]
    before = encoded(model, prompt.messages, prompt.name)
    ids = encoded(model, [*messages, {"role": "user", "content": "."}], prompt.name)
    whole, after = ids[: len(before)], ids[len(before) :]
    end = next((i for i, each in enumerate(after) if each in model.codec.stop_ids), None)
    if whole != before or end is None:
        raise DFlashError(
            f"{prompt.name}: this chat template writes earlier turns differently; leave out --keep-answers"
        )
    return after[: end + 1]


def without_repeats(documents: Iterable[Document], taken: set[str]) -> list[Document]:
    """The first document of each prompt whose key is not in `taken`."""
    kept: dict[str, Document] = {}
    for document in documents:
        if document.key not in taken:
            kept.setdefault(document.key, document)
    return list(kept.values())


def split(
    documents: list[Document], holdout: int, earlier: Sequence[Collection[str]] = ()
) -> tuple[list[Document], list[Document]]:
    """(trained on, held out): at most a tenth is held out, first what each of the `earlier` sittings held out (keys).

    Raises DFlashError for too few documents.
    """
    if len(documents) < 2:
        raise DFlashError(f"there are {len(documents)} documents to train on; expected at least 2, one is held out")

    def place(document: Document) -> tuple[int, bytes]:
        # By key alone: the same prompts are held out whatever the seed, and whatever else the files hold. (The 0 is
        # the seed that runs of an earlier version had unless told otherwise: they go on with the same ones.)
        key = document.key
        return -sum(key in keys for keys in earlier), hashlib.sha256(f"0 {key}".encode()).digest()

    count = min(holdout, max(1, len(documents) // 10))
    order = sorted(documents, key=place)
    held = {document.key for document in order[:count]}
    return [each for each in documents if each.key not in held], order[:count]


class Mixture:
    """How often the documents of each source are drawn, and in what order: by seed and epoch alone.

    A source of weight 2 has each of its documents twice in an epoch, one of weight 0.5 half of them, in turns: as many
    in every epoch.
    """

    def __init__(self, documents: Sequence[Document], weights: Mapping[str, float]) -> None:
        """`weights` by source; one that is not named has 1."""
        groups: dict[str, list[int]] = {}
        for index, document in enumerate(documents):
            groups.setdefault(document.source, []).append(index)
        self.parts = [(group, max(1, round(weights.get(name, 1) * len(group)))) for name, group in groups.items()]
        """Documents of a source, and how many draws they have in an epoch."""
        self.size = sum(count for _, count in self.parts)

    def order(self, seed: int, epoch: int) -> list[tuple[int, int]]:
        """(how often the document was drawn before, its index) of an epoch's draws; the same whenever it is asked."""
        drawn = []
        for group, count in self.parts:
            turns = group.copy()
            if count % len(group):  # which of them an epoch has must not follow the file
                random.Random(f"{seed} {group[0]}").shuffle(turns)  # noqa: S311
            places = range(epoch * count, (epoch + 1) * count)
            drawn += [(place // len(turns), turns[place % len(turns)]) for place in places]
        drawn.sort()
        random.Random(f"{seed} {epoch}").shuffle(drawn)  # noqa: S311
        return drawn
