"""A small OpenAI-compatible server on this machine, in a thread: it answers with the tiny target itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dflash_cli.model import Model
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.train.corpus import finished
from tests.tiny import make_engine

Reply = tuple[int, dict[str, Any] | str]
JUNK = "<html>not this one</html>"


class AnsweringServer:
    """`address`; what was asked (`bodies`, `keys`); `say(body)` gives status and answer, and may be replaced."""

    def __init__(self, model: Model, style: str = "vllm") -> None:
        self.model, self.style = model, style
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.models: Any = [{"id": "tiny", "owned_by": "llamacpp" if style == "llama.cpp" else style}]
        self.say: Callable[[dict[str, Any]], Reply] = self.complete
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def reply(self, path: str, body: dict[str, Any] | None) -> Reply:
        if path == "/v1/models" and body is None:
            return 200, {"data": self.models}
        if path != "/v1/completions" or body is None:
            return 404, {"error": "no such place"}
        with self._lock:
            self.bodies.append(body)
        return self.say(body)

    def complete(self, body: dict[str, Any]) -> Reply:
        """What the target says, greedily, in the way of one kind of server."""
        request = Request(body["prompt"], max_new_tokens=body["max_tokens"], stop_ids=frozenset(body["stop_token_ids"]))
        with self._lock:
            _, ids, reason = next(finished(Decoder(make_engine(self.model.target)), [request]))
        choice: dict[str, Any] = {"index": 0, "text": self.model.codec.decode(ids), "finish_reason": reason}
        if self.style == "vllm":
            choice["token_ids"] = ids
        elif self.style == "llama.cpp":
            choice["logprobs"] = {"content": [{"id": each, "token": "?"} for each in ids]}
        return 200, {"object": "text_completion", "choices": [choice]}


def _handler(server: AnsweringServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(server.reply(self.path, None))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with suppress(ConnectionError):  # who asked did not wait for it
                self._send(server.reply(self.path, body))

        def _send(self, reply: Reply) -> None:
            server.keys.append(self.headers.get("Authorization"))
            status, answer = reply
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            if status == 307:
                self.send_header("Location", "http://127.0.0.1:1/v1/models")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    return Handler
