"""`dflash run`: answer prompts from files, stdin or JSON lines. Stdout is the answer, stderr the rest."""

from __future__ import annotations

import functools
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_cli.answer_text import AnswerText, Said
from dflash_cli.answering import Answered, answer
from dflash_cli.backend_setup import fallback_in_words
from dflash_cli.config import Config
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.events import Event, Finished
from dflash_cli.interrupts import uninterrupted
from dflash_cli.options import settings
from dflash_cli.prompts import Prompt, read_prompts
from dflash_cli.startup import load_model
from dflash_cli.stats import AnswerStats, counted
from dflash_cli.stats_store.keeper import TurnKeeper
from dflash_cli.terminal import AnswerOutput, printable
from dflash_cli.trace import Recording, TraceWriter, head_of, record

if TYPE_CHECKING:
    from dflash_cli.compare import Comparison
    from dflash_cli.model import Model
    from dflash_cli.request import Request
    from dflash_cli.speculative import Decoder

DEFAULT_BATCH = 8  # rows decoded together with --jsonl: weights are read once for all of them
Seen = list[tuple[Event, float]]  # the events of an answer so far, with their times


@click.command("run", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True))
@click.option("--jsonl", is_flag=True, help="Each line is a JSON object with prompt or messages; so is each answer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a prompt, with all its figures.")
@click.option("--compare", "comparing", is_flag=True, help="Decode plainly as well: speed-up, and whether texts agree.")
@click.option(
    "--batch", type=click.IntRange(1), show_default=str(DEFAULT_BATCH), help="Prompts of --jsonl answered together."
)
@settings("model", "text", "sampling", "output")
def run_command(
    files: tuple[str, ...], jsonl: bool, as_json: bool, comparing: bool, batch: int | None, config: Config
) -> None:
    """Answer each FILE as one prompt ("-" is stdin, the default).

    With --jsonl each line of the input is a prompt, answered in batches, in order. The answer goes to stdout, a
    summary line to stderr.
    """
    if batch is not None and not jsonl:
        raise UsageError("--batch goes with --jsonl only: other prompts are answered one after the other")
    if comparing and jsonl:
        raise UsageError("--compare goes with single prompts, not with --jsonl: a batch has no plain speed of its own")
    prompts = read_prompts(files, jsonl=jsonl, system=config.system)
    trace = TraceWriter(Path(config.trace)) if config.trace else None
    rows = min(batch or DEFAULT_BATCH, len(prompts)) if jsonl else 1
    model = load_model(config, batch_size=rows, tell=lambda line: say(config, line, only_verbose=True))
    for remark in model.idle_settings():
        say(config, remark)
    runner = Runner(model, prompts, trace)
    try:
        if jsonl:
            runner.many(rows)
        else:
            runner.each(as_json, comparing)
    finally:
        runner.keeper.close()


def say(config: Config, line: str, *, only_verbose: bool = False) -> None:
    """A remark for people, on stderr."""
    if not config.quiet and (config.verbose or not only_verbose):
        click.echo(printable(f"dflash: {line}"), err=True)


