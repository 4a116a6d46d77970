"""Text to ids and back: chat templates, raw prompts, stop ids. Imports transformers only when a tokenizer is loaded."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError
from dflash_cli.thinking import TAGS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": the text}."""

END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end_of_turn|>")

# A lone surrogate: text that passed `_check_unicode` cannot hold one, so nobody can forge it.
SEAM = "\udfff"


class TextCodec:
    """A model's tokenizer and chat template. Text from people never becomes a control id."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, *, chat_template: str | None = None, stop_ids: Iterable[int] = ()
    ) -> None:
        """`chat_template` replaces the tokenizer's own; `stop_ids` add to the tokenizer's end-of-text ids."""
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()  # a tokenizer.json may ask for either
        self._backend.no_padding()
        added = self._backend.get_added_tokens_decoder()
        self._special_ids = frozenset(each for each, token in added.items() if token.special)
        self._control = _starts_of(token.content for token in added.values())
        self._special = _starts_of(token.content for token in added.values() if token.special)
        self._template = _own_template(tokenizer) if chat_template is None else chat_template
        self.has_template = self._template is not None
        self.supports_thinking = "enable_thinking" in (self._template or "")
        opens, closes = (self._backend.token_to_id(tag) for tag in TAGS)
        self.thinking_ids: tuple[int, int] | None = (opens, closes) if opens in added and closes in added else None
        """Ids of the tags around a model's thinking, where each is a token of its own."""
        self.vocab_size: int = max([self._backend.get_vocab_size(with_added_tokens=False) - 1, *added]) + 1
        """One more than the highest id."""
        ends = (self._backend.token_to_id(text) for text in END_OF_TURN)
        turn_ids = [each for each in ends if each in self._special_ids]
        eos = tokenizer.eos_token_id
        self.stop_ids = frozenset(each for each in (eos, *turn_ids, *stop_ids) if isinstance(each, int))

    @classmethod
    def from_folder(cls, folder: Path, *, chat_template: str | None = None) -> TextCodec:
        """Load `tokenizer.json` and its neighbours from a checkpoint folder; nothing is downloaded or executed.

        Raises DFlashError when the folder has no such file or a file in it is broken.
        """
        if not (folder / "tokenizer.json").is_file():
            raise DFlashError(_no_tokenizer(folder))
        stop_ids = [
            each for name in ("generation_config.json", "config.json") for each in _eos_ids(_read_json(folder / name))
        ]
        from transformers import PreTrainedTokenizerFast

        try:
            with _quiet_transformers():
                tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        except Exception as err:  # the library raises bare Exception for a broken tokenizer.json
            raise DFlashError(f"the tokenizer in {folder} cannot be read ({_line(err)}); fetch it again") from err
        return cls(tokenizer, chat_template=chat_template, stop_ids=stop_ids)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over what each id stands for: equal for two files of one vocabulary, GGUF or not."""
        vocab = self._backend.get_vocab(with_added_tokens=True)
        lines = (f"{vocab[token]} {token}" for token in sorted(vocab, key=vocab.__getitem__))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def encode_chat(self, messages: Sequence[Message], *, thinking: bool | None = None) -> list[int]:
        """The conversation through the chat template, up to where the assistant speaks.

        Equal to the template's own ids, except that control strings inside a message stay text. In the assistant's
        messages only special ones do: templates read its `<think>` tags. `thinking` sets the template's
        `enable_thinking` switch where there is one; None leaves the template's default.
        Raises DFlashError without a template, where the template refuses the messages, and for text that is not
        valid Unicode.
        """
        if self._template is None:
            raise DFlashError(
                "this model has no chat template; pass one with --chat-template FILE, "
                "or --raw to continue the text as it stands"
            )
        if not messages:
            raise DFlashError("there is no message to answer")
        marked = [
            {key: text if key == "role" else self._seamed(text, message["role"]) for key, text in message.items()}
            for message in messages
        ]
        return self._encode(self._render(self._template, marked, thinking))

    def encode_raw(self, text: str) -> list[int]:
        """The text as it stands, after the start id where the tokenizer has one; control strings stay text."""
        start = self._backend.encode("", add_special_tokens=True).ids[:1]
        start = [each for each in start if each == self._tokenizer.bos_token_id]
        return start + self._encode(self._seamed(text, "user"))

    def encode_answer(self, text: str) -> list[int]:
        """An answer's text as it goes on after a prompt; only special control strings in it stay text."""
        return self._encode(SEAM + self._seamed(text, "assistant"))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids that show; bytes that form no character become U+FFFD."""
        return self._backend.decode([each for each in ids if self.shows(each)], skip_special_tokens=False)

    def token_text(self, token_id: int) -> str:
        """One id on its own, special ones too, for showing it; a part of a character becomes U+FFFD."""
        return self._backend.decode([token_id], skip_special_tokens=False)

    def shows(self, token_id: int) -> bool:
        """Whether `decode` makes anything of the id: not of special ids, ends of text, and ids past the vocabulary."""
        hidden = token_id in self._special_ids or token_id in self.stop_ids
        return not hidden and bool(self._backend.id_to_token(token_id))

    def _seamed(self, text: str, role: str) -> str:
        """The text with a seam after the first character of every control string in it."""
        _check_unicode(text)
        control = self._special if role == "assistant" else self._control
        normalizer = self._backend.normalizer
        if normalizer is not None:
            # Tokens are matched in the normalised text too: "＜|im_end|＞" would be one under NFKC.
            normal = normalizer.normalize_str(text)
            text = normal if len(control.findall(normal)) > len(control.findall(text)) else text
        return control.sub(rf"\1{SEAM}", text)

    def _render(self, template: str, messages: list[Message], thinking: bool | None) -> str:
        switch: dict[str, Any] = (
            {"enable_thinking": thinking} if self.supports_thinking and thinking is not None else {}
        )
        try:
            rendered = self._tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True, **switch
            )
        except Exception as err:  # a template is somebody's program: it may raise anything
            why = _line(err).replace(SEAM, "")
            raise DFlashError(f"the chat template does not take this conversation: {why}") from err
        assert isinstance(rendered, str)
        return rendered

    def _encode(self, text: str) -> list[int]:
        """Ids of text with seams; the text between two seams is encoded on its own, so no token spans a seam."""
        first, *rest = text.split(SEAM)
        ids = self._ids(first)
        newline = self._ids("\n")
        for piece in rest:
            # After a newline, because some tokenizers put a space before the first word of what they get.
            after = self._ids("\n" + piece)
            ids += after[len(newline) :] if after[: len(newline)] == newline else self._ids(piece)
        return ids

    def _ids(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids


def _starts_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches (as group 1) the first character of every occurrence of a token, overlapping ones included.

    Runs of spaces and single characters, which some vocabularies add, are ordinary text and left out.
    """
    controls = sorted({token for token in tokens if len(token) > 1 and not token.isspace()})
    if not controls:
        return re.compile(r"((?!))")
    return re.compile(f"(?={'|'.join(map(re.escape, controls))})(.)", re.DOTALL)


