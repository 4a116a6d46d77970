"""Answers of the target made by a server: many requests at once, and the target's own token ids of what comes back.

The prompt goes there as token ids (`/v1/completions`), made here by the target's chat template: so template, thinking
mode and control ids are those of a chat with `dflash`, whatever template the server has. Of the answer vLLM and SGLang
send the ids (`return_token_ids`), llama.cpp with the logits (`logprobs`); of others the text is encoded again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from backends import create_backend
from backends.base import on_device
from dflash_cli.errors import DFlashError
from dflash_cli.train.corpus import Wanted, request_seed
from dflash_cli.train.documents import given_answer
from dflash_cli.train.prompts import TrainingPrompt
from dflash_cli.train.server import Server

if TYPE_CHECKING:
    from dflash_cli.model import Model
    from dflash_cli.train.recipe import Recipe
    from dflash_cli.train.report import Reporter

Item = TypeVar("Item")
Result = TypeVar("Result")
Answer = tuple[Wanted, list[int], str]  # prompt, answer ids, why it ended
LLAMA_CPP = "llamacpp"  # `owned_by` of its models
SEED_BITS = 31  # what every server takes
COMPARED = 96  # ids of an answer that are compared with the target's own
FEWEST_COMPARED = 8
# So many of them must be the target's own. Of smollm2-135m's answers 98% are, read in one pass; 96% where they are read
# in int8 or int4; of a text that is not its own 29%. In between, with room for short answers.
OWN_SHARE = 0.6


class Served:
    """A server that answers as the target."""

    def __init__(self, model: Model, recipe: Recipe, report: Reporter) -> None:
        """Asks what the server has. Raises DFlashError, UsageError."""
        assert recipe.engine is not None
        self.model, self.recipe, self.report = model, recipe, report
        self.server = Server(recipe.engine)
        self.name, owner = self.server.model(recipe.engine_model)
        self.is_llama_cpp = owner == LLAMA_CPP
        self.end = _end_of_turn(model)
        self.encoded = 0
        """Answers whose ids were made from their text."""

    def answers(self, wanted: Sequence[Wanted], check: Callable[[], None]) -> Iterator[Answer]:
        """(prompt, answer ids, why it ended), as they finish; `check()` may raise to stop. Raises DFlashError.

        None comes before the first ones were compared with what the target itself would have said.
        """
        self.report.tell(f"answers come from {self.name} at {self.server.address}")
        # What was drawn need not be the likeliest.
        held: list[Answer] | None = [] if self.recipe.temperature == 0 else None
        for answer, is_encoded in as_finished(self._answer, wanted, self.recipe.rows, check, self.server.closing):
            self.encoded += is_encoded
            if held is None:
                yield answer
                continue
            held.append(answer)
            if len(answer[1]) >= FEWEST_COMPARED or _num_ids(held) >= COMPARED:
                self._compare(held)
                yield from held
                held = None
        if held:
            if _num_ids(held) >= FEWEST_COMPARED:
                self._compare(held)
            else:
                self.report.tell("warning: the answers are too short to tell whether the server has the target")
            yield from held
        if self.encoded:
            self.report.tell(
                f"warning: the server sends no token ids: those of {self.encoded} answers were made from their text, "
                "and may be others than the target chose"
            )

    def _answer(self, each: Wanted) -> tuple[Answer, bool]:
        """An answer, and whether its ids were made from its text."""
        choice = self.server.complete(self._body(each))
        reason = choice.get("finish_reason")
        if reason not in ("stop", "length"):
            where = f"the server {self.server.address}"
            raise DFlashError(f"{where} ended an answer with {reason!r}; expected stop or length")
        sent = self._sent_ids(choice)
        ids = self._encoded_ids(choice, reason) if sent is None else sent
        return (each, self._ended(ids, choice, reason), reason), sent is None

    def _body(self, each: Wanted) -> dict[str, Any]:
        """Everything that a server or a checkpoint's own defaults could decide otherwise is said."""
        recipe = self.recipe
        body = {
            "model": self.name,
            "prompt": each.prompt_ids,
            "max_tokens": max(1, min(recipe.answer_tokens, self.model.max_len - len(each.prompt_ids))),
            "temperature": recipe.temperature,
            "top_p": recipe.top_p,
            "top_k": recipe.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": sorted(self.model.codec.stop_ids),
            "return_token_ids": True,
            "stream": False,
        }
        if recipe.temperature:
            body["seed"] = request_seed(recipe.seed, each.prompt_ids) >> (63 - SEED_BITS)
        if self.is_llama_cpp:
            body |= {"logprobs": 1, "n_probs": 1, "repeat_penalty": 1.0}
        return body

    def _sent_ids(self, choice: dict[str, Any]) -> list[int] | None:
        ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
        if ids is None and self.is_llama_cpp and isinstance(logprobs, dict):
            content = logprobs.get("content")
            entries = content if isinstance(content, list) else []
            ids = [entry.get("id") if isinstance(entry, dict) else None for entry in entries]
        if ids is None:
            return None
        size = self.model.target.config.vocab_size
        if not isinstance(ids, list) or not all(type(each) is int and 0 <= each < size for each in ids):
            raise DFlashError(f"{self.name} at {self.server.address} sends ids that the target does not have: {_OTHER}")
        return ids

    def _encoded_ids(self, choice: dict[str, Any], reason: str) -> list[int]:
        text = choice.get("text")
        if not isinstance(text, str):
            raise DFlashError(f"the server {self.server.address} sent an answer without text; is it OpenAI-compatible?")
        # A character that the limit cut in half comes as U+FFFD.
        return self.model.codec.encode_answer(text.rstrip("\ufffd") if reason == "length" else text)

    def _ended(self, ids: list[int], choice: dict[str, Any], reason: str) -> list[int]:
        """Up to and with the first id that ends an answer, which servers may leave out."""
        stops = self.model.codec.stop_ids
        at = next((i for i, each in enumerate(ids) if each in stops), None)
        if at is not None:
            return ids[: at + 1]
        told = choice.get("stop_reason", choice.get("matched_stop"))
        end = told if type(told) is int and told in stops else self.end
        return ids if reason != "stop" or end is None else [*ids, end]

    def _compare(self, answers: Sequence[Answer]) -> None:
        """Raises DFlashError where the target itself would have said something else."""
        own = compared = 0
        for each, ids, _ in reversed(answers):  # the last one is the long one, if any
            begin = ids[: COMPARED - compared]
            if begin:
                own += num_own(self.model, each.prompt_ids, begin)
                compared += len(begin)
        share = own / compared
        if share < OWN_SHARE:
            raise DFlashError(
                f"{self.name} at {self.server.address} does not answer as {self.model.pair.target}: "
                f"{share:.0%} of the first answers' tokens are the target's own; {_OTHER}"
            )


