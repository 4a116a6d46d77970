"""Prompts of published test sets from the hub, fetched when they are asked for; none is part of this package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_cli.bench.case import Question, question_of
from dflash_cli.errors import DFlashError

Entry = dict[str, Any]


@dataclass(frozen=True)
class Dataset:
    """A file of a dataset on the hub, and how an entry of it becomes a prompt."""

    repo: str
    file: str
    prompt: Callable[[Entry], str]


def _step_by_step(entry: Entry) -> str:
    return f"{entry['question']}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def _complete(entry: Entry) -> str:
    return f"Write a solution to the following problem:\n```python\n{entry['prompt']}\n```"


DATASETS = {
    "gsm8k": Dataset("openai/gsm8k", "main/test-00000-of-00001.parquet", _step_by_step),
    "humaneval": Dataset("openai/openai_humaneval", "openai_humaneval/test-00000-of-00001.parquet", _complete),
    "mt-bench": Dataset("HuggingFaceH4/mt_bench_prompts", "raw/question.jsonl", lambda entry: str(entry["turns"][0])),
}


def dataset_questions(name: str, samples: int, *, offline: bool) -> list[Question]:
    """The first prompts of a dataset (of dialogues the first turn). Raises DFlashError with what to do."""
    dataset = DATASETS[name]
    path = _fetch(dataset, offline=offline)
    try:
        entries = list(_entries(path, samples))
        return [question_of(name, dataset.prompt(entry)) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as err:
        why = f"{type(err).__name__}: {err}"
        raise DFlashError(f"{dataset.repo} has another form than expected ({why}); use --prompts FILE") from err


def _fetch(dataset: Dataset, *, offline: bool) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(dataset.repo, dataset.file, repo_type="dataset", local_files_only=offline))
    except (OSError, ValueError) as err:
        first = next(iter(str(err).strip().splitlines()), type(err).__name__)
        raise DFlashError(
            f"{dataset.file} of {dataset.repo} could not be fetched from the hub: {first}; use --prompts FILE instead"
        ) from err


def _entries(path: Path, samples: int) -> Iterator[Entry]:
    if path.suffix == ".jsonl":
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        yield from (json.loads(line) for line in lines[:samples])
        return
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise DFlashError(
            "this dataset is a Parquet file, which needs pyarrow: pip install 'dflash-cli[datasets]', "
            "or use --prompts FILE"
        ) from None
    yield from parquet.read_table(path).slice(0, samples).to_pylist()
