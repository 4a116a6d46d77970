"""A `Model` that says what a script says, so that a chat can be followed word by word without weights."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.base import Backend
from backends.drafter import Drafter
from dflash_cli.config import Config
from dflash_cli.model import Model
from dflash_cli.models import Pair
from dflash_cli.sampling import SamplingParams
from dflash_cli.text import TextCodec
from tests.byte_tokenizer import END_THINK, IM_END, THINK, VOCAB_SIZE, make_byte_tokenizer_folder
from tests.fake_backend import ScriptedBackend
from tests.tiny import make_target

PAIR = Pair(name="scripted", target="a-script", drafter="a-guess", thinking=None, expected=(), note="")


@dataclass(frozen=True)
class ScriptedModel(Model):
    """A real model's text handling over a scripted backend."""

    backend: Any = None

    def _depth(self, backend: Backend) -> None:
        """Blocks of a fixed size: a script allows no passes to be measured, and tests know what comes."""

    def _backend(self, drafter: Drafter | None, batch_size: int, before: Backend | None = None) -> Backend:
        return self.backend  # type: ignore[no-any-return]


def scripted_model(
    folder: Path, answers: Sequence[str | bytes], *, template: str | None = None, max_len: int = 512, **config: Any
) -> ScriptedModel:
    """A model that gives `answers` in turn; one token a byte, and one for each tag of thinking in a text."""
    script = [script_ids(each) if isinstance(each, str) else list(each) for each in answers]
    backend = ScriptedBackend(script, vocab_size=VOCAB_SIZE, end_id=IM_END, max_len=max_len)
    codec = TextCodec.from_folder(make_byte_tokenizer_folder(folder), chat_template=template)
    return ScriptedModel(
        PAIR, Config(**config), codec, _target(), None, SamplingParams(), max_len=max_len, backend=backend
    )


def script_ids(text: str) -> list[int]:
    """The ids of a text in which thinking tags are tokens of their own."""
    tags = {"<think>": THINK, "</think>": END_THINK}
    pieces = re.split("(</?think>)", text)
    return [each for piece in pieces for each in ([tags[piece]] if piece in tags else piece.encode())]


@functools.cache
def _target() -> Any:
    return make_target()
