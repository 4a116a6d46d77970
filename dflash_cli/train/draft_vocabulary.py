"""The ids a drafter drafts (see `backends.draft_vocabulary`): those that the target's answers have most often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from backends import DRAFT_VOCABULARY
from backends.draft_vocabulary import draft_ids_file
from dflash_cli.errors import DFlashError
from dflash_cli.paths import write_private
from dflash_cli.train.documents import read_corpus
from dflash_cli.train.prompts import BadLine

if TYPE_CHECKING:
    from dflash_cli.model import Model


def most_frequent(answers: Iterable[Iterable[int]], size: int, vocab_size: int, always: Iterable[int]) -> list[int]:
    """At most `size` ids, rising: `always`, then by how often the answers have them, then the lowest others.

    A tokenizer learned by merging pairs numbers its tokens by frequency, the commonest first.
    """
    counts = Counter(chain.from_iterable(answers))
    by_count = sorted(counts, key=lambda each: (-counts[each], each))
    ranked = dict.fromkeys(chain(sorted(always), by_count, range(vocab_size)))
    return sorted(islice(ranked, size))


def write_index(folder: Path, ids: Sequence[int] | None, vocab_size: int) -> None:
    """Write the index beside a drafter's weights; None takes away one that is there. Raises DFlashError."""
    path = folder / DRAFT_VOCABULARY
    if ids is not None:
        write_private(path, draft_ids_file(ids, vocab_size))
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DFlashError(f"{path} cannot be removed: {error.strerror or error}") from error


def index_drafter(folder: Path, model: Model, corpus: Sequence[str], size: int) -> list[int]:
    """Give a drafter that is trained already an index of `size` ids, counted in files of answers of its target.

    `corpus`: JSON lines as for `--corpus`. Returns the ids. Raises DFlashError for a line that cannot be used.
    """
    answers = []
    for entry in read_corpus(corpus, model):
        if isinstance(entry, BadLine):
            raise DFlashError(entry.reason)
        _, _, answer, _ = entry
        answers.append(answer)
    vocab_size = model.target.config.vocab_size
    ids = most_frequent(answers, size, vocab_size, model.codec.stop_ids)
    write_index(folder, ids, vocab_size)
    return ids
