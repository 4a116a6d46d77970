"""Datasets from the hub, without the hub: which files are asked for, and how entries become prompts."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dflash_cli.bench.dataset import DATASETS, dataset_questions
from dflash_cli.errors import DFlashError


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is asked of the hub comes out of `tmp_path`."""
    asked: dict[str, Any] = {"folder": tmp_path}

    def download(repo: str, file: str, **how: Any) -> str:
        asked.update(how, repo=repo, file=file)
        path = tmp_path / Path(file).name
        if not path.exists():
            raise OSError("no such entry\nsecond line")
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return asked


def parquet_of(entries: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pyarrow that finds these entries in every file."""
    module = ModuleType("pyarrow.parquet")
    module.read_table = (
        lambda _path: SimpleNamespace(  # type: ignore[attr-defined]
            slice=lambda start, count: SimpleNamespace(to_pylist=lambda: entries[start : start + count])
        )
    )
    package = ModuleType("pyarrow")
    package.parquet = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)


def test_of_dialogues_the_first_turn_is_asked(hub: dict[str, Any]) -> None:
    lines = [json.dumps({"turns": [f"first {n}", "second"]}) for n in range(4)]
    (hub["folder"] / "question.jsonl").write_text("\n".join(lines) + "\n")
    found = dataset_questions("mt-bench", 3, offline=True)
    assert [each.messages[-1]["content"] for each in found] == ["first 0", "first 1", "first 2"]
    assert {each.kind for each in found} == {"mt-bench"}
    assert (hub["repo"], hub["repo_type"], hub["local_files_only"]) == (
        "HuggingFaceH4/mt_bench_prompts",
        "dataset",
        True,
    )


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        ("gsm8k", {"question": "How many?"}, "How many?\nPlease reason"),
        ("humaneval", {"prompt": "def f():"}, "def f():\n```"),
    ],
)
def test_parquet_files_are_read_where_pyarrow_is(
    hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str, entry: dict[str, str], expected: str
) -> None:
    (hub["folder"] / Path(DATASETS[name].file).name).write_bytes(b"PAR1")
    parquet_of([entry] * 5, monkeypatch)
    found = dataset_questions(name, 2, offline=False)
    assert len(found) == 2
    assert expected in found[0].messages[-1]["content"]


def test_without_pyarrow_it_is_told_what_to_install(hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (hub["folder"] / "test-00000-of-00001.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        DFlashError, match=r"needs pyarrow: pip install 'dflash-cli\[datasets\]', or use --prompts FILE"
    ):
        dataset_questions("gsm8k", 2, offline=False)


def test_the_extra_that_is_named_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(each.startswith("pyarrow") for each in project["optional-dependencies"]["datasets"])


def test_a_parquet_file_is_read(hub: dict[str, Any]) -> None:
    """The real package, where it is installed."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"question": [f"question {n}" for n in range(5)], "answer": ["1"] * 5})
    parquet.write_table(table, hub["folder"] / "test-00000-of-00001.parquet")
    found = dataset_questions("gsm8k", 3, offline=False)
    assert [each.messages[-1]["content"].partition("\n")[0] for each in found] == [f"question {n}" for n in range(3)]


@pytest.mark.usefixtures("hub")
def test_what_is_not_there_is_told_in_a_line() -> None:
    with pytest.raises(DFlashError, match=r"could not be fetched from the hub: no such entry; use --prompts"):
        dataset_questions("mt-bench", 2, offline=False)


def test_another_form_is_told(hub: dict[str, Any]) -> None:
    (hub["folder"] / "question.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(DFlashError, match="another form than expected"):
        dataset_questions("mt-bench", 2, offline=False)
