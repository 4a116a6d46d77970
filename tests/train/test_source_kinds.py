"""Addresses of servers: whether they are on this machine, and that an error never shows one."""

from __future__ import annotations

import pytest

from dflash_cli.train.source_kinds import Address, is_this_machine


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.10", "[::1]"])
def test_this_machine(host: str) -> None:
    assert is_this_machine(f"http://{host}:8000/v1")


@pytest.mark.parametrize("host", ["127.example.com", "127.0.0.1.example.com", "localhost.example.com", "10.0.0.1"])
def test_another_machine(host: str) -> None:
    assert not is_this_machine(f"http://{host}:8000/v1")


@pytest.mark.parametrize(
    "value",
    [
        "http://me:SECRET@here/v1",
        "http://me:SECRET@here:x/v1",
        "http://SECRET@here/v1",
        "http://[me:SECRET@here/v1",
        "http://here/v1?key=SECRET",
        "http://here:0/v1?key=SECRET",
        "http://here/v1#SECRET",
        "me:SECRET@here/v1",
        "ftp://here/SECRET",
        ["SECRET"],
    ],
)
def test_an_address_that_cannot_be_is_not_shown(value: object) -> None:
    with pytest.raises(ValueError, match=r"found .*(expected an address|DFLASH_ENGINE_KEY)") as caught:
        Address().check(value)
    assert "SECRET" not in str(caught.value)
