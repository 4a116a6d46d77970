"""The tokenizer inside a GGUF file, written as the files that Hugging Face's tokenizers read.

A GGUF file holds the vocabulary, the merges and a name for the rule that splits text into words (`tokenizer.ggml.pre`);
the rules themselves are llama.cpp's code, so only the ones below are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_cli.errors import DFlashError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5  # tokenizer.ggml.token_type


@dataclass(frozen=True)
class _Rule:
    """How one family splits text. `words` None: a split at every digit, then GPT-2's own pattern."""

    words: str | None
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False  # what llama.cpp does where the file does not say


LLAMA3 = _Rule(LLAMA3_WORDS, ignore_merges=True, adds_bos=True)
RULES = {
    "smollm": _Rule(None),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": _Rule(QWEN2_WORDS, nfc=True),
}


def write_tokenizer(metadata: Mapping[str, object], folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` of a GGUF file's metadata.

    Raises DFlashError where the file has no tokenizer or one of an unknown family.
    """
    rule = _rule(metadata)
    tokenizer = build_tokenizer(metadata, rule)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata, rule))
    _write_json(folder / "generation_config.json", _generation_config(metadata))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _rule(metadata: Mapping[str, object]) -> _Rule:
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in RULES:
        raise DFlashError(
            f"the GGUF file has a tokenizer of model {model!r} with pre-tokenizer {pre!r}; supported are model 'gpt2' "
            f"with {', '.join(RULES)}. Pass a folder or hub id with safetensors and tokenizer.json instead"
        )
    return RULES[str(pre)]


def build_tokenizer(metadata: Mapping[str, object], rule: _Rule) -> Tokenizer:
    """The tokenizer as an object of the `tokenizers` library. Raises DFlashError for a broken vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = [_merge(text) for text in _strings(metadata, "tokenizer.ggml.merges")]
    kinds = _kinds(metadata, len(tokens))
    if len(set(tokens)) != len(tokens):
        raise DFlashError("the GGUF file's vocabulary has the same token twice: it is damaged; fetch it again")
    vocab = {text: i for i, text in enumerate(tokens) if kinds[i] != UNUSED}
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=rule.ignore_merges))
    except Exception as err:  # the library raises bare Exception
        raise DFlashError(f"the GGUF file's vocabulary and merges do not go together ({err}); fetch it again") from err
    _set_splitting(tokenizer, rule)
    tokenizer.decoder = decoders.ByteLevel()
    # Their texts are in the vocabulary, so they keep their ids.
    control = [text for text, kind in zip(tokens, kinds, strict=True) if kind in (CONTROL, UNKNOWN)]
    defined = [text for text, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in defined])
    _set_bos(tokenizer, metadata, rule)
    return tokenizer


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise DFlashError(f"the GGUF file has no list {key}: it carries no whole tokenizer; fetch another file")
    return value


def _merge(text: str) -> tuple[str, str]:
    # A byte-level token never holds a space, so the first one past the start divides the pair.
    left, _, right = text[1:].partition(" ")
    return text[:1] + left, right


def _kinds(metadata: Mapping[str, object], num_tokens: int) -> list[int]:
    kinds = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != num_tokens:
        raise DFlashError("the GGUF file does not say which tokens are control tokens; fetch another file")
    return kinds


def _set_splitting(tokenizer: Tokenizer, rule: _Rule) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    first: pre_tokenizers.PreTokenizer
    if rule.words is None:
        first = pre_tokenizers.Digits(individual_digits=True)
    else:
        first = pre_tokenizers.Split(Regex(rule.words), behavior="isolated", invert=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.words is None)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, byte_level])
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()


def _adds_bos(metadata: Mapping[str, object], rule: _Rule) -> bool:
    return bool(metadata.get("tokenizer.ggml.add_bos_token", rule.adds_bos))


def _set_bos(tokenizer: Tokenizer, metadata: Mapping[str, object], rule: _Rule) -> None:
    from tokenizers import processors

    bos = _token(metadata, "bos")
    if bos is None or not _adds_bos(metadata, rule):
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        return
    bos_id = tokenizer.token_to_id(bos)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], pair=[bos, "$A", f"{bos}:1", "$B:1"], special_tokens=[(bos, bos_id)]
    )


def _id(metadata: Mapping[str, object], name: str) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    return value if isinstance(value, int) else None


def _token(metadata: Mapping[str, object], name: str) -> str | None:
    tokens, token_id = _strings(metadata, "tokenizer.ggml.tokens"), _id(metadata, name)
    if token_id is None:
        return None
    if not 0 <= token_id < len(tokens):
        raise DFlashError(f"the GGUF file gives the {name} token the id {token_id} of {len(tokens)}; fetch it again")
    return tokens[token_id]


def _tokenizer_config(metadata: Mapping[str, object], rule: _Rule) -> dict[str, Any]:
    arch = metadata.get("general.architecture")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.get(f"{arch}.context_length"),
        "add_bos_token": _adds_bos(metadata, rule),
        "bos_token": _token(metadata, "bos"),
        "eos_token": _token(metadata, "eos"),
        "unk_token": _token(metadata, "unknown"),
        "pad_token": _token(metadata, "padding"),
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
    return {key: value for key, value in config.items() if value is not None}


def _generation_config(metadata: Mapping[str, object]) -> dict[str, Any]:
    """Stop ids as llama.cpp has them: end of sequence, end of turn, end of message."""
    stops = dict.fromkeys(i for name in ("eos", "eot", "eom") if (i := _id(metadata, name)) is not None)
    config = {
        "bos_token_id": _id(metadata, "bos"),
        "eos_token_id": list(stops),
        "pad_token_id": _id(metadata, "padding"),
    }
    return {key: value for key, value in config.items() if value is not None and value != []}
