"""A drafter to a simulated hub: what is sent, who may see it, and every refusal before any work."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors
from huggingface_hub.utils import filter_repo_objects

from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.train.push import check_hub, push
from dflash_cli.train.report import Reporter
from dflash_cli.train.saved_chats import SOURCE
from dflash_cli.train.sittings import FILE, Sitting, record

ALL = {"config.json", "model.safetensors", "draft_vocabulary.safetensors", "README.md"}


class Hub:
    """Repositories by name: their files, tags, and whether they are private. `who`: what the token is."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, Any]] = {}
        self.who: dict[str, Any] = {
            "name": "ann",
            "orgs": [{"name": "lab", "roleInOrg": "write"}, {"name": "club", "roleInOrg": "read"}],
            "auth": {"accessToken": {"displayName": "laptop", "role": "write"}},
        }
        self.error: Exception | None = None

    def whoami(self) -> dict[str, Any]:
        self._fail()
        return self.who

    def model_info(self, repo: str) -> Any:
        if repo not in self.repos:
            raise errors.RepositoryNotFoundError("404", response=response(404))
        held = self.repos[repo]
        siblings = [SimpleNamespace(rfilename=name) for name in held["files"]]
        return SimpleNamespace(siblings=siblings, tags=held["tags"], private=held["private"])

    def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self._fail()
        self.repos.setdefault(repo, {"files": {}, "tags": [], "private": private})

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, allow_patterns: list[str], delete_patterns: list[str],
        commit_message: str,
    ) -> Any:  # fmt: skip
        names = [str(path.relative_to(folder_path)) for path in folder_path.rglob("*") if path.is_file()]
        files = self.repos[repo_id]["files"]
        for name in filter_repo_objects(list(files), allow_patterns=delete_patterns):
            del files[name]
        for name in filter_repo_objects(names, allow_patterns=allow_patterns):
            files[name] = (folder_path / name).read_bytes()
        self.repos[repo_id]["tags"] = ["dflash"]  # as the card says
        return SimpleNamespace(repo_url=f"https://huggingface.co/{repo_id}")

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