class Runner:
    """A loaded model at work on a list of prompts. Every prompt is encoded, and measured, before the first answer."""

    def __init__(self, model: Model, prompts: list[Prompt], trace: TraceWriter | None = None) -> None:
        self.model, self.prompts, self.config, self._trace = model, prompts, model.config, trace
        self.keeper = TurnKeeper("run")
        self.encoded = [model.encode(prompt.messages) for prompt in prompts]
        for prompt, ids in zip(prompts, self.encoded, strict=True):
            if len(ids) >= model.max_len:
                raise DFlashError(
                    f"the prompt from {prompt.name} has {len(ids)} tokens and the context holds {model.max_len}, "
                    "the answer included; shorten it or pass a larger --context"
                )

    def each(self, as_json: bool, comparing: bool) -> None:
        """One prompt after the other, each answer streamed (or printed as JSON at its end)."""
        if comparing and self.model.params.seed is None:
            self.model = self.model.with_config(seed=secrets.randbits(32))
        decoder = self._decoder()
        plain = self.model.plain_decoder() if comparing else None
        if plain is not None:
            self._warm_up(decoder)
            self._warm_up(plain)
        for index in range(len(self.prompts)):
            seen: Seen = []
            answered = self._answer(decoder, index, seen, streaming=not as_json)
            plainly, compared = None, None
            if plain is not None and not answered.interrupted:
                plainly = answer(self.model, plain, self.encoded[index]).stats
                compared = self._compare(plain, index, answered.stats, plainly)
            self._tell(decoder, answered.stats, compared)
            if as_json:
                emit(self._object(index, decoder, answered.stats, answered.text, compared))
            recording = self._record(decoder, index, seen)
            stats, text = answered.stats, answered.text
            self._say(self.keeper.remember(self.model, decoder, stats, text, recording=recording, plain=plainly))
            if answered.interrupted or (compared is not None and compared.interrupted):
                raise KeyboardInterrupt

    def _decoder(self, rows: int = 1) -> Decoder:
        """The one that drafts; it is told why where its backend is not the one that `auto` wanted."""
        decoder = self.model.decoder(batch_size=rows)
        self._say(fallback_in_words(decoder.backend.choice))
        return decoder

    def _warm_up(self, decoder: Decoder) -> None:
        """The first passes of a decoder, so that they are not measured; nothing of them stays in its cache."""
        from dflash_cli.compare import warm_up

        warm_up(decoder, self.model.request(self.encoded[0]))
        decoder.resident[0].length = 0

    def _answer(self, decoder: Decoder, index: int, seen: Seen, *, streaming: bool) -> Answered:
        output = AnswerOutput()

        def watch(event: Event, said: Said) -> None:
            seen.append((event, time.perf_counter()))
            if streaming:
                output.write(said.answer)

        answered = answer(self.model, decoder, self.encoded[index], watch)
        if streaming:
            output.end()
        return answered

    def _record(self, decoder: Decoder, index: int, seen: Seen) -> Recording | None:
        if self._trace is None:
            return None
        head = head_of(self.model, decoder, self.prompts[index].messages[-1]["content"])
        recording = record(seen, self.model.codec, self.config.stop, head)
        self._trace.write(recording)
        return recording

    def _compare(self, plain: Decoder, index: int, stats: AnswerStats, plainly: AnswerStats) -> Comparison:
        from dflash_cli.compare import compare

        return compare(plain, self.encoded[index], stats, plainly)

    def _tell(self, decoder: Decoder, stats: AnswerStats, compared: Comparison | None) -> None:
        say(self.config, f"{stats.summary()}{self._where(decoder)}")
        if compared is not None:
            say(self.config, compared.summary(self.model.codec, _dtype(decoder)))

    @staticmethod
    def _where(decoder: Decoder) -> str:
        backend = decoder.backend
        kept = "" if backend.quantize == "none" else f" with {backend.quantize} weights"
        return f" · {backend.name}, {_dtype(decoder)}{kept}, {backend.device}"

    def many(self, rows: int) -> None:
        """All prompts through one batch of `rows`; JSON lines come out in the order they went in."""
        decoder = self._decoder(rows)
        stats = [AnswerStats() for _ in self.prompts]
        texts = [AnswerText(self.model.codec, ids, self.config.stop) for ids in self.encoded]
        seen: dict[int, Seen] = {}
        done: dict[int, bool] = {}  # finished answers, and whether they are told
        first = 0  # all before it are told
        requests = (self._begun(index, stats[index]) for index in range(len(self.prompts)))

        def tell(index: int) -> None:
            emit(self._object(index, decoder, stats[index], texts[index].text, None))
            done[index] = True

        try:
            with self._progress(decoder) as advance:
                for index, event in decoder.generate_many(requests):
                    stats[index].add(event, texts[index].add(event).flags)
                    seen.setdefault(index, []).append((event, time.perf_counter()))
                    if not isinstance(event, Finished):
                        continue
                    done[index] = False
                    advance(len(stats[index].ids))
                    while done.get(first) is False:
                        uninterrupted(functools.partial(tell, first))  # not half, and not twice
                        first += 1
                    text, recording = texts[index].text, self._record(decoder, index, seen.pop(index))
                    # Written when all is answered: nothing here may wait for the disk.
                    remember = functools.partial(self.keeper.remember, self.model, decoder, later=True)
                    self._say(remember(stats[index], text, recording=recording))
        except (KeyboardInterrupt, DFlashError, RuntimeError, MemoryError):  # torch runs out as RuntimeError
            # What is finished but had to wait for an earlier answer is not lost.
            for index in sorted(each for each, told in done.items() if not told):
                tell(index)
            raise
        finally:
            self._say(self.keeper.write())

    def _say(self, remark: str) -> None:
        if remark:
            say(self.config, remark)

    def _begun(self, index: int, stats: AnswerStats) -> Request:
        stats.begun = time.perf_counter()  # waiting for a free row is not time to first token
        return self.model.request(self.encoded[index])

    @contextmanager
    def _progress(self, decoder: Decoder) -> Iterator[Callable[[int], None]]:
        """A bar on a terminal; always one line at the end with the throughput over all rows."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        begun, tokens = time.perf_counter(), 0
        console = Console(stderr=True)
        columns = (TextColumn("answering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        shown = console.is_terminal and not self.config.quiet
        with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
            task = bar.add_task("", total=len(self.prompts))

            def advance(count: int) -> None:
                nonlocal tokens
                tokens += count
                bar.advance(task)

            yield advance
        seconds = time.perf_counter() - begun
        amount = f"{counted(len(self.prompts), 'answer')} · {counted(tokens, 'token')}"
        how = " · plain decoding" if decoder.width == 1 else ""
        say(self.config, f"{amount} · {tokens / seconds:.1f} tok/s over all rows{how}{self._where(decoder)}")

    def _object(
        self, index: int, decoder: Decoder, stats: AnswerStats, text: str, compared: Comparison | None
    ) -> dict[str, Any]:
        """The documented JSON object of one answer."""
        backend, pair, prompt = decoder.backend, self.model.pair, self.prompts[index]
        return {
            **({} if prompt.id is None else {"id": prompt.id}),
            "text": text,
            "ids": stats.ids,
            "finish_reason": stats.reason,
            "prompt_tokens": stats.prompt_tokens or len(self.encoded[index]),
            "new_tokens": len(stats.ids),
            "reused_tokens": stats.reused_tokens,
            "target": pair.target,
            "drafter": pair.drafter if backend.block_size > 1 else None,
            "backend": backend.name,
            "device": str(backend.device),
            "dtype": _dtype(decoder),
            "quantize": backend.quantize,
            "recompiles": backend.recompiles,
            "block_size": decoder.width,
            "acceptance": stats.acceptance(),
            "timings": stats.timings(),
            **({} if compared is None else {"compare": compared.as_dict()}),
        }


def _dtype(decoder: Decoder) -> str:
    return str(decoder.backend.dtype).removeprefix("torch.")


def emit(entry: dict[str, Any]) -> None:
    """One JSON object on a line of stdout, all escaped where it holds a lone surrogate, which is no UTF-8."""
    line = json.dumps(entry, ensure_ascii=False)
    is_utf8 = not any("\ud800" <= char <= "\udfff" for char in line)
    AnswerOutput().write((line if is_utf8 else json.dumps(entry)) + "\n")
