"""One use of `dflash bench`: load, gather who takes part, and let them run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from backends.huge_pages import use_huge_pages
from dflash_cli.bench.agreement import agreements
from dflash_cli.bench.baselines import baselines_of
from dflash_cli.bench.case import Question, encoded, file_questions, own_questions
from dflash_cli.bench.entrants import Weights, cache_length, our_subjects
from dflash_cli.bench.kinds import KINDS
from dflash_cli.bench.limit import Limit
from dflash_cli.bench.machine import machine
from dflash_cli.bench.peers import peer_subjects
from dflash_cli.bench.plan import AUTO
from dflash_cli.bench.progress import watching
from dflash_cli.bench.result import Result
from dflash_cli.bench.room import Room, flags_of_bench, tidy
from dflash_cli.bench.rows import make_rows
from dflash_cli.bench.runner import Measured, Runner, Watch
from dflash_cli.bench.schedule import TAUS
from dflash_cli.bench.subject import Work, precision_of
from dflash_cli.doctor_machine import measure_bandwidth
from dflash_cli.fetch_progress import note
from dflash_cli.interrupts import interruptible
from dflash_cli.sampling import SamplingParams
from dflash_cli.startup import load_model
from dflash_cli.stats_store.keeper import TurnKeeper

if TYPE_CHECKING:
    from dflash_cli.bench.case import Case
    from dflash_cli.bench.plan import Plan
    from dflash_cli.bench.subject import Subject
    from dflash_cli.config import Config
    from dflash_cli.model import Model


@dataclass(frozen=True)
class Source:
    """Where prompts, and weights that are not the model's, come from."""

    kinds: tuple[str, ...] | None = None
    prompts: str | None = None
    dataset: str | None = None
    assistant: str | None = None
    gguf: str | None = None
    synthetic: str | None = None
    taus: tuple[float, ...] | None = None


