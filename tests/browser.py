"""A real headless browser that does what a test says: opens pages, moves the mouse, presses keys, takes pictures.

Spoken to in the DevTools protocol over two pipes: what is asked is answered, so that nothing has to be waited for.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Self

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--remote-debugging-pipe", "--window-size=800,600")  # fmt: skip
SECONDS = 120  # the longest that a busy machine may take for one answer
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


class Browser:
    """One page. `folder`: for its profile."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        self._pid, self._read, self._write = _start(BROWSER, [*FLAGS, f"--user-data-dir={folder / 'profile'}"])
        self._buffer, self._number = b"", 0
        self._session: dict[str, str] = {}
        target = next(each for each in self._ask("Target.getTargets")["targetInfos"] if each["type"] == "page")
        found = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        self._ask("Page.enable")
        # Without it only the window that has the focus of the whole machine has focused elements.
        self._ask("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._read)
        os.close(self._write)

    def open(self, page: Path) -> None:
        """Show a file, and wait until it is whole."""
        self._ask("Page.navigate", url=page.absolute().as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def hover(self, selector: str) -> None:
        """Move the mouse onto the first line of an element."""
        box = self.run(f"(({_BOX})({json.dumps(selector)}))")
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"], y=box["y"])

    def press(self, key: str, code: int) -> None:
        """Press a key; `code` is what Windows calls it."""
        for kind in ("rawKeyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def shoot(self, path: Path) -> Path:
        """A picture of what is seen, as PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))
        return path

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        order = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._write, json.dumps(order).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._read, 1 << 16) if ready else b""
            assert data, "the browser does not answer"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


_BOX = """selector => {
  const box = document.querySelector(selector).getClientRects()[0];
  return {x: box.x + box.width / 2, y: box.y + box.height / 2};
}"""


def _start(program: str, flags: list[str]) -> tuple[int, int, int]:
    """Its process, and the pipes to read from and write to: it has them as 4 and 3."""
    orders, ours_to_write = os.pipe()
    ours_to_read, answers = os.pipe()
    theirs = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (orders, answers)]  # out of the way of 3 and 4
    null = os.open(os.devnull, os.O_RDWR)
    actions = [
        (os.POSIX_SPAWN_DUP2, one, other) for one, other in (*zip(theirs, (3, 4), strict=True), (null, 1), (null, 2))
    ]
    pid = os.posix_spawn(program, [program, *flags], os.environ, file_actions=actions)
    for each in (orders, answers, null, *theirs):
        os.close(each)
    return pid, ours_to_read, ours_to_write
