"""A server of assets, and a folder for them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gym_runtime.assets import Asset

HELLO, DEEP = b"hello\n", b"x" * 3000


class Origin:
    """An HTTP server on this machine: what it has, where it sends elsewhere, what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"/hello.csv": HELLO, "/deep.bin": DEEP}
        self.elsewhere: dict[str, str] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        origin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                origin.asked.append(self.path)
                if self.path in origin.elsewhere:
                    self.send_response(302)
                    self.send_header("Location", origin.elsewhere[self.path])
                    self.end_headers()
                    return
                content = origin.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content) + (self.path in origin.cut)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def asset(self, **changes: Any) -> Asset:
        told: dict[str, Any] = {
            "name": "things",
            "description": "some things",
            "licence": "CC0-1.0",
            "urls": {"a/hello.csv": f"{self.url}/hello.csv", "deep.bin": f"{self.url}/deep.bin"},
            "size_bytes": 10_000,
            "setting": "GYM_TEST_THINGS",
        }
        return Asset(**{**told, **changes})
