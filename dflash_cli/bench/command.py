"""`dflash bench`: options to a plan, measurements to tables, JSON, CSV, pictures. Imports no torch before it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backends import BACKENDS, QUANTISATIONS
from dflash_cli.bench.dataset import DATASETS
from dflash_cli.bench.kinds import KINDS
from dflash_cli.bench.lists import ListOf
from dflash_cli.bench.plan import AUTO, DEFAULT_ROUNDS, DEFAULT_SAMPLES, DEFAULT_TOKENS, SYNTHETIC_TOKENS, Plan
from dflash_cli.bench.shapes import SHAPES
from dflash_cli.config import DRAFT_VOCABULARIES, Config
from dflash_cli.errors import UsageError
from dflash_cli.options import settings
from dflash_cli.setting_kinds import Choice, Number, Whole, WholeOrAuto
from dflash_cli.stats_store.output_file import check_name
from dflash_cli.terminal import AnswerOutput, printable

if TYPE_CHECKING:
    from dflash_cli.bench.result import Result

Function = Callable[..., Any]
PEERS = ("hf", "reference", "llama.cpp")
DTYPES = (AUTO, "float32", "bfloat16", "float16")
LATENCY_SHAPE = "qwen3-8b"
WIDEST = 220  # columns that the tables may take
PROMPT_OPTIONS = ("kinds", "prompts", "dataset")
NO_DRAFT_OPTIONS = ("samples", "quantizations", "draft_vocabularies", "blocks", "temperatures", "batches")
"""What drafts alone do not depend on, or have by themselves."""


def what_to_measure(function: Function) -> Function:
    """The options that say what is measured, and with what."""
    options = [
        click.option("--kinds", type=ListOf(Choice(*KINDS)), help=f"Kinds of prompt (default: {','.join(KINDS)})."),
        click.option("--prompts", type=click.Path(), metavar="FILE", help="Own prompts: one a line in *.jsonl."),
        click.option("--dataset", type=click.Choice(list(DATASETS)), help="Prompts of a test set, from the hub."),
        click.option(
            "--samples", type=click.IntRange(1), show_default=str(DEFAULT_SAMPLES), help="Prompts of a kind."
        ),
        click.option(
            "--rounds", type=click.IntRange(1), default=DEFAULT_ROUNDS, show_default=True,
            help="How often all is measured.",
        ),
        click.option("--backends", type=ListOf(Choice(AUTO, *BACKENDS)), help="Default: that of --backend."),
        click.option("--dtypes", type=ListOf(Choice(*DTYPES)), help="Default: that of --dtype."),
        click.option("--quantizations", type=ListOf(Choice(*QUANTISATIONS)), help="Default: that of --quantize."),
        click.option(
            "--draft-vocabularies", type=ListOf(Choice(*DRAFT_VOCABULARIES)),
            help="Default: that of --draft-vocabulary.",
        ),
        click.option(
            "--blocks", type=ListOf(WholeOrAuto(1)), help="Widths of DFlash (default: auto and the trained block)."
        ),
        click.option("--temperatures", type=ListOf(Number(0)), help="Default: 0."),
        click.option("--contexts", type=ListOf(Whole(1)), help="Tokens that prompts are filled up to."),
        click.option("--batches", type=ListOf(Whole(1)), help="Rows decoded together (default: 1)."),
        click.option("--peer", "peers", type=click.Choice(PEERS), multiple=True, help="Measure it, too; repeatable."),
        click.option("--assistant", metavar="MODEL", help="Small model for the assisted generation of --peer hf."),
        click.option("--gguf", type=click.Path(), metavar="FILE", help="File for --peer llama.cpp."),
        click.option("--synthetic", type=click.Choice(list(SHAPES)), help="Random weights of this shape, no download."),
        click.option("--taus", type=ListOf(Number(1)), help="Acceptance to simulate with --synthetic."),
        click.option("--draft-latency", is_flag=True, help="Time drafts only, on random weights."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "bench",
    short_help="Measure plain decoding, DFlash and others side by side.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@what_to_measure
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--plot", type=click.Path(), metavar="FILE.png|FILE.svg", help="Draw it, too (needs matplotlib).")
@settings("model", "system", "thinking", "chat_template", "max_new_tokens", "top_k", "top_p", "min_p", "seed", "quiet",
          "verbose", "stats", "color")  # fmt: skip
def bench_command(config: Config, **given: Any) -> None:
    """Measure plain decoding and DFlash side by side on this machine.

    All rows answer the same prompts by turns, after a warm-up; medians over rounds are shown. Answers have 64 tokens
    (256 with --synthetic) unless -n says otherwise. The limit is the bytes a step must read over the measured
    bandwidth of reading memory. Ctrl-C ends it with what was measured so far. `dflash stats` counts speed-ups against
    the plain decoding measured here, unless --no-stats forbids that.
    """
    _check(given, config)
    plan = _plan(given, config)
    plot = check_name(Path(given["plot"]), ".png", ".svg") if given["plot"] else None
    if plot is not None:
        from dflash_cli.picture import require_matplotlib

        require_matplotlib()  # before minutes of work
    from dflash_cli.bench.bench import Bench, Source

    source = Source(*(given[name] for name in (*PROMPT_OPTIONS, "assistant", "gguf", "synthetic", "taus")))
    bench = Bench(config, plan, source)
    result = bench.draft_latency(given["synthetic"] or LATENCY_SHAPE) if given["draft_latency"] else bench.run()
    _show(result, config, as_json=given["as_json"], as_csv=given["as_csv"])
    if plot is not None and result.rows:
        from dflash_cli.bench.plot import write_plot

        write_plot(result.rows, result.title, plot)
        if not config.quiet:
            click.echo(printable(f"dflash: written to {plot}"), err=True)
    if result.interrupted:
        raise KeyboardInterrupt


def _check(given: dict[str, Any], config: Config) -> None:
    """Raises UsageError for options that do not go together."""
    asked = [f"--{name}" for name in PROMPT_OPTIONS if given[name]]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} do not go together")
    if given["as_json"] and given["as_csv"]:
        raise UsageError("--json and --csv do not go together")
    random = "--draft-latency" if given["draft_latency"] else "--synthetic" if given["synthetic"] else ""
    if random and asked:
        raise UsageError(f"{random} has random weights, to which prompts mean nothing; leave {asked[0]} out")
    if random and given["peers"]:
        raise UsageError(f"{random} has random weights, which no peer can load; leave --peer out")
    if random and config.model:
        raise UsageError(f"{random} makes its own weights; leave --model out")
    if given["taus"] and not given["synthetic"]:
        raise UsageError("--taus goes with --synthetic only: elsewhere acceptance is measured")
    if given["draft_latency"]:
        _check_latency(given)
    for option, peer in (("assistant", "hf"), ("gguf", "llama.cpp")):
        if given[option] and peer not in given["peers"]:
            raise UsageError(f"--{option} goes with --peer {peer}")


def _check_latency(given: dict[str, Any]) -> None:
    """Raises UsageError for what means nothing where drafts alone are timed."""
    if given["plot"]:
        raise UsageError("--draft-latency has no picture; use its table, --json or --csv")
    for name in NO_DRAFT_OPTIONS:
        if given[name]:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"--draft-latency times drafts alone, to which {option} means nothing; leave it out")
    if given["contexts"] and len(given["contexts"]) > 1:
        raise UsageError(f"--draft-latency takes one length of --contexts, and got {len(given['contexts'])}")


def _plan(given: dict[str, Any], config: Config) -> Plan:
    """The plan; --backend, --dtype and the like count where their lists are not given."""
    return Plan(
        backends=given["backends"] or (config.backend,),
        dtypes=given["dtypes"] or (config.dtype,),
        quantizations=given["quantizations"] or (config.quantize,),
        draft_vocabularies=given["draft_vocabularies"] or (config.draft_vocabulary,),
        blocks=given["blocks"] or (() if config.block is None else (config.block,)),
        temperatures=given["temperatures"] or (0.0,),
        contexts=given["contexts"] or (),
        batches=given["batches"] or (1,),
        peers=tuple(dict.fromkeys(given["peers"])),
        max_new_tokens=config.max_new_tokens or (SYNTHETIC_TOKENS if given["synthetic"] else DEFAULT_TOKENS),
        rounds=given["rounds"],
        samples=given["samples"] or DEFAULT_SAMPLES,
        seed=0 if config.seed is None else config.seed,
    )


def _show(result: Result, config: Config, *, as_json: bool, as_csv: bool) -> None:
    from dflash_cli.stats_store import export

    if as_json:
        AnswerOutput().write(export.to_json(result.as_dict()))
    elif as_csv:
        AnswerOutput().write(export.to_csv(result.table_rows()))
    elif result.is_empty:
        click.echo("dflash: nothing was measured", err=True)
    else:
        from dflash_cli.stats_store.tables import console_for, encodable

        console = console_for(config.wants_color(sys.stdout))
        console.width = max(console.width, WIDEST)  # a terminal may wrap a line; a cut number would be no number
        encodable(console, result.view())
