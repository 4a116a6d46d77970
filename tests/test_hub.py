from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from dflash_cli.errors import DFlashError
from dflash_cli.fetch import cached, fetch, size_on_disk

COMMIT = "0123456789012345678901234567890123456789"
SHAPE = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 9}
TARGET = {
    "config.json": json.dumps(SHAPE | {"model_type": "llama"}),
    "tokenizer.json": "{}",
    "model.safetensors": "weights",
}
DRAFTER = {"config.json": '{"dflash_config": {}}', "model.safetensors": "weights"}


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""

    def refuse(*_args: object) -> None:
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def fill(hub: Path, repo: str, files: dict[str, str], revision: str = "main") -> Path:
    """Put files into the cache the way the hub's client lays them out."""
    storage = hub / f"models--{repo.replace('/', '--')}"
    snapshot = storage / "snapshots" / COMMIT
    for folder in (storage / "refs", storage / "blobs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    (storage / "refs" / revision).write_text(COMMIT)
    for name, text in files.items():
        (storage / "blobs" / name).write_text(text)
        if not (snapshot / name).is_symlink():
            (snapshot / name).symlink_to(storage / "blobs" / name)
    return snapshot


def remote(monkeypatch: pytest.MonkeyPatch, hub: Path, files: dict[str, str]) -> list[list[str]]:
    """A hub that has `files`; returns the list of allowed patterns of each download."""
    siblings = [SimpleNamespace(rfilename=name, size=len(text)) for name, text in files.items()]
    downloads: list[list[str]] = []
    real = huggingface_hub.snapshot_download

    def download(repo: str, *, allow_patterns: list[str], local_files_only: bool = False, **options: Any) -> str:
        if local_files_only:
            return real(repo, allow_patterns=allow_patterns, local_files_only=True, **options)
        downloads.append(allow_patterns)
        options.pop("revision")
        wanted = huggingface_hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns, **options)
        return str(fill(hub, repo, {name: files[name] for name in wanted}))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_a, **_k: SimpleNamespace(siblings=siblings))
    return downloads


def test_what_is_cached_needs_no_network(hub: Path) -> None:
    target, drafter = fill(hub, "org/target", TARGET), fill(hub, "org/drafter", DRAFTER)
    assert fetch("org/target", offline=False, quiet=True) == target == cached("org/target")
    assert fetch("org/drafter", offline=True, quiet=True) == drafter
    assert size_on_disk(target) == sum(map(len, TARGET.values()))


def test_revisions_are_kept_apart(hub: Path) -> None:
    folder = fill(hub, "org/target", TARGET, revision="v2")
    assert cached("org/target@v2") == folder
    assert cached(f"org/target@{COMMIT}") == folder
    assert cached("org/target") is None


@pytest.mark.parametrize("missing", sorted(TARGET))
def test_a_cache_that_lacks_a_file_is_not_whole(hub: Path, missing: str) -> None:
    fill(hub, "org/target", {name: text for name, text in TARGET.items() if name != missing})
    assert cached("org/target") is None


def test_a_cache_that_lacks_a_shard_is_not_whole(hub: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files = TARGET | {"model.safetensors.index.json": json.dumps(index), "model-1.safetensors": "x"}
    fill(hub, "org/target", files)
    assert cached("org/target") is None


def test_offline_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DFlashError, match=r"not in the hub's cache.*hf download org/target"):
        fetch("org/target", offline=True, quiet=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DFlashError, match="not in the hub's cache"):
        fetch("org/target", offline=False, quiet=True)


def test_download_takes_only_what_is_needed(
    hub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"chat_template.jinja": "t", "generation_config.json": "{}", "tokenizer_config.json": "{}"}
    unwanted = {
        "pytorch_model.bin": "pickle",
        "modeling.py": "code",
        "README.md": "",
        "original/model.safetensors": "again",
        "consolidated.safetensors": "again",
    }
    downloads = remote(monkeypatch, hub, TARGET | more | unwanted)
    folder = fetch("org/target", offline=False, quiet=False)
    assert capsys.readouterr() == ("", "dflash: fetching org/target (0 MB, once)\n")
    assert {path.name for path in folder.iterdir()} == set(TARGET | more)
    assert not any("safetensors" in pattern for pattern in downloads[0])
    assert len(downloads) == 2
    fetch("org/target", offline=False, quiet=False)
    assert len(downloads) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config.json": json.dumps(SHAPE | {"model_type": "gemma3"})}, "cannot be used: .*'gemma3'"),
        ({"config.json": '{"dflash_config": {}}'}, "cannot be used: config.json has no"),
        ({"tokenizer.json": None}, r"no tokenizer\.json"),
    ],
)
def test_models_that_cannot_run_are_not_fetched(
    hub: Path, monkeypatch: pytest.MonkeyPatch, change: dict, message: str
) -> None:
    files = {name: text for name, text in (TARGET | change).items() if text is not None}
    downloads = remote(monkeypatch, hub, files)
    with pytest.raises(DFlashError, match=message):
        fetch("org/target", offline=False, quiet=True)
    assert len(downloads) == 1


def test_a_repository_with_pickles_only(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = remote(monkeypatch, hub, {"config.json": "{}", "pytorch_model.bin": "pickle"})
    with pytest.raises(DFlashError, match="pickle files are never loaded"):
        fetch("org/target", offline=False, quiet=True)
    assert not downloads


def test_too_little_space(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = remote(monkeypatch, hub, TARGET)
    usage = SimpleNamespace(free=3)
    monkeypatch.setattr("dflash_cli.model_store.shutil.disk_usage", lambda _path: usage)
    with pytest.raises(DFlashError, match=r"not enough disk space.*HF_HOME"):
        fetch("org/target", offline=False, quiet=True)
    assert not downloads


def answer(status: int) -> Any:
    return SimpleNamespace(status_code=status, headers={}, request=None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.GatedRepoError("x", response=answer(403)),
            f"is gated: accept its terms on {constants.ENDPOINT}/org/t",
        ),
        (errors.RepositoryNotFoundError("x", response=answer(404)), "the hub has no model org/t, or it is private"),
        (errors.RevisionNotFoundError("x", response=answer(404)), "org/t has no revision 'v9'"),
        (errors.HfHubHTTPError("x", response=answer(401)), "answered 401 for org/t: log in"),
        (errors.HfHubHTTPError("x", response=answer(503)), "answered 503 for org/t: try again later"),
        (ConnectionError("no route\nto host"), "could not fetch org/t .*no route.*Check the network"),
        (OSError(28, "No space left on device"), "the disk is full.*HF_HOME"),
    ],
)
def test_errors_are_one_line_with_advice(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(DFlashError, match=message) as caught:
        fetch("org/t@v9", offline=False, quiet=True)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error
