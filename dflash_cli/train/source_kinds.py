"""Kinds of choices about where prompts and answers come from: a server's address, a source's weight. No torch."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from dflash_cli.setting_kinds import Kind, Number

WEIGHT = Number(0, above=True)


class Address(Kind):
    """The address of an OpenAI-compatible server, up to and with its `/v1`."""

    expected = "an address such as http://localhost:8000/v1, without user, password and query"
    metavar = "URL"

    def check(self, value: object) -> str:
        """See Kind. What was found is not shown: it may hold a password or a key."""
        wrong = ValueError(f"found another value; expected {self.expected}")
        if not isinstance(value, str):
            raise wrong
        try:
            parts = urlsplit(value)
        except ValueError:  # a bracket that is not closed
            raise wrong from None
        if parts.username is not None or parts.password is not None or parts.query:
            what = "a query" if parts.username is None and parts.password is None else "a user or password"
            raise ValueError(f"found an address with {what}; put a key into the variable DFLASH_ENGINE_KEY")
        try:
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port that is no number
            raise wrong from None
        if not good or parts.fragment or any(each.isspace() for each in value):
            raise wrong
        return value.rstrip("/")


class SourceWeight(Kind):
    """A source's name and how often each of its documents is drawn in an epoch: `chat=0.5`."""

    expected = "SOURCE=X, X a number above 0, such as chat=0.5"
    metavar = "SOURCE=X"

    def check(self, value: object) -> str:
        """See Kind."""
        name, weight = split_weight(value) if isinstance(value, str) else ("", 0.0)
        if not name:
            raise self.wrong(value)
        return f"{name}={weight:g}"


def split_weight(text: str) -> tuple[str, float]:
    """`chat=0.5` -> ("chat", 0.5); an empty name where it is no such text."""
    name, _, number = text.rpartition("=")
    try:
        return name.strip(), WEIGHT.parse(number)
    except ValueError:
        return "", 0.0


def is_this_machine(address: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, such as 127.example.com
        return False
