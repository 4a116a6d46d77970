from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from dflash_cli import models_command as command
from dflash_cli.models import PAIRS


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "cache" / "dflash" / "models" / "smollm2-135m-b179c9523d0e-v1"
    folder.mkdir(parents=True)
    sizes = dict.fromkeys(("config.json", "model.safetensors", "tokenizer.json"), 10**6)
    sizes["config.json"] -= len(json.dumps(sizes)) - 1  # one digit less: 3 MB with the list of sizes itself
    for name, size in sizes.items():
        (folder / name).write_bytes(b"x" * size)
    (folder / "sizes.json").write_text(json.dumps(sizes))
    return folder


def test_plain_table_when_piped() -> None:
    result = CliRunner().invoke(command.models_command)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["alias", "target", "drafter", "expected", "acceptance", "length"]
    assert [line.split()[0] for line in lines[1:5]] == list(PAIRS)
    assert "embedded:smollm2-135m (cached, 3 MB)" in lines[1]
    assert "Qwen/Qwen3-8B (not cached)" in result.stdout
    assert "math 4.7-7.9" in result.stdout
    assert "Table 1" in result.stdout
    assert "Default: qwen3-8b with 22 GB" in result.stdout
    assert result.stdout.isascii() or "±" in result.stdout
    assert "│" not in result.stdout


def test_json(caches: Path) -> None:
    report = json.loads(CliRunner().invoke(command.models_command, ["--json"]).stdout)
    assert [model["alias"] for model in report["models"]] == list(PAIRS)
    small, qwen = report["models"][:2]
    assert small["target"] == {
        "source": "embedded:smollm2-135m",
        "cached": True,
        "bytes": 3 * 10**6,
        "path": str(caches),
    }
    assert qwen["target"] == {"source": "Qwen/Qwen3-4B", "cached": False, "bytes": None, "path": None}
    assert qwen["expected"]["chat"] == [4.0, 4.4]
    assert qwen["thinking"] is False
    assert report["cache"] == str(caches.parent)


def test_table_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    command.models_command.main([], standalone_mode=False)
    out = capsys.readouterr().out
    assert "│" in out
    assert all(alias in out for alias in PAIRS)


def test_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    result = CliRunner().invoke(command.models_command)
    assert "embedded:smollm2-135m (not cached)" in result.stdout
    assert not (tmp_path / "nothing").exists()


def test_it_imports_no_torch() -> None:
    code = (
        "import sys; from dflash_cli.models_command import models_command as m; m.main([], standalone_mode=False)\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.splitlines()[-1] == "set()"
