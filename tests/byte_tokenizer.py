"""A tokenizer small enough for tiny random models: id n < 256 is the byte n, then a few control tokens."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

IM_START, IM_END, END_OF_TEXT, THINK, END_THINK = range(256, 261)
VOCAB_SIZE = 261

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}
{%- endif -%}
"""


def make_byte_tokenizer_folder(tmp_path: Path, *, chat_template: str | None = CHATML) -> Path:
    """Write `tokenizer.json` and `tokenizer_config.json` into the folder (made if missing) and return it."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE(vocab={char: byte for byte, char in enumerate(_byte_chars())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    control = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def _byte_chars() -> list[str]:
    """The visible character that byte-level vocabularies write for each byte (GPT-2's table)."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]
