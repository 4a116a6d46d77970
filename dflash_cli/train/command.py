"""`dflash train-drafter`: flags to a recipe, then data, answers, training. Imports no torch before it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_cli.config import Config, Setting
from dflash_cli.errors import UsageError
from dflash_cli.models import find_pair
from dflash_cli.options import SettingType, settings
from dflash_cli.setting_kinds import Switch
from dflash_cli.startup import load_model
from dflash_cli.train.launch import Place, device_for, join, read_place
from dflash_cli.train.own_folder import alone_in, check_out
from dflash_cli.train.recipe import CHECK_PROMPTS, CHOICES, Recipe, for_check, make_recipe
from dflash_cli.train.report import Reporter
from dflash_cli.train.signals import Stop

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.data import Data
    from dflash_cli.train.ranks import Ranks
    from dflash_cli.train.reading import Read
    from dflash_cli.train.sittings import Sitting

Function = Callable[..., Any]
# Of chats: here a recipe decides, or nothing does.
NOT_SETTINGS = ("draft", "draft_vocabulary", "backend", "context", "block")


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
    that was interrupted. On many GPUs: torchrun --nproc-per-node N -m dflash_cli train-drafter and the same flags.
    """
    given = {name.removeprefix("choice_"): value for name, value in choices.items() if value not in (None, ())}
    recipe = make_recipe(recipe_file, given)
    if planning and checking:
        raise UsageError("--plan and --check are both on; choose one")
    if checking:
        recipe = for_check(recipe)
    place = read_place(os.environ)
    if place is not None and (planning or checking):  # work for one process
        if place.rank > 0:
            return
        place = None
    if place is not None and place.rank > 0:
        config = replace(config, quiet=True)
    report = Reporter(quiet=config.quiet)
    config = replace(config, draft="none")  # one is trained here, not used
    with Stop() as stop:
        try:
            run = Run(recipe, config, Path(out).expanduser(), report, stop)
            if place is None:
                run.run(planning=planning, checking=checking)
            else:
                run.together(place)
        except KeyboardInterrupt:
            report.tell(f"stopped; what is made is kept in {out}, and the same command goes on from there")
            raise


