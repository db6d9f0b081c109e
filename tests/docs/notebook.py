"""A notebook: cells that are run one after the other in a real kernel, and what is shown below each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 60


class Notebook:
    """A kernel that runs; see `notebook`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, cell: str) -> list[dict[str, str]]:
        """The outputs of a cell, in order, each by its types, such as ``text/plain``.

        An output that was replaced is there once, as it was at the end.
        """
        outputs: dict[str, dict[str, str]] = {}

        def hear(message: dict[str, Any]) -> None:
            content, kind = message["content"], message["msg_type"]
            if kind == "stream":
                last = outputs.setdefault(content["name"], {"text/plain": ""})
                last["text/plain"] += content["text"]
            elif "data" in content:
                name = content.get("transient", {}).get("display_id") or str(len(outputs))
                outputs[name] = content["data"]

        reply = self._client.execute_interactive(cell, output_hook=hear, timeout=LIMIT_S)["content"]
        assert reply["status"] == "ok", "\n".join(reply["traceback"])
        return list(outputs.values())


@contextmanager
def notebook(folder: Path, environment: Mapping[str, str]) -> Iterator[Notebook]:
    """A new kernel of this Python, in a folder."""
    manager = pytest.importorskip("jupyter_client.manager", reason="needs pip install 'gym-runtime[dev]'")
    kernel, client = manager.start_new_kernel(cwd=str(folder), env=dict(environment))
    try:
        yield Notebook(client)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
