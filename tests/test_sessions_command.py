"""`dflash sessions`, as whole commands."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from dflash_cli.session_store import SessionStore
from tests.command import Command
from tests.sessions import ROOT, saved, turn

PAIR = b'{"type":"pair","pair":"qwen3-8b","target":"Qwen/Qwen3-8B","drafter":null,"settings":{}}\n'


@pytest.fixture
def run(capfd: Any) -> Command:
    return Command("sessions", capfd)


@pytest.fixture
def store() -> SessionStore:
    return SessionStore()


def age(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"garbage\n" + PAIR)


def test_without_a_command_it_helps(run: Command) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in ("list", "show", "export", "delete"))
    assert run("lst")[0] == 2


def test_list(run: Command, store: SessionStore) -> None:
    assert run("list") == (0, "", f"dflash: no chat is saved in {store.folder}\n")
    age(saved(store, "日本", turn("one\ntwo \x1b[2J"), turn("three")), 100)
    path = saved(store, "a longer name")
    path.write_bytes(path.read_bytes() + PAIR)
    age(path, 200)
    code, out, err = run("list")
    heading, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert heading.split() == ["name", "changed", "turns", "pair", "first", "prompt"]
    assert first.startswith("a longer name  ")
    assert first.split()[-3:] == ["1", "qwen3-8b", "What?"]
    assert second.startswith("日本           ")  # as wide as the other
    assert second.endswith("one two ␛[2J")


def test_list_on_a_terminal(run: Command, store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(store, "x", turn("\x1b]0;title\x07" + "日本" * 40))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run("list")
    assert "\x1b" not in out
    assert "␛]0;title␇日本" in out
    assert max(map(cell_len, out.splitlines())) in (59, 60)  # a wide character may not fit


def test_list_as_json(run: Command, store: SessionStore) -> None:
    assert run("list", "--json") == (0, "[]\n", "")
    path = saved(store, "x", turn("one"))
    path.write_bytes(path.read_bytes() + PAIR)
    age(path, 0)
    (found,) = json.loads(run("list", "--json")[1])
    assert found.pop("created").endswith("Z")
    assert found == {
        "name": "x",
        "path": str(path),
        "changed": "1970-01-01T00:00:00Z",
        "num_turns": 1,
        "pair": "qwen3-8b",
        "target": "Qwen/Qwen3-8B",
        "prompt": "one",
        "problem": "",
    }


def test_list_tells_what_is_wrong(run: Command, store: SessionStore) -> None:
    damage(saved(store, "x"))
    code, out, _ = run("list")
    assert code == 0
    assert "[line 3: it is not JSON (" in out


def test_show(run: Command, store: SessionStore) -> None:
    log = store.open_new("x")
    log._add({"type": "system", "system": "Be brief."})
    log.append_turn(turn("one\ntwo", "First.\n"))
    log.append_turn(turn("three", "Sec\u2028ond \x1b[2J", reason="interrupted"))
    log.close()
    text = "[system] Be brief.\n\n> one\n> two\nFirst.\n\n> three\nSec\u2028ond \x1b[2J\n[interrupted]\n"
    assert run("show", "x") == (0, text, "")


def test_show_on_a_terminal(run: Command, store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(store, "x", turn("p\x1b[31m", "a\u202eb\x9b"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run("show", "x")[1] == "> p␛[31m\na<U+202E>b<U+009B>\n"


def test_show_and_export_halves_of_characters(run: Command, store: SessionStore) -> None:
    saved(store, "x", turn("\ud800", "\udfff"))
    assert run("show", "x") == (0, "> ?\n?\n", "")
    assert json.loads(run("show", "x", "--json")[1])["turns"][0]["prompt"] == "\ud800"
    assert run("export", "x", "-")[0] == 0


def test_a_row_stays_a_row(run: Command, store: SessionStore) -> None:
    path = saved(store, "x", turn("one"))
    path.write_bytes(path.read_bytes() + b'{"type":"pair","pair":"a\\n\\tb"}\n')
    assert run("list")[1].splitlines()[1].split()[-3:] == ["a", "b", "one"]
    assert len(run("list")[1].splitlines()) == 2


def test_show_what_can_be_read(run: Command, store: SessionStore) -> None:
    path = saved(store, "x", turn("one", "First."))
    damage(path)
    code, out, err = run("show", "x")
    assert (code, out) == (1, "> one\nFirst.\n")
    assert err.startswith(f"dflash: error: line 3 of {path} is damaged: it is not JSON")
    assert err.endswith("; only what comes before it could be read (1 turn)\n")


def test_show_what_is_not_there(run: Command, store: SessionStore) -> None:
    saved(store, "Fibonacci")
    assert run("show", "fibonacci") == (
        2, "", "dflash: error: there is no saved chat 'fibonacci'; did you mean 'Fibonacci'?\n"
    )  # fmt: skip
    assert run("show", "../../etc/passwd")[0] == 2


def test_show_as_json(run: Command, store: SessionStore) -> None:
    path = saved(store, "x", turn("one", "First."))
    path.write_bytes(path.read_bytes() + PAIR)
    code, out, err = run("show", "x", "--json")
    page = json.loads(out)
    assert (code, err) == (0, "")
    assert [page[key] for key in ("title", "model", "system")] == ["x", "qwen3-8b", None]
    assert [(each["prompt"], each["answer"]) for each in page["turns"]] == [("one", "First.")]


def test_export(run: Command, store: SessionStore, tmp_path: Path) -> None:
    saved(store, "x", turn("one", "First."), turn("two", "Second."))
    page, table = tmp_path / "x.md", tmp_path / "x.json"
    assert run("export", "x", str(page)) == (0, "", f"dflash: 2 turns written to {page}\n")
    assert run("export", "x", str(table))[0] == 0
    assert run("export", "x", "-") == (0, page.read_text(encoding="utf-8"), "")
    assert run("show", "x", "--json")[1] == table.read_text(encoding="utf-8")
    assert "## You\n\none\n\n## Answer\n\nFirst." in page.read_text(encoding="utf-8")


def test_export_where_it_cannot(run: Command, store: SessionStore, tmp_path: Path) -> None:
    damage(saved(store, "x", turn("one", "First.")))
    page = tmp_path / "x.md"
    code, _, err = run("export", "x", str(page))
    assert code == 1
    assert "1 turn written to" in err
    assert err.endswith("; only what comes before it could be read (1 turn)\n")
    assert "First." in page.read_text(encoding="utf-8")
    page.write_text("mine")
    assert "exists and is not overwritten; name another file, or add --force" in run("export", "x", str(page))[2]
    assert page.read_text() == "mine"
    run("export", "x", str(page), "--force")
    assert "First." in page.read_text(encoding="utf-8")
    assert run("export", "x", "x.txt")[0] == 2
    assert run("export", "y", "x.md")[0] == 2


def test_delete(run: Command, store: SessionStore) -> None:
    for name in ("a", "b", "c"):
        saved(store, name)
    code, _, err = run("delete", "a")
    assert code == 2
    assert err == (
        "dflash: error: nobody is here to be asked whether to delete the chat 'a'; --yes deletes without asking\n"
    )
    assert run("delete", "--yes", "a", "zz")[0] == 2
    assert sorted(store.names()) == ["a", "b", "c"]
    assert run("delete", "a", "b", "--yes") == (0, "", "dflash: deleted 2 chats (a, b)\n")
    assert store.names() == ["c"]


@pytest.mark.parametrize(("answer", "left"), [("y\n", []), ("n\n", ["a"]), ("\n", ["a"])])
def test_delete_asks(
    run: Command, store: SessionStore, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    saved(store, "a")
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    monkeypatch.setattr("dflash_cli.sessions_command.is_terminal", lambda stream: True)
    code, out, err = run("delete", "a")
    assert (code, out) == (0, "")
    assert err.startswith("Delete the chat 'a' for good? [y/N]: ")
    assert store.names() == left


def test_delete_refuses_what_is_open(run: Command, store: SessionStore) -> None:
    saved(store, "a")
    log = store.resume("a")
    code, _, err = run("delete", "a", "--yes")
    assert code == 1
    assert "the chat 'a' is open in another dflash" in err
    log.close()
    assert store.names() == ["a"]


def test_a_thousand_chats(run: Command, store: SessionStore) -> None:
    path = saved(store, "first", *(turn(f"prompt {number}", "answer " * 500) for number in range(20)))
    data = path.read_bytes()
    for number in range(1000):
        (store.folder / f"n{number}.jsonl").write_bytes(data)
    begun = time.perf_counter()
    code, out, _ = run("list")
    assert (code, len(out.splitlines())) == (0, 1002)
    assert time.perf_counter() - begun < 10  # decoding every turn would take longer


def test_it_imports_no_torch(store: SessionStore) -> None:
    saved(store, "x")
    code = (
        "import sys; from dflash_cli.cli import main\n"
        "for args in ('list', 'show x', 'show x --json', 'export x -', 'delete x --yes'):\n"
        "    assert main(['sessions', *args.split()]) == 0\n"
        "print({'torch', 'transformers', 'prompt_toolkit', 'numpy'} & set(sys.modules))"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert out.splitlines()[-1] == "set()"
