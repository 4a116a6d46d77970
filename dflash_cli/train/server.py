"""A server that speaks OpenAI's protocol (vLLM, SGLang, llama.cpp and others), asked with the standard library."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

from dflash_cli.errors import DFlashError, UsageError, nearest
from dflash_cli.train.source_kinds import is_this_machine

KEY_VARIABLE = "DFLASH_ENGINE_KEY"
LISTING_SECONDS = 15.0
ANSWER_SECONDS = 900.0  # an answer may wait behind many others
DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # before each further try: a server that starts again is waited for
LONGEST_DELAY = 60.0
PASSING = (408, 425, 429, 500, 502, 503, 504)  # states that may be over soon
SHOWN = 300  # characters of what a server says
ABORTED = "abort"  # how an answer ends that the server gave up


class ServerError(DFlashError):
    """What went wrong with a request. `passing`: it may work later; `after`: seconds that the server asks for."""

    def __init__(self, message: str, *, passing: bool, after: float | None = None) -> None:
        super().__init__(message)
        self.passing, self.after = passing, after


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to another server."""

    def redirect_request(
        self, _req: urllib.request.Request, _fp: IO[bytes], _code: int, _msg: str, _headers: HTTPMessage, _new: str
    ) -> None:
        """See urllib: None makes an error of it."""


class Server:
    """Requests to `address`; the key comes from the environment and is never shown. May be used by many threads."""

    def __init__(self, address: str, environ: Mapping[str, str] = os.environ) -> None:
        """Nothing is asked yet. Raises UsageError for a key that no header can hold."""
        self.address = address
        self._key = environ.get(KEY_VARIABLE, "").strip()
        if not self._key.isascii() or not all(each.isprintable() for each in self._key):
            raise UsageError(f"the variable {KEY_VARIABLE} holds characters that no key has")
        proxies: dict[str, str] | None = {} if is_this_machine(address) else None
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(proxies))
        self.closing = threading.Event()
        """Set it, and no request is tried again."""

    def model(self, wanted: str | None) -> tuple[str, str]:
        """(name of the model to ask, who made the server, as it says). Raises DFlashError, UsageError."""
        listed = self._request("/models", None, LISTING_SECONDS).get("data")
        models = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        owners = {str(each.get("id")): str(each.get("owned_by", "")) for each in models}
        if not owners:
            raise DFlashError(f"the server {self.address} lists no model; load the target there")
        names = ", ".join(owners)
        if wanted is None and len(owners) > 1:
            raise UsageError(f"the server {self.address} has several models; pass --engine-model, one of {names}")
        name = next(iter(owners)) if wanted is None else wanted
        if name not in owners:
            hint = nearest(name, list(owners)) or f"; it has {names}"
            raise UsageError(f"the server {self.address} has no model {name!r}{hint}")
        return name, owners[name]

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The first choice of a completion; what may pass is tried again. Raises DFlashError."""
        for delay in DELAYS:
            try:
                return self._choice(body)
            except ServerError as error:
                if not error.passing or self.closing.wait(min(LONGEST_DELAY, error.after or delay)):
                    raise
        return self._choice(body)

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        choices = self._request("/completions", body, ANSWER_SECONDS).get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise DFlashError(f"the server {self.address} sent an answer without choices; is it OpenAI-compatible?")
        choice: dict[str, Any] = choices[0]
        if choice.get("finish_reason") == ABORTED:
            told = f"the server {self.address} ended an answer with {ABORTED!r}; expected stop or length: see its log"
            raise ServerError(told, passing=True)
        return choice

    def _request(self, path: str, body: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "User-Agent": "dflash"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=seconds) as response:
                found = json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise self._refused(path, error) from None
        except TimeoutError:  # while it was waited for; one of connecting comes as URLError
            advice = "is it still starting?" if body is None else "lower --rows or --answer-tokens"
            told = f"the server {self.address} gave no answer within {seconds:g} s; {advice}"
            raise ServerError(told, passing=False) from None
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            why = self._line(str(reason) or type(reason).__name__)
            told = f"the server {self.address} cannot be reached ({why}); start it, or correct --engine"
            raise ServerError(told, passing=not isinstance(reason, TimeoutError)) from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise DFlashError(f"{self.address}{path} gives no JSON object; expected an OpenAI-compatible server's /v1")
        return found

    def _refused(self, path: str, error: urllib.error.HTTPError) -> ServerError:
        with error:
            try:
                said = self._line(error.read(10_000).decode("utf-8", "replace"))
            except (OSError, HTTPException):
                said = ""
        where = f"the server {self.address}"
        if error.code in (401, 403):
            given = "does not accept the key in" if self._key else "wants a key: put it into"
            return ServerError(f"{where} {given} the variable {KEY_VARIABLE} (status {error.code})", passing=False)
        if error.code == 404:
            told = f"{where} has no {path} (status 404: {said}); expected an address such as http://localhost:8000/v1"
            return ServerError(told, passing=False)
        wait = error.headers.get("Retry-After", "")
        after = float(wait) if wait.isascii() and wait.isdigit() else None
        told = f"{where} answers with status {error.code}: {said}"
        if error.code == 400:
            told += "; if it is too long, raise the server's context, or lower --max-tokens/--answer-tokens"
        elif 300 <= error.code < 400 and (there := self._line(error.headers.get("Location", ""))):
            told = f"{where} answers with status {error.code} and points to {there}; correct --engine"
        return ServerError(told, passing=error.code in PASSING, after=after)

    def _line(self, text: str) -> str:
        """What a server said, in one line and without the key."""
        text = text.replace(self._key, "***") if self._key else text
        return " ".join(text.split())[:SHOWN]
