"""Is a pair drafting as well as it is known to, and is it worth it here? Pure functions over figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_cli.models import PAIRS, Expected, Pair

MIN_PASSES = 20  # verify passes before anything is said
SIGMAS = 2.0  # how far below the band the mean must be, in standard errors
EXACT_ENOUGH = ("bfloat16", "float32")
LOSS = 1.05  # drafting must cost this much more time a token than plain passes before it is called a loss


@dataclass(frozen=True)
class Setting:
    """What may explain poor drafting. `thinking_share`: of the passes, those spent on thinking. `longest`: most tokens
    the context held. `window`: tokens of context that the drafter was made for, None where that is not known.
    `precision`: of the weights, a dtype's name.
    """

    thinking_share: float = 0.0
    temperature: float = 0.0
    longest: int = 0
    window: int | None = None
    precision: str = "bfloat16"


@dataclass(frozen=True)
class Cost:
    """Time of passes: `ms` in all, for `tokens` committed in `passes`."""

    ms: float
    tokens: int
    passes: int

    @property
    def ms_per_token(self) -> float:
        """Milliseconds a token."""
        return self.ms / self.tokens if self.tokens else 0.0


def acceptance_hint(pair: Pair, lengths: Sequence[int], setting: Setting) -> str | None:
    """One line where the acceptance lengths of a chat's blocks are clearly below every band of the pair, else None.

    Clearly: the mean plus two standard errors is. A block adds to the anchor as many tokens as are accepted, a count:
    its variance is taken to be at least what a mean at the band's lower end would have, `low - 1`.
    """
    bands, passes = known_bands(pair), len(lengths)
    if not bands or passes < MIN_PASSES:
        return None
    kind, low = min(((kind, low) for kind, low, _ in bands), key=lambda each: each[1])
    tau = sum(lengths) / passes
    variance = max(low - 1, sum((each - tau) ** 2 for each in lengths) / passes)
    if tau + SIGMAS * math.sqrt(variance / passes) >= low:
        return None
    return (
        f"τ {tau:.2f} over {passes} blocks is less than this pair is known for (at least {low:g}, for {kind}). "
        f"Suspects: {'; '.join(suspects(pair, setting))}"
    )


def known_bands(pair: Pair) -> Expected:
    """The bands of the pair, or those of its target's own drafter where another one is in use."""
    known = (each.expected for each in PAIRS.values() if each.target == pair.target)
    return pair.expected or next(known, ())


def suspects(pair: Pair, setting: Setting) -> Iterator[str]:
    """What may be the cause, the likeliest first; the kind of text is always possible."""
    if setting.thinking_share > 0 and pair.thinking is False:
        share = f"{setting.thinking_share:.0%} of the blocks"
        yield f"thinking, which the drafter was trained without ({share}; /think off)"
    if setting.temperature > 0:
        yield f"sampling at temperature {setting.temperature:g} (/set temperature 0)"
    if setting.window is not None and setting.longest > setting.window:
        yield f"a context of {setting.longest} tokens, more than the {setting.window} the drafter was made for"
    if setting.precision not in EXACT_ENOUGH:
        yield f"weights in {setting.precision}, not the bfloat16 it was trained with"
    if pair.target.lower().endswith(".gguf"):
        yield "a quantised target, not the one the drafter was trained for"
    if not pair.expected:
        yield f"another drafter than the target's own ({pair.drafter})"
    yield "text or a language unlike what the drafter was trained on"


def loss_hint(drafted: Cost, plain: Cost) -> str | None:
    """One line where drafting costs clearly more time a token than plain passes did on this machine, else None."""
    if drafted.passes < MIN_PASSES or plain.passes < MIN_PASSES or not plain.ms_per_token:
        return None
    if drafted.ms_per_token <= LOSS * plain.ms_per_token:
        return None
    return (
        f"drafting does not pay here: {drafted.ms_per_token:.1f} ms a token, plain passes took "
        f"{plain.ms_per_token:.1f} ms; /spec off decodes plainly"
    )
