"""The README says what is: its tree, its JSON table and its Python lines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dflash_cli.models import PAIRS
from tests.test_run import KEYS, TIMINGS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["backends", "dflash_cli"])
def test_the_tree_names_every_module_and_no_other(package: str) -> None:
    start = README.index(f"\n{package}/ ")
    end = README.index("\ntests/ " if package == "dflash_cli" else "\ndflash_cli/ ", start)
    named = set(re.findall(r"\b\w+\.py\b", README[start:end]))
    there = {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py"}
    assert named == there


def test_the_json_table_has_every_key() -> None:
    table = README[README.index("| key | meaning |") : README.index("`first_difference` is null")]
    documented = re.findall(r"`(\w+)`", table)
    missing = [key for key in [*KEYS, *TIMINGS, "tau", "rate", "lengths", "identical"] if key not in documented]
    assert not missing


def test_every_alias_is_in_the_table() -> None:
    for alias in PAIRS:
        assert f"| `{alias}` |" in README


def test_the_python_lines_are_python() -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code) == 1
    ast.parse(code[0])


def test_install_and_test_lines_are_what_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'pip install -e . && echo "Why is the sky blue?" | dflash run -' in README
    assert "pip install -e '.[test]' && pytest" in README
    assert "'.[test]'" in script
    assert script.rstrip().endswith("pytest")
