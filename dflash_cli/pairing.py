"""Does this drafter fit this target? Asked before any forward pass, answered in words."""

from __future__ import annotations

from collections.abc import Iterator

from backends.config import DFlashConfig, DrafterConfig, TargetConfig
from dflash_cli.errors import DFlashError
from dflash_cli.models import PAIRS, Pair


def check_pair(pair: Pair, target: TargetConfig, drafter: DrafterConfig, tokenizers: tuple[str, str] | None) -> None:
    """Raises DFlashError naming every mismatch and a drafter that fits, where one is known.

    `tokenizers` are the fingerprints of the target's and the drafter's vocabulary, where the drafter brings one.
    """
    problems = list(mismatches(target, drafter))
    if tokenizers is not None and tokenizers[0] != tokenizers[1]:
        problems.append("its tokenizer is another one than the target's")
    if problems:
        raise DFlashError(
            f"the drafter {pair.drafter} does not fit the target {pair.target}: {'; '.join(problems)}. {_advice(pair)}"
        )


def mismatches(target: TargetConfig, drafter: DrafterConfig) -> Iterator[str]:
    """What was found in the drafter against what the target asks for."""
    same = (
        ("hidden size", drafter.hidden_size, target.hidden_size),
        ("number of target layers", drafter.num_target_layers, target.num_layers),
        ("vocabulary size", drafter.vocab_size, target.vocab_size),
        ("RoPE theta", drafter.rope.theta, target.rope.theta),
    )
    for what, found, expected in same:
        if found != expected:
            yield f"{what} {found:g}, the target has {expected:g}"
    taps = drafter.target_layer_ids
    outside = [tap for tap in taps if not 0 <= tap < target.num_layers]
    if outside or bool(taps) != drafter.target_context or len(set(taps)) != len(taps):
        yield f"taps {list(taps)}, expected different layer ids from 0 to {target.num_layers - 1}"
    if isinstance(drafter, DFlashConfig) and not 0 <= drafter.mask_token_id < target.vocab_size:
        yield f"mask id {drafter.mask_token_id}, expected one below the vocabulary size {target.vocab_size}"
    if drafter.block_size < 2:
        yield f"block size {drafter.block_size}, expected at least 2"


def _advice(pair: Pair) -> str:
    fitting = next((known.drafter for known in PAIRS.values() if known.target == pair.target and known.drafter), None)
    if fitting is not None and fitting != pair.drafter:
        return f"The drafter for this target is {fitting}; --draft none decodes plainly"
    wanted = next((known.target for known in PAIRS.values() if known.drafter == pair.drafter), None)
    belongs = f"This drafter belongs to {wanted}. " if wanted and wanted != pair.target else ""
    return f"{belongs}Pass a drafter trained for this target with --draft, or --draft none for plain decoding"