class Bench:
    """A plan for a model, or for random weights."""

    def __init__(self, config: Config, plan: Plan, source: Source) -> None:
        self.config, self.plan, self.source = config, plan, source

    def _tell(self, line: str) -> None:
        note(line, quiet=self.config.quiet)

    def run(self) -> Result:
        """Measure for one precision after the other; Ctrl-C ends it, and the result says so."""
        measure = self._synthetic if self.source.synthetic else self._loaded
        result: Result | None = None
        for index, (dtype, quantize) in enumerate(product(self.plan.dtypes, self.plan.quantizations)):
            try:
                result = measure(replace(self.config, dtype=dtype, quantize=quantize), index == 0, result)
            except KeyboardInterrupt:
                if result is None:
                    raise
                result.interrupted = True
            if result.interrupted:
                break
            tidy()  # one pair at a time
        assert result is not None
        return result

    def draft_latency(self, shape: str) -> Result:
        """Time drafts alone, on random weights of a shape; Ctrl-C ends it, and the result says so."""
        from dflash_cli.bench.draft_latency import draft_latency
        from dflash_cli.bench.synthetic import DEFAULT_CONTEXT
        from dflash_cli.loading import pick_device, pick_dtype

        device = pick_device(self.config.device)
        backends = [_concrete(name, device.type) for name in self.plan.backends]
        context = (self.plan.contexts or (DEFAULT_CONTEXT,))[0]
        result = Result(machine(str(device)), {"pair": f"synthetic:{shape}", **self.plan.as_dict()})
        rounds = 10 * self.plan.rounds
        with watching(quiet=self.config.quiet) as watch:
            try:
                for dtype in self.plan.dtypes:
                    drafts = draft_latency(shape, backends, pick_dtype(dtype, device), device, context, rounds, watch)
                    while (latency := interruptible(lambda: next(drafts, None))) is not None:  # noqa: B023
                        result.latencies.append(latency)
            except KeyboardInterrupt:
                result.interrupted = True
        return result

    def _loaded(self, config: Config, is_first: bool, before: Result | None) -> Result:
        """A model's own weights, and the peers."""
        questions = self._questions()
        # With its index, if it has one: what drafts all the same needs no other weights.
        config = replace(config, block=None, draft_vocabulary=AUTO if AUTO in self.plan.draft_vocabularies else "full")
        with flags_of_bench():
            model = load_model(config, batch_size=max(self.plan.batches), tell=self._tell)
        for remark in model.idle_settings():
            self._tell(remark)
        weights = Weights(model.pair, model.target, model.drafter, model.max_len)
        cases = encoded(model, questions, self.plan.contexts)
        work = Work(self.plan.max_new_tokens, model.codec.stop_ids, replace(model.params, temperature=0.0))

        def entrants(max_len: int, watch: Watch) -> Iterator[Subject]:
            room = Room(weights.device)
            yield from our_subjects(weights, self.plan, work, max_len, watch, room=room)
            yield from self._peers(model, weights, work, max_len, is_first, room)

        return self._measure(weights, cases, entrants, before)

    def _peers(
        self, model: Model, weights: Weights, work: Work, max_len: int, is_first: bool, room: Room
    ) -> Iterator[Subject]:
        return peer_subjects(
            model, weights, self.plan, work, max_len, room,
            assistant=self.source.assistant, gguf=self.source.gguf, is_first=is_first, tell=self._tell,
        )  # fmt: skip

    def _questions(self) -> list[Question]:
        source, samples = self.source, self.plan.samples
        if source.prompts:
            return file_questions(source.prompts, samples, self.config.system)
        if source.dataset:
            from dflash_cli.bench.dataset import dataset_questions

            return dataset_questions(source.dataset, samples, offline=self.config.offline)
        return own_questions(source.kinds or KINDS, samples)

    def _synthetic(self, config: Config, is_first: bool, before: Result | None) -> Result:  # noqa: ARG002
        """Random weights with acceptance by a schedule."""
        from dflash_cli.bench.synthetic import DEFAULT_CONTEXT, random_cases, synthetic_weights
        from dflash_cli.loading import pick_device, pick_dtype

        assert self.source.synthetic is not None
        plan, device = self.plan, pick_device(self.config.device)
        longest = max(plan.contexts or (DEFAULT_CONTEXT,)) + plan.max_new_tokens
        with flags_of_bench(is_own_context=True):
            weights = synthetic_weights(
                self.source.synthetic, pick_dtype(config.dtype, device), device, longest, max(plan.batches),
                quantize=config.quantize,
            )  # fmt: skip
        assert weights.drafter is not None
        block = weights.drafter.config.block_size
        plan = plan if plan.blocks else replace(plan, blocks=(block,))
        taus = self.source.taus or tuple(each for each in TAUS if each <= block)
        work = Work(plan.max_new_tokens, frozenset(), SamplingParams())
        cases = random_cases(weights, plan.contexts, plan.samples)
        return self._measure(
            weights, cases, lambda max_len, watch: our_subjects(weights, plan, work, max_len, watch, taus), before
        )  # fmt: skip

    def _measure(
        self,
        weights: Weights,
        cases: Sequence[Case],
        entrants: Callable[[int, Watch], Iterator[Subject]],
        before: Result | None,
    ) -> Result:
        max_len = cache_length(cases, self.plan.max_new_tokens, weights.most)
        result = before or Result(machine(weights.device), self._settings(weights))
        with watching(quiet=self.config.quiet) as watch:
            result.limits[precision_of(weights.dtype, weights.quantize)] = self._limit(weights, watch)
            subjects = interruptible(lambda: list(entrants(max_len, watch)))
            # All that is loaded, peers' weights included, has the same pages when it is measured.
            settle = use_huge_pages if weights.device == "cpu" else lambda: None
            runner = Runner(subjects, cases, self.plan.rounds, watch, settle)
            runner.run()
        measured = list(runner.measured.values())
        if self.config.stats and not self.source.synthetic:
            self._remember(weights, measured)
        result.rows += make_rows(measured, agreements(measured, runner.groups), result.limits)
        result.interrupted = runner.interrupted
        return result

    def _remember(self, weights: Weights, measured: Sequence[Measured]) -> None:
        """Plain decoding is what `dflash stats` counts speed-ups against."""
        keeper = TurnKeeper("bench")
        if remark := keeper.remember_baselines(baselines_of(weights, measured)):
            self._tell(remark)
        keeper.close()

    def _limit(self, weights: Weights, watch: Watch) -> Limit:
        watch.stage("measuring the memory's bandwidth")
        weight = weights.target.model.embed_tokens.weight
        head = None if weights.drafter is None else weights.drafter.head
        drafter = None if weights.drafter is None else weights.drafter.config
        return Limit(
            weights.target.config, drafter, weight.dtype.itemsize, measure_bandwidth(weights.device), weights.quantize,
            None if head is None else len(head.ids),
        )  # fmt: skip

    def _settings(self, weights: Weights) -> dict[str, Any]:
        pair, source = weights.pair, self.source
        prompts = source.prompts or source.dataset or list(source.kinds or KINDS)
        return {
            "pair": pair.name,
            "target": pair.target,
            "drafter": pair.drafter,
            "prompts": "random ids" if source.synthetic else prompts,
            **self.plan.as_dict(),
        }


def _concrete(name: str, device: str) -> str:
    from backends import choose_backend

    return choose_backend(name, device).name
