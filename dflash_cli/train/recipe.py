"""How a drafter is trained: every choice with its default, help and range, once. Imports no torch.

Flags of `dflash train-drafter` and keys of its `--recipe` file are made from the fields of `Recipe`.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dflash_cli.config import setting, settings_of
from dflash_cli.config_file import read_table
from dflash_cli.errors import UsageError
from dflash_cli.setting_kinds import Choice, File, Folder, Kind, Number, Switch, Text, Whole
from dflash_cli.train.source_kinds import Address, SourceWeight, is_this_machine, split_weight

GAMMAS = ((8, 4.0), (10, 5.0), (16, 7.0))  # block size -> decay, as published (arXiv 2602.06036, A.1)
DFLASH, EAGLE = "dflash", "eagle3"
CHECK_PROMPTS = 8  # that `--check` reads; it learns half of them by heart
LEARNING_RATES = {"muon": 3e-3, "adamw": 6e-4}
RESUMABLE = (
    "prompts", "from_sessions", "corpus", "engine", "engine_model", "eval_prompts", "skip_bad", "rows",
    "eval_every", "save_every", "threads", "tensorboard", "push_to_hub", "public", "license", "steps", "epochs",
)  # fmt: skip
"""Choices that may differ when a run goes on: they change no result of a step. (Of files, what they hold counts; other
`threads` move the last bits of sums on a CPU, and another length bends the schedule from there on: both are told.)"""


class Layers(Kind):
    """Layer numbers: a list in a file, `1,8,14` on the command line."""

    expected = "different layer numbers from 0 on, such as 1,8,14"
    metavar = "N,N,..."

    def check(self, value: object) -> tuple[int, ...]:
        """See Kind."""
        if not isinstance(value, list | tuple) or not value or len(set(map(repr, value))) != len(value):
            raise self.wrong(value)
        if not all(type(each) is int and each >= 0 for each in value):
            raise self.wrong(value)
        return tuple(value)

    def parse(self, text: str) -> tuple[int, ...]:
        """See Kind."""
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise self.wrong(text)
        return self.check([int(part) for part in parts])


@dataclass(frozen=True)
class Recipe:
    """Every choice of a training run. None means that the target decides."""

    prompts: tuple[str, ...] = setting(
        (),
        File(),
        "Prompts: JSON lines with prompt, messages or conversations, or a .txt file of paragraphs.",
        "data",
        "--prompts",
        many=True,
    )
    from_sessions: bool = setting(
        False, Switch(), "Your saved chats as prompts, too.", "data", "--from-sessions/--no-from-sessions"
    )
    corpus: tuple[str, ...] = setting(
        (), File(), "Answers the target has already given, JSON lines.", "data", "--corpus", many=True
    )
    eval_prompts: tuple[str, ...] = setting(
        (), File(), "Prompts to measure on, never trained on (default: held out).", "data", "--eval-prompts", many=True
    )
    holdout: int = setting(24, Whole(1), "Prompts held out to measure on.", "data", "--holdout")
    skip_bad: bool = setting(
        False, Switch(), "Leave out lines that cannot be read, and say which.", "data", "--skip-bad/--no-skip-bad"
    )
    synthesize: int = setting(0, Whole(0), "Prompts that the target writes itself, besides.", "data", "--synthesize")
    weight: tuple[str, ...] = setting(
        (),
        SourceWeight(),
        "How often a source's prompts are drawn in an epoch, such as chat=0.5 (default: once).",
        "data",
        "--weight",
        many=True,
    )
    keep_answers: bool = setting(
        False, Switch(), "Train on the answers in the prompt files.", "data", "--keep-answers/--no-keep-answers"
    )
    engine: str | None = setting(
        None,
        Address(),
        "Let this OpenAI-compatible server with the target give the answers; its key in DFLASH_ENGINE_KEY.",
        "data",
        "--engine",
    )
    engine_model: str | None = setting(
        None, Text("NAME"), "The target's name on that server (default: its only model).", "data", "--engine-model"
    )
    max_tokens: int = setting(
        1024, Whole(8), "Most tokens of prompt and answer; the rest is cut.", "data", "--max-tokens"
    )
    answer_tokens: int = setting(256, Whole(2), "Most tokens of an answer that is made.", "data", "--answer-tokens")
    temperature: float = setting(0.0, Number(0), "Sampling of answers, 0 is greedy.", "data", "--temperature")
    top_k: int = setting(0, Whole(0), "Sampling of answers, 0 keeps all.", "data", "--top-k")
    top_p: float = setting(1.0, Number(0, 1, above=True), "Sampling of answers.", "data", "--top-p")
    rows: int = setting(48, Whole(1), "Answers made at once.", "data", "--rows")
    cache_features: bool = setting(
        False, Switch(), "Keep the target's hidden states on disk.", "data", "--cache-features/--no-cache-features"
    )
    arch: str = setting(
        DFLASH, Choice(DFLASH, EAGLE), "The method, or what it is compared with: one layer, token by token.",
        "drafter", "--arch",
    )  # fmt: skip
    no_context: bool = setting(
        False,
        Switch(),
        "For comparison: a drafter that sees its anchor only.",
        "drafter",
        "--no-context/--with-context",
    )
    layers: int | None = setting(None, Whole(1), "Drafter layers (default: 3 or 5, by size).", "drafter", "--layers")
    block: int | None = setting(None, Whole(2), "Tokens of a block (default: 8 or 16, by size).", "drafter", "--block")
    taps: tuple[int, ...] | None = setting(
        None, Layers(), "Target layers the drafter sees (default: 5, evenly spread).", "drafter", "--taps"
    )
    hidden: int | None = setting(
        None, Whole(8), "Width of the feed-forward layers (default: the target's).", "drafter", "--hidden"
    )
    mask_id: int | None = setting(
        None, Whole(0), "Token id of an empty slot (default: one that no text has).", "drafter", "--mask-id"
    )
    draft_vocabulary: int | None = setting(
        None, Whole(1), "Ids it drafts, the answers' most frequent (default: all).", "drafter", "--draft-vocabulary"
    )
    init: str = setting("random", Choice("random", "target"), "Where the first weights come from.", "drafter", "--init")
    warm_start: str | None = setting(
        None, Folder(), "Begin with this drafter; it decides the shape.", "drafter", "--warm-start"
    )
    loss: str = setting("d-pace", Choice("ce", "d-pace", "kl"), "What is minimised.", "training", "--loss")
    loss_vocabulary: int | None = setting(
        None,
        Whole(64),
        "Ids a loss compares with: the commonest, and a sample of the rest (default: all).",
        "training",
        "--loss-vocabulary",
    )
    gamma: float | None = setting(
        None,
        Number(0, above=True),
        "With ce and kl, slot k counts exp(-(k-1)/gamma) (default: by block size).",
        "training",
        "--gamma",
    )
    masking: str = setting(
        "full", Choice("full", "random"), "Slots masked in training: all, or some.", "training", "--masking"
    )
    anchors: int = setting(64, Whole(1), "Most blocks of a document in an epoch.", "training", "--anchors")
    optimizer: str = setting("muon", Choice("muon", "adamw"), "Optimiser of the matrices.", "training", "--optimizer")
    lr: float | None = setting(
        None, Number(0, above=True), "Highest learning rate (default: 0.003 muon, 0.0006 adamw).", "training", "--lr"
    )
    warmup: float = setting(0.04, Number(0, 1), "Share of the steps in which it rises.", "training", "--warmup")
    weight_decay: float = setting(0.0, Number(0), "Weight decay of the matrices.", "training", "--weight-decay")
    clip: float = setting(1.0, Number(0, above=True), "Largest norm of a gradient.", "training", "--clip")
    ema: float = setting(
        0.0, Number(0, 1), "Measure and ship a running mean of the weights, 0 is off.", "training", "--ema"
    )
    batch: int = setting(16, Whole(1), "Documents a step.", "training", "--batch")
    row_tokens: int = setting(
        4096, Whole(64), "Context tokens and block slots computed at once.", "training", "--row-tokens"
    )
    epochs: int = setting(
        6, Whole(1), "Times each document is used; may change when a run goes on.", "training", "--epochs"
    )
    steps: int | None = setting(
        None,
        Whole(1),
        "Steps in all (default: by --epochs); may change when a run goes on.",
        "training",
        "--steps",
    )
    seed: int = setting(0, Whole(0), "Same seed, same drafter.", "training", "--seed")
    eval_every: int = setting(100, Whole(1), "Steps between two measurements.", "running", "--eval-every")
    eval_tokens: int = setting(96, Whole(2), "Most tokens of an answer that is measured.", "running", "--eval-tokens")
    save_every: int = setting(50, Whole(1), "Steps between two checkpoints.", "running", "--save-every")
    threads: int | None = setting(None, Whole(1), "CPU threads (default: torch's choice).", "running", "--threads")
    tensorboard: bool = setting(
        False, Switch(), "Write the figures for TensorBoard, too.", "output", "--tensorboard/--no-tensorboard"
    )
    push_to_hub: str | None = setting(
        None,
        Text("REPO"),
        "Put the trained drafter into this hub repository; its card holds your system prompt.",
        "output",
        "--push-to-hub",
    )
    public: bool = setting(
        False, Switch(), "Let everyone see that repository (default: private).", "output", "--public/--private"
    )
    license: str | None = setting(
        None, Text("ID"), "Licence that the model card names, such as apache-2.0.", "output", "--license"
    )

    @property
    def learning_rate(self) -> float:
        """The highest learning rate."""
        return LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def measured_tokens(self) -> int:
        """Most tokens of an answer that is measured: not past what answers are trained on."""
        return min(self.eval_tokens, self.answer_tokens)

    def decay(self, block: int) -> float:
        """Gamma for a block size: the one asked for, the published one, or a line through its neighbours."""
        return default_gamma(block) if self.gamma is None else self.gamma

    @property
    def source_weights(self) -> dict[str, float]:
        """How often the documents of a source are drawn in an epoch, 1 where nothing is said."""
        return dict(map(split_weight, self.weight))

    def as_dict(self) -> dict[str, Any]:
        """All choices as JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Choices that differ from those of an earlier run and would change what its next steps compute."""
        own, before = self.as_dict(), Recipe().as_dict() | other  # an earlier version had fewer choices
        return [key for key in own if key not in RESUMABLE and own[key] != before[key]]


CHOICES = settings_of(Recipe)


def default_gamma(block: int) -> float:
    """The published decay for a block size, a line between and beyond those that were published."""
    upper = next((i for i, (size, _) in enumerate(GAMMAS) if size >= block), len(GAMMAS) - 1)
    upper = max(upper, 1)
    (b0, g0), (b1, g1) = GAMMAS[upper - 1], GAMMAS[upper]
    return max(1.0, g0 + (block - b0) * (g1 - g0) / (b1 - b0))


def make_recipe(file: str | None, given: dict[str, Any]) -> Recipe:
    """`given` (flags) over the file over the defaults. Raises UsageError."""
    values = read_table(Path(file), CHOICES) if file is not None else {}
    recipe = replace(Recipe(), **(values | given))
    _check_sources(recipe)
    _check_kind(recipe)
    if recipe.warm_start is not None:
        fixed = [name for name in ("layers", "block", "taps", "hidden", "mask_id") if getattr(recipe, name) is not None]
        fixed += [name for name in ("arch", "no_context", "init") if getattr(recipe, name) != getattr(Recipe, name)]
        if fixed:
            name = fixed[0].replace("_", "-")
            raise UsageError(f"--{name} does not go with --warm-start, whose drafter decides it; leave one of them out")
    if recipe.gamma is not None and recipe.loss == "d-pace":
        raise UsageError(
            "--gamma does not go with --loss d-pace, which finds its own weights; add --loss ce, or leave it out"
        )
    if recipe.ema >= 1:
        raise UsageError("--ema 1 never moves; expected below 1, such as 0.99")
    if recipe.license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", recipe.license, re.ASCII):
        raise UsageError(f"--license {recipe.license!r} names no licence; expected one such as apache-2.0 or mit")
    if recipe.public and recipe.push_to_hub is None:
        raise UsageError("--public is about a repository on the hub: add --push-to-hub OWNER/NAME, or leave it out")
    return recipe


def for_check(recipe: Recipe) -> Recipe:
    """What `--check` takes of a recipe: few prompts. Raises UsageError where it could not tell right from wrong."""
    for name in ("temperature", "keep_answers"):
        if getattr(recipe, name) != getattr(Recipe, name):
            raise UsageError(
                f"--check expects full blocks of the target's greedy answers: leave out --{name.replace('_', '-')}"
            )
    return replace(recipe, synthesize=min(recipe.synthesize, CHECK_PROMPTS))


def _check_kind(recipe: Recipe) -> None:
    """Choices that one kind of drafter does not have."""
    kind, none = "--no-context, which sees none of the target's layers", ["taps"] if recipe.no_context else []
    if recipe.arch == EAGLE:
        kind, none = "--arch eagle3, one layer that drafts token by token", ["no_context", "layers", "mask_id", "init"]
        none += ["masking"]
    for name in none:
        if getattr(recipe, name) != getattr(Recipe, name):
            raise UsageError(f"--{name.replace('_', '-')} does not go with {kind}; leave one of them out")


def _check_sources(recipe: Recipe) -> None:
    if not (recipe.prompts or recipe.corpus or recipe.synthesize or recipe.from_sessions):
        raise UsageError(
            "nothing to train on: pass --prompts FILE.jsonl, --corpus FILE.jsonl, --synthesize N or --from-sessions"
        )
    if recipe.keep_answers and (recipe.synthesize or not (recipe.prompts or recipe.from_sessions)):
        raise UsageError("--keep-answers takes its answers from --prompts and --from-sessions, without --synthesize")
    if len(recipe.source_weights) < len(recipe.weight):
        raise UsageError("--weight names a source twice; leave one of them out")
    if recipe.engine is None and recipe.engine_model is not None:
        raise UsageError("--engine-model is about a server; pass its address with --engine, or leave it out")
    if not recipe.from_sessions:
        return
    if recipe.engine is not None and not recipe.keep_answers and not is_this_machine(recipe.engine):
        raise UsageError("--from-sessions would send your chats to another machine's --engine; leave one of them out")
    if recipe.public:
        raise UsageError("--from-sessions and --public: a drafter may repeat your chats; leave one of them out")