def response(status: int) -> Any:
    return SimpleNamespace(status_code=status, headers={}, request=None, url="https://hub")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    def refuse(*_: object) -> None:
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    found = Hub()
    for name in ("whoami", "model_info", "create_repo", "upload_folder"):
        monkeypatch.setattr(huggingface_hub.HfApi, name, staticmethod(getattr(found, name)))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trained drafter with its work beside it."""
    for name in (*ALL, "notes.txt", "work/config.json", "work/checkpoint.safetensors", "work/README.md"):
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "out" / name).write_text(f"my {name}")
    return tmp_path / "out"


def check(repo: str, **given: bool) -> None:
    check_hub(repo, public=given.get("public", False), offline=given.get("offline", False))


def test_the_drafter_is_sent_without_its_work(hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("lab/drafter")
    assert hub.repos == {}  # asked, and nothing made
    push(folder, "lab/drafter", Reporter(), public=False)
    assert set(hub.repos["lab/drafter"]["files"]) == ALL
    assert hub.repos["lab/drafter"]["files"]["config.json"] == b"my config.json"
    assert "pushed to https://huggingface.co/lab/drafter (private)" in capsys.readouterr().err


def test_what_an_earlier_drafter_had_more_goes(hub: Hub, folder: Path) -> None:
    push(folder, "ann/drafter", Reporter(quiet=True), public=True)
    assert not hub.repos["ann/drafter"]["private"]
    hub.repos["ann/drafter"]["files"]["LICENSE"] = b"theirs"
    (folder / "draft_vocabulary.safetensors").unlink()
    push(folder, "ann/drafter", Reporter(quiet=True), public=True)
    assert set(hub.repos["ann/drafter"]["files"]) == ALL - {"draft_vocabulary.safetensors"} | {"LICENSE"}


@pytest.mark.parametrize(
    "repo", ["drafter", "a/b/c", "lab/dr@main", "lab/a--b", "lab/x.git", "https://hf.co/lab/x", ""]
)
def test_names_that_no_repository_has(hub: Hub, repo: str) -> None:
    with pytest.raises(UsageError, match="--push-to-hub"):
        check(repo)


def test_offline_is_told_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DFlashError, match="needs the network"):
        check("lab/drafter", offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DFlashError, match="needs the network"):
        check("lab/drafter")


FAILURES = [
    (errors.LocalTokenNotFoundError("none"), "log in with `hf auth login`, or set HF_TOKEN"),
    (errors.HfHubHTTPError("401", response=response(401)), "the hub does not know this token"),
    (errors.HfHubHTTPError("403", response=response(403)), "answered 403 for lab/drafter: its token may not write"),
    (errors.HfHubHTTPError("503", response=response(503)), "answered 503 for lab/drafter: try again later"),
    (ConnectionError("no route\nto host"), r"\(ConnectionError: no route\); check the network"),
]


@pytest.mark.parametrize(("error", "words"), FAILURES, ids=[words for _, words in FAILURES])
def test_what_the_hub_says_is_one_line(hub: Hub, folder: Path, error: Exception, words: str) -> None:
    hub.error = error
    for act in (lambda: check("lab/drafter"), lambda: push(folder, "lab/drafter", Reporter(quiet=True), public=False)):
        with pytest.raises(DFlashError, match=words) as caught:
            act()
        assert "\n" not in str(caught.value)


def test_a_token_without_rights(hub: Hub) -> None:
    for owner in ("ann", "lab"):
        check(f"{owner}/drafter")
    for owner in ("club", "bob"):
        with pytest.raises(DFlashError, match=rf"ann cannot write to {owner} on the hub; expected one of ann, lab$"):
            check(f"{owner}/drafter")
    hub.who["auth"]["accessToken"]["role"] = "read"
    with pytest.raises(DFlashError, match="the token 'laptop' of ann can only read"):
        check("ann/drafter")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin", "Q4/model.Q4_0.GGUF"])
def test_what_is_there_is_not_replaced_or_shown_by_mistake(hub: Hub, folder: Path, weights: str) -> None:
    hub.repos["ann/chat"] = {"files": {weights: b""}, "tags": ["transformers"], "private": True}
    for act in (lambda: check("ann/chat"), lambda: push(folder, "ann/chat", Reporter(quiet=True), public=False)):
        with pytest.raises(DFlashError, match="holds weights and is not tagged 'dflash'; choose another name"):
            act()
    hub.repos["ann/old"] = {"files": {"model.safetensors": b""}, "tags": ["dflash"], "private": False}
    with pytest.raises(DFlashError, match="is public; add --public"):
        check("ann/old")
    check("ann/old", public=True)


def test_a_repository_that_became_public_during_the_training_gets_nothing(hub: Hub, folder: Path) -> None:
    check("ann/drafter")
    hub.repos["ann/drafter"] = {"files": {}, "tags": [], "private": False}
    with pytest.raises(DFlashError, match="is public; add --public"):
        push(folder, "ann/drafter", Reporter(quiet=True), public=False)
    assert hub.repos["ann/drafter"]["files"] == {}
    assert (folder / "model.safetensors").is_file()


def test_nothing_to_push(hub: Hub, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(DFlashError, match="there is no drafter to push yet"):
        push(folder, "ann/drafter", Reporter(quiet=True), public=False)
    assert hub.repos == {}


def test_what_learned_from_saved_chats_goes_to_no_public_place(hub: Hub, folder: Path) -> None:
    """Nor what an earlier sitting learned from them."""
    private, own = Sitting(1, 2, 3.0, "m", "c", {SOURCE: 4}, []), Sitting(1, 2, 3.0, "m", "c", {"sums": 4}, [])
    (folder / FILE).write_bytes(record([private, own]))
    with pytest.raises(UsageError, match="learned from saved chats and may repeat them; leave --public out"):
        push(folder, "ann/drafter", Reporter(quiet=True), public=True)
    assert hub.repos == {}
    push(folder, "ann/drafter", Reporter(quiet=True), public=False)
    assert hub.repos["ann/drafter"]["private"]
    (folder / FILE).write_bytes(record([own]))
    push(folder, "ann/other", Reporter(quiet=True), public=True)
    assert not hub.repos["ann/other"]["private"]