class Run:
    """One use of the command."""

    def __init__(self, recipe: Recipe, config: Config, out: Path, report: Reporter, stop: Stop) -> None:
        self.recipe, self.config, self.out, self.report, self.stop = recipe, config, out, report, stop
        self.work = out / "work"

    def together(self, place: Place) -> None:
        """Train as one of several processes."""
        device = device_for(place, self.config.device)
        with join(place, device) as ranks:
            ranks.check_batch(self.recipe.batch)
            self.stop.others = ranks.stop
            self.report.tell(f"{place.size} processes, each with a share of the work")
            self.run(ranks, device)

    def run(
        self, ranks: Ranks | None = None, device: str | None = None, *, planning: bool = False, checking: bool = False
    ) -> None:
        """Load, read, then plan, check or train. `device`: the one of this process among several."""
        from dflash_cli.train.ranks import Ranks

        ranks = ranks or Ranks()
        writes = ranks.first and not planning
        if ranks.first:
            check_out(self.out, self._inputs())
        if writes and not checking:
            self._check_outputs()
        with alone_in(self.out) if writes else nullcontext():
            model = load_model(replace(self.config, device=device or self.config.device), tell=self.report.tell)
            model = replace(model, config=self.config)
            self._set_threads()
            if planning:
                self._plan(model)
            else:
                self._make(model, ranks, checking=checking)

    def _make(self, model: Model, ranks: Ranks, *, checking: bool) -> None:
        from dflash_cli.train.check import check
        from dflash_cli.train.data import WRITTEN
        from dflash_cli.train.reading import read_files
        from dflash_cli.train.saved_chats import CHATS, SavedChats
        from dflash_cli.train.shape import drafter_shape
        from dflash_cli.train.shared_answers import answer_together
        from dflash_cli.train.synthesis import PromptFile

        written = PromptFile(self.work / WRITTEN)
        if ranks.first:
            if self.recipe.from_sessions:
                SavedChats(self.work / CHATS).copy(self.report)
            written.write(model, self.recipe, self.report, self.stop)
        ranks.meet(self.stop)
        if not ranks.first:
            written = PromptFile(self.work / WRITTEN)
        read = read_files(self.recipe, model, written, self.report)
        self.stop.check()
        if checking:  # it takes a few documents
            read.wanted = read.wanted[:CHECK_PROMPTS]
        answers = answer_together(read, self.recipe, model, self.work, self.report, self.stop, ranks)
        data = self._data(read, answers)
        raw, _ = drafter_shape(self.recipe, model, data.train)
        folder = self._target_folder(model)
        if checking:
            check(self.recipe, model, raw, data, folder, self.report, self.stop)
            return
        self._train(model, data, raw, folder, ranks)

    def _inputs(self) -> dict[str, Path]:
        """Folders that are read, by the option that names them."""
        model = self.config.model
        target = None if model is None else find_pair(model, "none").target  # an alias comes before a folder
        named = {"--model": target, "--warm-start": self.recipe.warm_start}
        return {option: Path(name).expanduser() for option, name in named.items() if name is not None}

    def _earlier(self) -> list[Sitting]:
        """The sittings that came before. Raises DFlashError where they are not known and everyone would see them."""
        from dflash_cli.train.sittings import read_sittings, recorded_sittings

        if self.recipe.warm_start is None:
            return []
        folder = Path(self.recipe.warm_start)
        return recorded_sittings(folder) if self.recipe.public else read_sittings(folder)

    def _check_outputs(self) -> None:
        """What is asked for must be possible before hours of work."""
        from dflash_cli.train.push import check_hub
        from dflash_cli.train.saved_chats import SOURCE
        from dflash_cli.train.tensorboard import require_tensorboard

        if self.recipe.tensorboard:
            require_tensorboard()
        if self.recipe.push_to_hub is not None:
            earlier = self._earlier()
            if self.recipe.public and any(SOURCE in each.data for each in earlier):
                raise UsageError(
                    f"--public and --warm-start {self.recipe.warm_start}: that drafter learned from saved chats and "
                    "may repeat them; leave one of them out"
                )
            check_hub(self.recipe.push_to_hub, public=self.recipe.public, offline=self.config.offline)
            if self.config.system or any("--system" in each.command for each in earlier):
                who = "everyone" if self.recipe.public else "those who may see it"
                self.report.tell(f"the model card in {self.recipe.push_to_hub} will show {who} your system prompt")

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
        if data.doubtful:
            self.report.tell(
                f"{data.doubtful} of those held out may have been trained on in an earlier sitting, which makes τ too "
                "high; --eval-prompts measures on prompts of your own"
            )
        return data

    def _target_folder(self, model: Model) -> Path:
        from dflash_cli.fetch import fetch

        return fetch(model.pair.target, offline=self.config.offline, quiet=True)

    def _plan(self, model: Model) -> None:
        from dflash_cli.train.data import WRITTEN
        from dflash_cli.train.plan import plan
        from dflash_cli.train.reading import read_files
        from dflash_cli.train.synthesis import PromptFile

        written = PromptFile(self.work / WRITTEN)
        read = read_files(self.recipe, model, written, self.report)
        to_write = max(0, self.recipe.synthesize - len(written.texts))
        for line in plan(self.recipe, model, read, self.work, to_write):
            click.echo(line)

    def _train(self, model: Model, data: Data, raw: dict[str, Any], folder: Path, ranks: Ranks) -> None:
        from dflash_cli.train.preview import show_sample
        from dflash_cli.train.shape import make_drafter
        from dflash_cli.train.trainer import Trainer

        drafter = make_drafter(self.recipe, raw, model.target, folder)
        trainer = Trainer(self.recipe, model, drafter, raw, data, self.out, self.report, ranks)
        if trainer.resume():
            self.report.tell(f"going on from step {trainer.state.step} of {trainer.num_steps}")
        else:
            show_sample(data.train[0], trainer.learner, model)
        if self.recipe.cache_features:
            trainer.cache_features(self.stop)
        trainer.run(self.stop)
        state = trainer.state
        self.report.tell(f"done: τ {state.best_tau:.2f} at step {state.best_step}; use it with --draft {self.out}")
        if self.recipe.push_to_hub is not None and ranks.first:
            from dflash_cli.train.push import push

            push(self.out, self.recipe.push_to_hub, self.report, public=self.recipe.public)
