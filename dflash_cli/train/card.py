"""The model card of a trained drafter: how well it drafts, and everything it takes to make it again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dflash_cli import __version__
from dflash_cli.config import Config
from dflash_cli.embedded import TARGETS
from dflash_cli.errors import DFlashError
from dflash_cli.models import PAIRS
from dflash_cli.sources import SourceKind, parse_source
from dflash_cli.terminal import printable
from dflash_cli.train.command_line import command_line, shown, without_place
from dflash_cli.train.curve import Point, curve_lines, thinned
from dflash_cli.train.data import Data
from dflash_cli.train.recipe import CHOICES, Recipe
from dflash_cli.train.report import duration
from dflash_cli.train.sittings import Sitting, later, whole_curve

LOG_ROWS = 40
MARKUP = re.compile(r"[\\`|\[\]]")  # what a backslash makes plain in a table's cell
RELEASED_KEYS = {"mask_token_id", "target_layer_ids"}  # of dflash_config: with these alone others can load it


@dataclass(frozen=True)
class Trained:
    """What the card says of how the weights came to be.

    `target`: the source of the target. `step`, `tokens`, `seconds`: when these weights were measured.
    `measured`: their figures, as in the metrics. `curve`: all measurements so far. `entries`: lines of the metrics.
    `earlier`: the sittings of the drafter that this run began with. `given_up`: as in `Sitting`.
    """

    config: Config
    target: str
    thinking: bool | None
    machine: str
    recipe: Recipe
    data: Data
    step: int
    tokens: int
    seconds: float
    measured: dict[str, Any]
    curve: Sequence[Point]
    entries: Sequence[dict[str, Any]] = field(default=())
    earlier: Sequence[Sitting] = field(default=())
    given_up: Sequence[tuple[int, int]] = field(default=())

    @property
    def sittings(self) -> list[Sitting]:
        """All of them, with what this run has put into the weights as the last."""
        began = self.recipe.warm_start
        own = Sitting(
            steps=self.step,
            tokens=self.tokens,
            seconds=self.seconds,
            machine=self.machine,
            command=command_line(self.recipe, self.config, self.target),
            data=self.data.sources,
            curve=[point for point in self.curve if point[0] <= self.step],
            begun_with=None if began is None or self.earlier else shown(CHOICES["warm_start"], began),
            held=[document.key for document in self.data.held],
            given_up=[(step, planned) for step, planned in self.given_up],
        )
        return [*self.earlier, own]


def card(raw: dict[str, Any], trained: Trained) -> str:
    """The model card, Markdown with the hub's front matter. `raw`: the drafter's `config.json`."""
    parts = (_front, _head, _use, _measured, _training, _log, _choices)
    return "\n\n".join("\n".join(part(raw, trained)) for part in parts) + "\n"


def base_model(target: str) -> str | None:
    """The hub id of a target, where it has one."""
    try:
        source = parse_source(target, PAIRS)
    except DFlashError:  # a place that is gone
        return None
    if source.kind is SourceKind.EMBEDDED:
        return TARGETS[source.text].origin
    return source.repo if source.kind is SourceKind.HUB else None


def _front(_raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    from huggingface_hub import ModelCardData

    facts = ModelCardData(
        library_name="dflash",
        base_model=base_model(trained.target),
        license=trained.recipe.license,
        pipeline_tag="text-generation",
        tags=["dflash", "speculative-decoding"],
    )
    return "---", facts.to_yaml(), "---"


def _head(raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    shape = {**raw, **raw.get("dflash_config", {}), **raw.get("eagle3_config", {})}
    kind = "A block-diffusion drafter (arXiv 2602.06036)"
    if "eagle3_config" in raw:
        kind = "An autoregressive drafter (EAGLE-3, arXiv 2503.01840)"
    facts = [f"{shape['num_hidden_layers']} layers", f"block {shape['block_size']}"]
    taps = ", ".join(map(str, shape["target_layer_ids"]))
    facts.append(f"taps {taps}" if taps else "without the target's hidden states")
    facts += [f"mask id {shape['mask_token_id']}"] if "mask_token_id" in shape else []
    yield f"# DFlash drafter for {without_place(trained.target)}"
    yield ""
    yield f"{kind}: {', '.join(facts)}, bfloat16. It drafts; what is said is the target's own text."


def _use(raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    target = base_model(trained.target) or "TARGET"
    yield "## Use"
    yield ""
    yield f"`dflash chat --model {without_place(trained.config.model or trained.target)} --draft THIS_FOLDER`"
    yield ""
    if set(raw.get("dflash_config", ())) != RELEASED_KEYS:
        yield "Its `config.json` says more than the released format has, so other programs may not load it rightly."
        return
    yield "It has the released format (`config.json` with `dflash_config`, safetensors), so it also loads in"
    yield ""
    yield '- the reference package: `DFlashDraftModel.from_pretrained("THIS_FOLDER")` of `dflash` 0.1.0'
    options = json.dumps({"method": "dflash", "model": "THIS_FOLDER", "num_speculative_tokens": raw["block_size"] - 1})
    yield f"- vLLM, by its format (not tried): `vllm serve {target} --speculative-config '{options}'`"
    yield (
        f"- SGLang, by its format (not tried): `python -m sglang.launch_server --model-path {target} "
        "--speculative-algorithm DFLASH --speculative-draft-model-path THIS_FOLDER`"
    )


def _measured(_raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    measured, held = trained.measured, Counter(document.source for document in trained.data.held)
    unseen, doubtful = "that were not trained on", trained.data.doubtful
    if doubtful:
        unseen = f"that this sitting did not train on ({doubtful} of them may have been in an earlier one)"
    yield "## Measured"
    yield ""
    yield (
        f"Acceptance length τ (tokens committed a verify pass), greedy, {len(trained.data.held)} prompts {unseen}, "
        f"at most {trained.recipe.measured_tokens} tokens each, by the decoder of dflash {__version__}. "
        "Slots: the share of passes that kept this draft and all before it."
    )
    yield ""
    yield from _table(("source", "prompts", "τ", "kept by slot"), (
        *((source, held[source], f"{tau:.2f}", _slots(measured.get("positions_by_source", {}).get(source, ())))
          for source, tau in measured["tau_by_source"].items()),
        ("all", len(trained.data.held), f"{measured['tau']:.2f}", _slots(measured["positions"])),
    ))  # fmt: skip


def _slots(shares: Sequence[float]) -> str:
    return " ".join(f"{each:.2f}" for each in shares)


def _training(_raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    recipe, sittings = trained.recipe, trained.sittings
    yield "## Training"
    yield ""
    if (unknown := sittings[0].begun_with) is not None:
        yield f"It began with the drafter {_plain(unknown)}, which has no record of how it was trained."
        yield ""
    if trained.earlier:
        yield f"In {len(sittings)} sittings, {_totals(sittings)} in all. The last one:"
        yield ""
    yield from _fenced(printable(sittings[-1].command))
    yield from _changed(sittings[-1])
    yield ""
    yield (
        f"{_totals(sittings[-1:])} on {trained.machine}; dflash {__version__}. Answers are the "
        + ("files' or the target's (`keep_answers`)." if recipe.keep_answers else "target's own.")
        + (f" Thinking {'on' if trained.thinking else 'off'}." if trained.thinking is not None else "")
    )
    yield ""
    yield from _table(("data", "documents"), trained.data.sources.items())
    yield from _earlier(trained.earlier)


def _totals(sittings: Sequence[Sitting]) -> str:
    steps, tokens, seconds = (sum(getattr(each, name) for each in sittings) for name in ("steps", "tokens", "seconds"))
    return f"{steps} steps, {tokens:,} answer tokens, {duration(seconds)}"


def _earlier(sittings: Sequence[Sitting]) -> Iterable[str]:
    """Each began with the weights that the one before had measured as its best."""
    for number, each in enumerate(sittings, 1):
        yield ""
        yield f"Sitting {number}: {_totals([each])} on {_plain(each.machine)}."
        yield ""
        yield from _fenced(printable(each.command))
        yield from _changed(each)
        yield ""
        yield from _table(("data", "documents"), each.data.items())


def _changed(sitting: Sitting) -> Iterable[str]:
    """The command tells the last length of a run; with another one before, it does not repeat the sitting."""
    if sitting.given_up:
        yield ""
        lengths = ", ".join(f"{planned:,} until step {step:,}" for step, planned in sitting.given_up)
        yield f"Its length was changed while it ran, and with it how fast the learning rate fell: {lengths}."


def _log(_raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    """τ against answer tokens as bars, then each measurement with the mean loss of the steps before it."""
    yield "## Curve and log"
    yield ""
    if trained.earlier:
        yield "Tokens are counted from the first sitting on; each was measured on the prompts that it held out."
        yield ""
    yield "```"
    yield from curve_lines(whole_curve(trained.earlier, trained.curve))
    yield "```"
    sources = list(trained.measured["tau_by_source"])
    rows, losses = [], []
    for entry in later(trained.earlier, trained.entries):
        if "loss" in entry:
            losses.append(entry["loss"])
        if "tau" in entry:
            taus = (entry.get("tau_by_source", {}).get(source) for source in sources)
            loss = f"{sum(losses) / len(losses):.3f}" if losses else ""
            rows.append((entry["step"], f"{entry['tokens']:,}", loss, f"{entry['tau']:.2f}",
                         *("" if tau is None else f"{tau:.2f}" for tau in taus)))  # fmt: skip
            losses = []
    if rows:
        yield ""
        yield from _table(("step", "answer tokens", "loss", "τ", *sources), thinned(rows, LOG_ROWS))


def _choices(_raw: dict[str, Any], trained: Trained) -> Iterable[str]:
    recipe = trained.recipe
    yield "## Choices"
    yield ""
    rows: list[tuple[str, str]] = []
    for name, choice in CHOICES.items():
        value: Any = recipe.learning_rate if name == "lr" else getattr(recipe, name)
        if value not in (None, ()) and choice.group != "output":
            many = choice.many and isinstance(value, tuple)
            rows.append((name, ", ".join(shown(choice, each) for each in value) if many else shown(choice, value)))
    yield from _table(("choice", "value"), rows)


def _fenced(text: str) -> Iterable[str]:
    """A code block that no line of the text can end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return fence, text, fence


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(value: object) -> str:
    """Names of sources and drafters come from files: none may end its row, or hold markup."""
    text = printable(str(value)).replace("\n", " ")
    return MARKUP.sub(r"\\\g<0>", text).replace("<", "&lt;")
