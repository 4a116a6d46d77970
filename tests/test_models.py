from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_cli.embedded import DRAFTERS, TARGETS
from dflash_cli.errors import UsageError
from dflash_cli.models import GB, PAIRS, default_alias, find_pair


def test_every_pair_is_whole() -> None:
    assert list(PAIRS) == ["smollm2-135m", "qwen3-4b", "qwen3-8b", "llama-3.1-8b"]
    for alias, pair in PAIRS.items():
        assert pair.name == alias
        assert pair.expected_source
        assert {kind for kind, _, _ in pair.expected} == {"math", "code", "chat"}
        assert all(1 <= low < high for _, low, high in pair.expected)
        assert pair.thinking is (False if alias.startswith("qwen3") else None)
    assert PAIRS["smollm2-135m"].target in TARGETS
    assert PAIRS["smollm2-135m"].drafter in DRAFTERS


@pytest.mark.parametrize(
    ("free", "alias"),
    [(80, "qwen3-8b"), (22, "qwen3-8b"), (21.9, "qwen3-4b"), (12, "qwen3-4b"), (11.9, "smollm2-135m")],
)
def test_the_default_fits_the_gpu(free: float, alias: str) -> None:
    assert default_alias(True, int(free * GB)) == alias
    assert default_alias(False, int(free * GB)) == "smollm2-135m"


def test_aliases_and_known_ids_bring_their_drafter() -> None:
    assert find_pair("qwen3-8b", None) is PAIRS["qwen3-8b"]
    by_id = find_pair("Qwen/Qwen3-8B", None)
    assert (by_id.name, by_id.drafter) == ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16")
    pinned = find_pair("Qwen/Qwen3-8B@abc", None)
    assert (pinned.target, pinned.drafter, pinned.thinking) == ("Qwen/Qwen3-8B@abc", by_id.drafter, False)
    assert find_pair("embedded:smollm2-135m", None).drafter == "embedded:smollm2-135m-drafter"


def test_a_folder_named_like_a_known_id_is_just_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert find_pair("Qwen/Qwen3-8B", None).drafter is None


def test_draft_overrides(tmp_path: Path) -> None:
    plain = find_pair("qwen3-8b", "none")
    assert (plain.drafter, plain.expected) == (None, ())
    other = find_pair("qwen3-8b", str(tmp_path))
    assert (other.drafter, other.expected, other.expected_source) == (str(tmp_path), (), "")
    assert find_pair("qwen3-8b", "qwen3-8b") is PAIRS["qwen3-8b"]
    assert find_pair("someone/model", "qwen3-4b").drafter == "z-lab/Qwen3-4B-DFlash-b16"


def test_unknown_models_run_plain_and_say_so() -> None:
    pair = find_pair("someone/model", None)
    assert (pair.target, pair.drafter, pair.thinking, pair.expected) == ("someone/model", None, None, ())
    assert "--draft" in pair.note


@pytest.mark.parametrize(("model", "draft"), [("qwen3-8", None), ("qwen3-8b", "nome"), ("./no", None)])
def test_what_does_not_exist_is_a_usage_error(model: str, draft: str | None) -> None:
    with pytest.raises(UsageError):
        find_pair(model, draft)


def test_names_are_known_without_heavy_imports() -> None:
    code = "import sys, dflash_cli.models; print({'torch', 'numpy', 'rich', 'huggingface_hub'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


@pytest.mark.parametrize("text", ["SmolLM2-135M", "smollm2-135m", "SMOLLM2-135M"])
def test_upper_case_does_not_matter_in_an_alias(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_pair(text, None) is PAIRS["smollm2-135m"]
    assert find_pair("qwen3-8b", text).drafter == "embedded:smollm2-135m-drafter"
    assert find_pair(text, "None").drafter is None
    (tmp_path / "SmolLM2-135M").mkdir()
    is_folder = (tmp_path / text).exists() and text != "smollm2-135m"
    assert (find_pair(text, None).target == text) is is_folder