_OTHER = "another model is loaded there; load the target there, or name it with --engine-model"


def _num_ids(answers: Sequence[Answer]) -> int:
    return sum(len(ids) for _, ids, _ in answers)


def num_own(model: Model, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> int:
    """How many of the answer's ids the target finds likeliest where they stand."""
    *before, last = prompt_ids
    backend = create_backend("eager", model.target, None, max_len=len(prompt_ids) + len(answer_ids), batch_size=1)
    if before:
        backend.prefill(on_device(before, backend.device), 0)
    block = on_device([last, *answer_ids[:-1]], backend.device).unsqueeze(0)
    own: list[int] = backend.verify(block, [len(before)])[0].argmax(-1).tolist()
    return sum(mine == theirs for mine, theirs in zip(own, answer_ids, strict=True))


def _end_of_turn(model: Model) -> int | None:
    """The id that ends an answer in the target's template; None where that cannot be told."""
    try:
        return given_answer(model, TrainingPrompt("", ({"role": "user", "content": "x"},), "", "y"))[-1]
    except DFlashError:
        stops = model.codec.stop_ids
        return next(iter(stops)) if len(stops) == 1 else None


def as_finished(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    num_threads: int,
    check: Callable[[], None],
    closing: threading.Event,
) -> Iterator[Result]:
    """`work(item)` of all items in threads, as they finish. Raises the first error, and what `check()` raises.

    However it ends, `closing` is set then; threads that wait for an answer are not waited for.
    """
    todo: queue.SimpleQueue[Item] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()
    for item in items:
        todo.put(item)

    def run() -> None:
        while not closing.is_set():
            try:
                item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((work(item), None))
            except BaseException as error:  # raised again where it is waited for
                done.put((None, error))
                return

    try:
        for _ in range(min(num_threads, len(items))):
            threading.Thread(target=run, daemon=True).start()
        for _ in items:
            result, error = _next(done, check)
            if error is not None:
                raise error
            yield result  # type: ignore[misc]
    finally:
        closing.set()


def _next(done: queue.SimpleQueue[Item], check: Callable[[], None]) -> Item:
    while True:
        check()
        try:
            return done.get(timeout=0.2)
        except queue.Empty:
            continue
