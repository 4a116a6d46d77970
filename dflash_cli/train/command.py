"""`dflash train-drafter`: flags to a recipe, then data, answers, training. Imports no torch before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_cli.config import Config, Setting
from dflash_cli.errors import UsageError
from dflash_cli.options import SettingType, settings
from dflash_cli.setting_kinds import Switch
from dflash_cli.startup import load_model
from dflash_cli.train.recipe import CHOICES, Recipe, make_recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.data import Data, Read
    from dflash_cli.train.synthesis import PromptFile
    from dflash_cli.train.trainer import Trainer

Function = Callable[..., Any]
NOT_SETTINGS = ("draft", "backend", "context", "block")  # of chats: here a recipe decides, or nothing does


def recipe_options(function: Function) -> Function:
    """An option for each choice of a recipe; None (or nothing) where it is not given."""
    for each in reversed(CHOICES.values()):
        function = _option(each)(function)
    return function


def _option(choice: Setting) -> Callable[[Function], Function]:
    is_switch = isinstance(choice.kind, Switch)
    shown = choice.default not in (None, ()) and not is_switch
    return click.option(
        f"choice_{choice.name}",
        *choice.flags,
        type=None if is_switch else SettingType(choice),
        default=None,
        multiple=choice.many,
        help=choice.help.removesuffix(".") + (f" (default: {choice.default})." if shown else "."),
    )


@click.command(
    "train-drafter",
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Train a drafter for a target.",
)
@click.option("--out", type=click.Path(), required=True, metavar="DIR", help="Where the drafter and its work go.")
@click.option("--recipe", "recipe_file", type=click.Path(), metavar="FILE", help="Choices in a TOML file; flags win.")
@click.option("--plan", "planning", is_flag=True, help="Say what would be done, with sizes and times, and stop.")
@click.option("--check", "checking", is_flag=True, help="Learn a few documents by heart, and see full blocks.")
@recipe_options
@settings("model", "text", "quiet", "verbose", "color", without=NOT_SETTINGS)
def train_command(
    out: str, recipe_file: str | None, planning: bool, checking: bool, config: Config, **choices: Any
) -> None:
    """Train a drafter for a target: prompts in, a folder for `--draft` out.

    The target answers the prompts, a drafter learns to foresee these answers, and what it has learned is measured on
    prompts it never saw, in the real decoder. The best drafter so far lies in DIR; the same command goes on with a run
    that was interrupted.
    """
    given = {name.removeprefix("choice_"): value for name, value in choices.items() if value not in (None, ())}
    recipe = make_recipe(recipe_file, given)
    if planning and checking:
        raise UsageError("--plan and --check are both on; choose one")
    report = Reporter(quiet=config.quiet)
    config = replace(config, draft="none")  # one is trained here, not used
    with Stop() as stop:
        try:
            Run(recipe, config, Path(out).expanduser(), report, stop).run(planning=planning, checking=checking)
        except KeyboardInterrupt:
            report.tell(f"stopped; what is made is kept in {out}, and the same command goes on from there")
            raise


class Run:
    """One use of the command."""

    def __init__(self, recipe: Recipe, config: Config, out: Path, report: Reporter, stop: Stop) -> None:
        self.recipe, self.config, self.out, self.report, self.stop = recipe, config, out, report, stop
        self.work = out / "work"

    def run(self, *, planning: bool, checking: bool) -> None:
        """Load, read, then plan, check or train."""
        from dflash_cli.train.check import CHECK_DOCUMENTS, check
        from dflash_cli.train.data import WRITTEN, answer_file, answer_missing, read_files
        from dflash_cli.train.shape import drafter_shape
        from dflash_cli.train.synthesis import PromptFile

        model = load_model(self.config, tell=self.report.tell)
        self._set_threads()
        written = PromptFile(self.work / WRITTEN)
        if planning:
            self._plan(model, read_files(self.recipe, model, written, self.report), written)
            return
        written.write(model, self.recipe, self.report, self.stop)
        read = read_files(self.recipe, model, written, self.report)
        self.stop.check()
        if checking:  # it takes a few documents
            read.wanted = read.wanted[: 2 * CHECK_DOCUMENTS]
        answers = answer_file(self.recipe, model, self.work)
        answer_missing(read, answers, self.recipe, model, self.report, self.stop)
        data = self._data(read, answers.answers)
        raw, _ = drafter_shape(self.recipe, model, data.train)
        folder = self._target_folder(model)
        if checking:
            check(self.recipe, model, raw, data, folder, self.report, self.stop)
            return
        self._train(model, data, raw, folder)

    def _set_threads(self) -> None:
        import torch

        if self.recipe.threads is not None:
            torch.set_num_threads(self.recipe.threads)

    def _data(self, read: Read, answers: dict[str, list[int]]) -> Data:
        from dflash_cli.train.data import collect

        data = collect(read, answers, self.recipe)
        self.report.tell(
            f"{len(data.train)} documents to train on, {data.answer_tokens:,} answer tokens; {len(data.held)} held out"
        )
        return data

    def _target_folder(self, model: Model) -> Path:
        from dflash_cli.fetch import fetch

        return fetch(model.pair.target, offline=self.config.offline, quiet=True)

    def _plan(self, model: Model, read: Read, written: PromptFile) -> None:
        from dflash_cli.train.plan import plan

        to_write = max(0, self.recipe.synthesize - len(written.texts))
        for line in plan(self.recipe, model, read, self.work, to_write):
            click.echo(line)

    def _train(self, model: Model, data: Data, raw: dict[str, Any], folder: Path) -> None:
        from dflash_cli.train.shape import make_drafter
        from dflash_cli.train.trainer import Trainer

        drafter = make_drafter(self.recipe, raw, model.target, folder)
        trainer = Trainer(self.recipe, model, drafter, raw, data, self.out, self.report)
        if trainer.resume():
            self.report.tell(f"going on from step {trainer.state.step} of {trainer.num_steps}")
        else:
            self._preview(model, trainer)
        if self.recipe.cache_features:
            trainer.cache_features(self.stop)
        trainer.run(self.stop)
        state = trainer.state
        self.report.tell(f"done: τ {state.best_tau:.2f} at step {state.best_step}; use it with --draft {self.out}")

    def _preview(self, model: Model, trainer: Trainer) -> None:
        import sys

        from dflash_cli.train.preview import preview

        document = trainer.data.train[0]
        (_, row), *_ = trainer.learner.rows([(0, 0, document)])
        text = preview(document, row, model.codec, color=self.config.wants_color(sys.stderr))
        if not self.config.quiet:
            click.echo(text, err=True)
