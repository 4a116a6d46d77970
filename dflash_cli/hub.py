"""Checkpoints from the Hugging Face hub: the local cache first, and never a pickle or a script."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_cli.checkpoint_folder import has_tokenizer, problem_with, read_json
from dflash_cli.errors import DFlashError
from dflash_cli.fetch_progress import file_sizes, megabytes, progress, watching
from dflash_cli.model_store import DISK_FULL, check_space

if TYPE_CHECKING:
    from dflash_cli.sources import Source

SMALL_FILES = ["config.json", "generation_config.json", "tokenizer*.json", "chat_template.jinja"]
WEIGHT_FILES = ["*.safetensors", "model.safetensors.index.json"]
WANTED = SMALL_FILES + WEIGHT_FILES
LEFT_OUT = ["*/*", "consolidated*"]  # second copies of the weights in other layouts


def cached_snapshot(source: Source) -> Path | None:
    """The folder of a hub id in the hub's own cache, or None where something needed is not there. No network."""
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            source.repo,
            revision=source.revision,
            allow_patterns=WANTED,
            ignore_patterns=LEFT_OUT,
            local_files_only=True,
        )
    except (OSError, ValueError):
        return None
    folder = Path(found)
    # The revision main may have moved on; what is cached is what was used before, and stays in use.
    return folder if problem_with(folder) is None and has_tokenizer(folder) else None


def fetch_snapshot(source: Source, *, offline: bool, quiet: bool) -> Path:
    """The folder of a hub id, downloaded where the cache lacks it. Raises DFlashError with advice."""
    found = cached_snapshot(source)
    if found is not None:
        return found
    if offline or hub_is_offline():
        raise DFlashError(
            f"{source.text} is not in the hub's cache and must not be fetched offline. Run once without --offline and "
            f"HF_HUB_OFFLINE, or run `hf download {source.repo}` where the hub is reachable and copy its cache"
        )
    with explained(partial(_explanation, source)):
        return _download(source, quiet=quiet)


def hub_is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _download(source: Source, *, quiet: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # ours below is the one that is shown
    sizes = _remote_sizes(source)
    total = sum(sizes.values())
    blobs = _blobs(source)
    before = sum(file_sizes(blobs))
    _check_hub_space(blobs, total - before)
    with (
        progress(f"fetching {source.text} ({megabytes(total)}, once)", quiet=quiet) as advance,
        watching(lambda: sum(file_sizes(blobs)) - before, total, advance),
    ):
        # Weights come last: a cache that has them has the small files, too.
        small = snapshot_download(
            source.repo, revision=source.revision, allow_patterns=SMALL_FILES, ignore_patterns=LEFT_OUT
        )
        _check_supported(source, Path(small))
        folder = snapshot_download(
            source.repo, revision=source.revision, allow_patterns=WANTED, ignore_patterns=LEFT_OUT
        )
    problem = problem_with(Path(folder))
    if problem is not None:
        raise DFlashError(f"{source.text} on the hub {problem}")
    return Path(folder)


def _check_supported(source: Source, folder: Path) -> None:
    """Refuse a model that cannot run before gigabytes of it are fetched."""
    from backends.config import CheckpointError, DrafterConfig, TargetConfig, is_drafter

    if not has_tokenizer(folder):
        raise DFlashError(f"{source.text} on the hub has no tokenizer.json; use a repository that has one")
    config = read_json(folder / "config.json") or {}
    try:
        (DrafterConfig if is_drafter(config) else TargetConfig).from_dict(config)
    except CheckpointError as err:
        raise DFlashError(f"{source.text} on the hub cannot be used: {err}") from err


def _remote_sizes(source: Source) -> dict[str, int]:
    """Bytes of each file to fetch. Raises DFlashError for a repository without what is needed."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(source.repo, revision=source.revision, files_metadata=True)
    names = {file.rfilename: file.size or 0 for file in info.siblings or []}
    wanted = {name: size for name, size in names.items() if _matches(name, WANTED)}
    wanted = {name: size for name, size in wanted.items() if not _matches(name, LEFT_OUT)}
    if "config.json" not in wanted or not any(name.endswith(".safetensors") for name in wanted):
        raise DFlashError(
            f"{source.text} on the hub has no config.json with *.safetensors weights (pickle files are never loaded); "
            "use another repository, or download its .gguf file and pass the path"
        )
    return wanted


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _blobs(source: Source) -> Path:
    """Where the hub's cache keeps a repository's files, finished or not."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{source.repo.replace('/', '--')}" / "blobs"


def _check_hub_space(blobs: Path, needed_bytes: int) -> None:
    existing = next(parent for parent in blobs.parents if parent.exists())
    check_space(existing, max(0, needed_bytes), "HF_HOME")


@contextmanager
def explained(explanation: Callable[[Exception], DFlashError]) -> Iterator[None]:
    """Whatever the hub's client raises, as one line with advice."""
    try:
        yield
    except DFlashError:
        raise
    except Exception as err:  # the client's HTTP library differs between its versions
        raise explanation(err) from err


def _explanation(source: Source, err: Exception) -> DFlashError:
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{source.repo}"
    if isinstance(err, errors.GatedRepoError):
        return DFlashError(f"{source.repo} is gated: accept its terms on {page} and log in with `hf auth login`")
    if isinstance(err, errors.RevisionNotFoundError):
        return DFlashError(f"{source.repo} has no revision {source.revision!r}; see {page}/tree/main")
    if isinstance(err, errors.RepositoryNotFoundError):
        return DFlashError(
            f"the hub has no model {source.repo}, or it is private: check the name, or log in with `hf auth login`"
        )
    if isinstance(err, errors.HfHubHTTPError):
        status = err.response.status_code
        advice = "log in with `hf auth login`" if status in (401, 403) else "try again later"
        return DFlashError(f"the hub answered {status} for {source.repo}: {advice}")
    if isinstance(err, OSError) and err.errno in DISK_FULL:
        return DFlashError(
            f"the disk is full: {_blobs(source)} cannot take {source.repo}. Free some space, or put the hub's cache on "
            "another disk with HF_HOME; the download is taken up again where it stopped"
        )
    first_line = (str(err).strip() or type(err).__name__).splitlines()[0]
    return DFlashError(
        f"could not fetch {source.repo} from the hub ({type(err).__name__}: {first_line}). Check the network; a folder "
        "or a .gguf file works without it, and so does --model smollm2-135m, which comes from the package index"
    )