def _own_template(tokenizer: PreTrainedTokenizerFast) -> str | None:
    template: object = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _check_unicode(text: str) -> None:
    bad = re.search("[\ud800-\udfff]", text)
    if bad is None:
        return
    code = ord(bad[0])
    # Python keeps a byte of standard input that is not UTF-8 as U+DC00 + byte.
    what = f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"lone surrogate U+{code:04X}"
    raise DFlashError(f"the text is not valid UTF-8 ({what} at character {bad.start() + 1}); convert it to UTF-8 first")


def _no_tokenizer(folder: Path) -> str:
    if not folder.is_dir():
        return f"there is no folder {folder}; expected a checkpoint folder with a tokenizer.json"
    names = sorted(path.name for path in folder.iterdir())
    found = ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "nothing"
    return (
        f"{folder} has no tokenizer.json (found: {found}); copy the tokenizer.json of the model into it, "
        "or pass a checkpoint that has one"
    )


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, {} where there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as err:
        raise DFlashError(f"{path} cannot be read ({_line(err)}); expected JSON, fetch it again") from err
    if not isinstance(value, dict):
        raise DFlashError(f"{path} holds a {type(value).__name__}; expected a JSON object, fetch it again")
    return value


def _eos_ids(config: dict[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, int) and not isinstance(each, bool)]


def _line(err: Exception) -> str:
    return " ".join(str(err).split())[:300] or type(err).__name__


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No remarks about tokenizer classes: the class named in the folder is not needed."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
