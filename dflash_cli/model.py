"""A loaded pair: text in, events or text out. What `run`, `chat` and the Python API share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from dflash_cli.adaptive import Adaptive
from dflash_cli.backend_setup import ready_backend
from dflash_cli.config import Config
from dflash_cli.errors import UsageError
from dflash_cli.events import BlockDrafted, Event
from dflash_cli.models import Pair
from dflash_cli.overlay import TokenTexts
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from dflash_cli.stream import TextStream
from dflash_cli.text import Message, TextCodec

if TYPE_CHECKING:
    from backends.base import Backend
    from backends.drafter import Drafter
    from backends.target import Target
    from dflash_cli.depth import Depth


SAMPLING = tuple(each.name for each in fields(SamplingParams))
CHANGEABLE = {
    "block", "markdown", "max_new_tokens", "offline", "overlay", "quiet", "raw", "save_events", "show_thinking", "slow",
    "stats", "stop", "system", "theme", "thinking", "verbose", *SAMPLING,
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A pair that is ready to answer. `defaults`: how the checkpoint itself wants to be sampled."""

    pair: Pair
    config: Config
    codec: TextCodec
    target: Target
    drafter: Drafter | None
    defaults: SamplingParams
    max_len: int

    @property
    def params(self) -> SamplingParams:
        """How ids are chosen: the settings over the checkpoint's defaults."""
        asked = {name: getattr(self.config, name) for name in SAMPLING}
        return replace(self.defaults, **{name: value for name, value in asked.items() if value is not None})

    def decoder(self, *, batch_size: int = 1, width: int | None = None, after: Decoder | None = None) -> Decoder:
        """A decoder at the configured block size or at `width`.

        `after`: one that is not used any more: its caches, and what they hold, are taken over where they fit.
        """
        # One verify at a time is all a block of 1 does: then the drafter's context would be work for nothing.
        drafter = None if self.config.block == 1 else self.drafter
        backend = self._backend(drafter, batch_size, None if after is None else after.backend)
        resident = after.resident if after is not None and backend.took_over else None
        return Decoder(backend, width or self.config.block, self._depth(backend), resident)

    def plain_decoder(self) -> Decoder:
        """The baseline: the same loop and weights, no drafter, caches of its own."""
        return Decoder(self._backend(None, 1), 1)

    def _depth(self, backend: Backend) -> Callable[[int], Depth] | None:
        return Adaptive(self.pair, backend)

    def _backend(self, drafter: Drafter | None, batch_size: int, before: Backend | None = None) -> Backend:
        return ready_backend(self, drafter, batch_size=batch_size, before=before)

    @property
    def thinking(self) -> bool | None:
        """Whether the template is asked to let the model think; None where it has no such switch."""
        if not self.codec.supports_thinking:
            return None
        return self.pair.thinking if self.config.thinking is None else self.config.thinking

    def idle_settings(self) -> Iterator[str]:
        """Settings that were given and mean nothing here, each in a sentence."""
        config = self.config
        if config.thinking is not None and (config.raw or not self.codec.supports_thinking):
            why = "raw text goes through no template" if config.raw else "the chat template has no such switch"
            yield f"thinking {'on' if config.thinking else 'off'} means nothing to {self.pair.name}: {why}"
        if config.chat_template is not None and config.raw:
            yield "the chat template is not used: raw text goes through none"
        if config.quantize != "none" and not self._runs_packed():
            yield f"{config.quantize} weights are made whole for each product here: that saves memory, not time"

    def _runs_packed(self) -> bool:
        from backends.quantize import runs_packed

        return runs_packed(self.target)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Prompt ids of a conversation, ready to be answered. In raw mode the texts are joined as they are."""
        if self.config.raw:
            return self.codec.encode_raw("".join(message["content"] for message in messages))
        return self.codec.encode_chat(messages, thinking=self.thinking)

    def conversation(self, prompt: str) -> list[Message]:
        """The messages of a single prompt: the configured system message, if any, and the user's."""
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return [*system, {"role": "user", "content": prompt}]

    def request(self, prompt_ids: Sequence[int]) -> Request:
        """A request with the configured limits, stops and sampling."""
        finder: Callable[[], TextStream] | None = self.text_stream if self.config.stop else None
        return Request(prompt_ids, self.params, self.max_new_tokens, self.codec.stop_ids, finder)

    @property
    def max_new_tokens(self) -> int | None:
        """Most ids of an answer: as asked, else the pair's; None = as many as the context holds."""
        return self.config.max_new_tokens or self.pair.max_new_tokens

    def text_stream(self) -> TextStream:
        """A fresh detokenizer that ends before the configured stop strings."""
        return TextStream(self.codec, self.config.stop)

    def events(self, prompt: str, decoder: Decoder | None = None) -> Iterator[Event]:
        """The events of the answer to one prompt. Pass a decoder to keep its cache between calls."""
        return (decoder or self.decoder()).generate(self.request(self.encode(self.conversation(prompt))))

    def stream(self, prompt: str, decoder: Decoder | None = None) -> Iterator[str]:
        """The text of the answer, thinking included, piece by piece, without a character that its end cuts in half."""
        texts = TokenTexts(self.codec, self.config.stop)
        for event in self.events(prompt, decoder):
            if not isinstance(event, BlockDrafted) and (piece := "".join(texts.of(event))):
                yield piece

    def with_config(self, **changes: object) -> Model:
        """The same weights under other settings that need no loading. Raises UsageError for any that do."""
        if fixed := sorted(changes.keys() - CHANGEABLE):
            raise UsageError(f"{fixed[0]} cannot be changed after loading; can be: {', '.join(sorted(CHANGEABLE))}")
        return replace(self, config=replace(self.config, **changes))  # type: ignore[arg-type]
