"""What each figure means, in words; the formulas themselves are in `dflash_cli/stats.py`. Imports nothing."""

from __future__ import annotations

DEFINITIONS = (
    (
        "acceptance length τ",
        "tokens committed by verify passes / verify passes. A pass commits its accepted drafts and the bonus. Tokens "
        "after a stop are not counted, nor is the first token, which the prefill gives.",
    ),
    (
        "acceptance rate",
        "drafts accepted / drafts verified. A block that was trimmed counts as wide as it was verified.",
    ),
    (
        "survival at k",
        "blocks that kept drafts 1 to k / blocks whose draft k was verified.",
    ),
    (
        "conditional acceptance at k",
        "drafts kept at k / drafts verified at k in blocks that kept all drafts before it.",
    ),
    (
        "tok/s",
        "tokens after the first / time since the first. Prompts are not part of it.",
    ),
    (
        "speed-up",
        "time that plain decoding takes for the same tokens / time they took. Plain decoding is what `dflash bench` "
        "and `dflash run --compare` measured on this machine with the same target, backend, device, precision and "
        "quantisation, all its tokens over all its time; where they did not: not measured. Answers decoded together, "
        "as run --jsonl does, are left out.",
    ),
    (
        "time split",
        "decoding time = draft + verify + other. Other is the loop and whoever reads what comes out of it.",
    ),
    (
        "kind",
        "of text, told from the answer itself: thinking where more than half of its tokens are; code where a third of "
        "it is fenced or half of its lines look like code; math where a quarter of its other lines hold TeX or an "
        "equation; else prose.",
    ),
    (
        "context depth",
        "tokens of the prompt, the conversation before it included, by powers of two.",
    ),
    (
        "regression",
        "τ or tok/s is more than 10 % lower now, with 95 % confidence (Welch's t-test), than it was before the "
        "version, the backend or a checkpoint changed. Only answers of one pair, kind of text, depth, temperature, "
        "block size, device and precision are compared, 5 at least on each side. They count as independent, each with "
        "its own mean.",
    ),
)


def as_text() -> str:
    """A paragraph for each, as help prints it."""
    return "\n\n".join(f"{name}: {meaning}" for name, meaning in DEFINITIONS)
