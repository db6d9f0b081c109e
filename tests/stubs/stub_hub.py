"""A small Hugging Face hub on this machine: data set repositories with commits, over HTTP.

It speaks what a download needs: the resolve addresses with their headers, ranges, private and gated
repositories. It can break a transfer off in the middle.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """A request that the hub got: the ``Range`` and the commit or branch that it named."""

    method: str
    path: str
    range: str
    token: str


class StubHub:
    """The repositories, and what was asked of them. Made by `stub_hub`.

    Attributes:
        url: for ``HF_ENDPOINT``.
        requests: in the order of their arrival.
        names_commits: if not, it answers like any server of files.
        break_after: the next transfer of a file ends after so many bytes.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Asked] = []
        self.names_commits = True
        self.break_after: int | None = None
        self._files: dict[tuple[str, str, str], bytes] = {}
        self._commits: dict[tuple[str, str], str] = {}
        self._tokens: dict[str, str] = {}

    def commit(self, repo_id: str, files: dict[str, bytes], *, branch: str = "main", token: str = "") -> str:
        """Put files into a repository, as the head of a branch; the commit's name.

        ``token`` is what opens the repository from now on.
        """
        text = repr((repo_id, branch, sorted(files.items()), len(self._commits), len(self._files)))
        name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._commits[repo_id, branch] = self._commits[repo_id, name] = name
        for path, content in files.items():
            self._files[repo_id, name, path] = content
        if token:
            self._tokens[repo_id] = f"Bearer {token}"
        return name

    def find(self, path: str, token: str) -> tuple[str, bytes] | str:
        """The commit and content at ``/datasets/OWNER/NAME/resolve/REVISION/PATH``, or the hub's error."""
        repo_id, _, rest = unquote(path).removeprefix("/datasets/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        if not any(repo_id == known for known, _ in self._commits):
            return "RepoNotFound"
        if repo_id in self._tokens and token != self._tokens[repo_id]:
            return "GatedRepo" if token else "RepoNotFound"
        commit = self._commits.get((repo_id, revision))
        if commit is None:
            return "RevisionNotFound"
        content = self._files.get((repo_id, commit, file))
        return "EntryNotFound" if content is None else (commit, content)


@contextmanager
def stub_hub() -> Generator[StubHub]:
    """A hub that serves until the block ends, on a free port of this machine."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    @cached_property
    def hub(self) -> StubHub:
        return StubHub(f"http://127.0.0.1:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        assert isinstance(self.server, _Server)
        hub = self.server.hub
        asked = Asked(
            self.command,
            self.path,
            self.headers.get("Range", ""),
            self.headers.get("Authorization", ""),
        )
        hub.requests.append(asked)
        found = hub.find(self.path, asked.token)
        if isinstance(found, str):
            self.send_response(404 if found.endswith("NotFound") else 403)
            self.send_header("X-Error-Code", found)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        commit, content = found
        start = int(asked.range.removeprefix("bytes=").partition("-")[0] or 0)
        self.send_response(206 if asked.range else 200)
        if asked.range:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        if hub.names_commits:
            self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if self.command == "GET":
            end = len(content)
            if hub.break_after is not None:
                end, hub.break_after = start + hub.break_after, None
                self.close_connection = True
            self.wfile.write(content[start:end])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Says nothing."""
