"""Names to pairs: which drafter goes with which target, and how well it is expected to draft."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dflash_cli.sources import SourceKind, parse_source

GB = 10**9
NO_DRAFTER = "none"
AUTO_DEFAULTS = (("qwen3-8b", 22 * GB), ("qwen3-4b", 12 * GB))  # alias and the GPU memory it wants free, in bytes
SMALL_DEFAULT = "smollm2-135m"
_TABLE_1 = "DFlash paper (arXiv 2602.06036), Table 1, thinking off: temperature 1 (low) to 0 (high)"
_TABLE_5 = "DFlash paper (arXiv 2602.06036), Table 5: GSM8K 4.32, HumanEval 4.91, Alpaca 3.73; ±10 %"
_MEASURED = (
    "measured on this pair in bfloat16, 8 prompts a kind outside its training data: math 2.43, code 2.04, chat 1.80; "
    "±15 %"
)
_TRAINED_WITHOUT_THINKING = "Its drafter was trained without thinking, which is off unless asked for."

Expected = tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Pair:
    """A target and the drafter that goes with it.

    `name` is the alias, or what was asked for. `target` and `drafter` are sources (`embedded:...`, hub id, folder,
    *.gguf); no drafter means plain decoding. `thinking` is the default of the chat template's enable_thinking switch,
    None where there is none or it is not known. `expected` has, for a kind of text, the acceptance length (tokens
    committed per verify pass) from low to high, and `expected_source` says where the figures come from.
    `max_new_tokens` bounds an answer where nothing else does: small models can repeat themselves for ever.
    """

    name: str
    target: str
    drafter: str | None
    thinking: bool | None
    expected: Expected
    note: str
    expected_source: str = ""
    max_new_tokens: int | None = None


PAIRS: dict[str, Pair] = {
    pair.name: pair
    for pair in (
        Pair(
            name="smollm2-135m",
            target="embedded:smollm2-135m",
            drafter="embedded:smollm2-135m-drafter",
            thinking=None,
            expected=(("math", 2.1, 2.8), ("code", 1.7, 2.3), ("chat", 1.5, 2.1)),
            note="SmolLM2-135M-Instruct from the package index; runs on any CPU.",
            expected_source=_MEASURED,
            max_new_tokens=1024,
        ),
        Pair(
            name="qwen3-4b",
            target="Qwen/Qwen3-4B",
            drafter="z-lab/Qwen3-4B-DFlash-b16",
            thinking=False,
            expected=(("math", 4.9, 7.9), ("code", 5.6, 7.1), ("chat", 4.0, 4.4)),
            note=_TRAINED_WITHOUT_THINKING,
            expected_source=_TABLE_1,
        ),
        Pair(
            name="qwen3-8b",
            target="Qwen/Qwen3-8B",
            drafter="z-lab/Qwen3-8B-DFlash-b16",
            thinking=False,
            expected=(("math", 4.7, 7.9), ("code", 5.2, 7.3), ("chat", 3.8, 4.3)),
            note=_TRAINED_WITHOUT_THINKING,
            expected_source=_TABLE_1,
        ),
        Pair(
            name="llama-3.1-8b",
            target="meta-llama/Llama-3.1-8B-Instruct",
            drafter="z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
            thinking=None,
            expected=(("math", 3.9, 4.8), ("code", 4.4, 5.4), ("chat", 3.3, 4.1)),
            note="Its target is gated: accept its terms on the hub and log in with `hf auth login`.",
            expected_source=_TABLE_5,
        ),
    )
}


def default_alias(has_gpu: bool, gpu_free_bytes: int) -> str:
    """The pair to use where none is named: the largest one whose weights and cache fit the free GPU memory."""
    if has_gpu:
        for alias, needed_bytes in AUTO_DEFAULTS:
            if gpu_free_bytes >= needed_bytes:
                return alias
    return SMALL_DEFAULT


def find_pair(model: str, draft: str | None) -> Pair:
    """The pair for `--model` and `--draft`.

    `model` is an alias or any source; a known hub id gets its drafter. `draft` None is the pair's own drafter, "none"
    is plain decoding, an alias stands for its drafter, and everything else is a source. Raises UsageError for what
    does not exist, naming the nearest alias.
    """
    pair = _known(model) or _unknown(model)
    if draft is None:
        return pair
    drafter = _drafter(draft)
    return pair if drafter == pair.drafter else replace(pair, drafter=drafter, expected=(), expected_source="")


def _known(model: str) -> Pair | None:
    alias = _alias(model)
    if alias in PAIRS:
        return PAIRS[alias]
    base, _, revision = model.partition("@")
    for pair in PAIRS.values():
        # A folder of that name comes first and may hold anything.
        if pair.target.lower() == base.lower() and parse_source(model, PAIRS).kind is not SourceKind.FOLDER:
            return replace(pair, name=model, target=model if revision else pair.target)
    return None


def _unknown(model: str) -> Pair:
    parse_source(model, PAIRS)
    return Pair(
        name=model,
        target=model,
        drafter=None,
        thinking=None,
        expected=(),
        note="No drafter is known for it: plain decoding, or pass one with --draft.",
    )


def _alias(text: str) -> str:
    """The alias that is meant; upper case does not matter, unless a folder or file has that very name."""
    lower = text.lower()
    is_alias = lower in PAIRS or lower == NO_DRAFTER
    return lower if is_alias and not (text != lower and Path(text).exists()) else text


def _drafter(draft: str) -> str | None:
    alias = _alias(draft)
    if alias == NO_DRAFTER:
        return None
    if alias in PAIRS:
        return PAIRS[alias].drafter
    parse_source(draft, [*PAIRS, NO_DRAFTER])
    return draft
