"""A trained drafter to a repository on the Hugging Face hub. What can fail is asked before hours of training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backends import DRAFT_VOCABULARY
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.fetch_progress import megabytes
from dflash_cli.hub import explained, hub_is_offline
from dflash_cli.sources import HUB_ID
from dflash_cli.train.report import Reporter
from dflash_cli.train.saved_chats import SOURCE
from dflash_cli.train.sittings import FILE as RECORD
from dflash_cli.train.sittings import Sitting, recorded_sittings

FILES = ("config.json", "model.safetensors", DRAFT_VOCABULARY, RECORD, "README.md")
TAG = "dflash"
WEIGHTS = (".safetensors", ".gguf", ".bin")
WRITERS = ("admin", "write", "contributor")


def check_hub(repo: str, *, public: bool, offline: bool) -> None:
    """Raises DFlashError where `repo` could not be written: its name, the network, the token, its rights.

    Nothing is made on the hub. A repository that everyone can see needs `public`.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if (match := HUB_ID.fullmatch(repo)) is None or match["revision"] is not None:
        raise UsageError(f"--push-to-hub {repo!r}: expected OWNER/NAME")
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"--push-to-hub {repo!r}: {error}") from None
    if offline or hub_is_offline():
        raise DFlashError("--push-to-hub needs the network: leave out --offline and HF_HUB_OFFLINE, or push later")
    api = HfApi()
    with explained(partial(_explanation, repo)):
        _check_rights(repo, api.whoami())
        try:
            info = api.model_info(repo)
        except RepositoryNotFoundError:
            return
        _check_contents(repo, info, public)


def check_sittings(sittings: Sequence[Sitting], folder: Path, *, public: bool) -> None:
    """Raises UsageError where everyone would see the drafter in `folder`, and it has learned from saved chats."""
    if public and any(SOURCE in each.data for each in sittings):
        raise UsageError(
            f"--public: the drafter in {folder} learned from saved chats and may repeat them; leave --public out"
        )


def push(folder: Path, repo: str, report: Reporter, *, public: bool) -> None:
    """Put the files of the drafter in `folder` on the hub, in one commit. Raises DFlashError; `folder` stays.

    UsageError where it learned from saved chats, as far as is recorded, and everyone would see it.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    if missing := [name for name in ("config.json", "model.safetensors") if not (folder / name).is_file()]:
        raise DFlashError(f"{folder} has no {missing[0]}: there is no drafter to push yet")
    if public:
        check_sittings(recorded_sittings(folder), folder, public=public)
    size = sum((folder / name).stat().st_size for name in FILES if (folder / name).is_file())
    report.tell(f"pushing {megabytes(size)} to {repo}")
    api = HfApi()
    with explained(partial(_explanation, repo)):
        api.create_repo(repo, private=not public, exist_ok=True)
        # One that was there stays as it was, and may have changed since it was asked, hours ago.
        _check_contents(repo, api.model_info(repo), public)
        # Of an earlier drafter nothing may stay that this one does not have.
        names = list(FILES)
        done = api.upload_folder(
            repo_id=repo, folder_path=folder, allow_patterns=names, delete_patterns=names,
            commit_message="DFlash drafter",
        )  # fmt: skip
        private = api.model_info(repo).private
    report.tell(f"pushed to {done.repo_url} ({'private' if private else 'public'})")


def _check_rights(repo: str, who: dict[str, Any]) -> None:
    """Refuse what the token says it cannot do; what a fine-grained one can, only the hub knows."""
    token = who.get("auth", {}).get("accessToken", {})
    if token.get("role") == "read":
        name = token.get("displayName", "in use")
        raise DFlashError(f"the token {name!r} of {who['name']} can only read: log in with one that can write")
    owner = repo.partition("/")[0]
    roles = {each["name"]: each.get("roleInOrg") for each in who.get("orgs", [])}
    if owner == who["name"] or token.get("role") == "fineGrained":
        return
    if owner not in roles or roles[owner] not in (None, *WRITERS):
        owners = [who["name"], *(name for name, role in roles.items() if role in (None, *WRITERS))]
        raise DFlashError(f"{who['name']} cannot write to {owner} on the hub; expected one of {', '.join(owners)}")


def _check_contents(repo: str, info: Any, public: bool) -> None:
    """A model that is no drafter is not replaced, and what is meant to be private is shown to no one."""
    weights = any(each.rfilename.lower().endswith(WEIGHTS) for each in info.siblings or [])
    if weights and TAG not in (info.tags or []):
        raise DFlashError(f"{repo} on the hub holds weights and is not tagged {TAG!r}; choose another name")
    if not info.private and not public:
        raise DFlashError(f"{repo} on the hub is public; add --public to push there, or choose another name")


def _explanation(repo: str, error: Exception) -> DFlashError:
    from huggingface_hub import errors

    if isinstance(error, errors.LocalTokenNotFoundError):
        return DFlashError(f"to push to {repo}, log in with `hf auth login`, or set HF_TOKEN")
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status == 401:
            return DFlashError("the hub does not know this token: log in with `hf auth login`, or set another HF_TOKEN")
        advice = "its token may not write there" if status in (403, 404) else "try again later"
        return DFlashError(f"the hub answered {status} for {repo}: {advice}")
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return DFlashError(f"could not push to {repo} ({type(error).__name__}: {first_line}); check the network")
