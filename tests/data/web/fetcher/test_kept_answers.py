"""Answers that are kept: in the cache and in recordings, without keys."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from aiohttp import web
from data.web.fetcher.oracle import answers, ask, failure
from data.web.site import HERE, Site
from gym_data.web.fetcher import Fetcher
from gym_data.web.web_recording import Recording
from gym_data.web.web_request import PageUnavailable, WebAnswer
from gym_runtime.environment import usage
from gym_runtime.errors import UsageError

pytestmark = pytest.mark.anyio


def contents(folder: Path) -> list[bytes]:
    """Of all its files."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@pytest.mark.slow
async def test_keys_are_blotted_out(served: Site, tmp_path: Path) -> None:
    answers(served)
    recording = tmp_path / "recording.jsonl"
    fetcher = Fetcher(recording=Recording(recording), cached=True)
    answer = await fetcher.recorded("ask", lambda: ask(fetcher))
    assert answer is not None
    assert json.loads(answer.body)["key"] == "Bearer [key]"
    answers(served, 500, 500, 500, 500)
    assert "key-one" not in (await failure()).message
    kept = contents(tmp_path)
    assert len(kept) >= 2, "a recording and a cached answer"
    assert not any(b"key-one" in content for content in kept)


async def test_the_cache_answers_again(served: Site) -> None:
    answers(served)
    cached = Fetcher(guard=HERE, cached=True)
    assert await ask(cached) == await ask(cached)
    assert await cached.page(f"{served.url}/page") == await cached.page(f"{served.url}/page")
    for _ in range(2):
        assert (await cached.page(f"{served.url}/none")).status == 404
    assert served.asked == ["/ask", "/page", "/none", "/none"], "what is missing may appear"
    assert usage.taken()["oracle", "cached"] == 1
    await ask(Fetcher())
    assert served.asked[-1] == "/ask", "without a cache, it is asked"


async def test_the_cache_has_a_bound(served: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gym_data.web import answer_cache

    monkeypatch.setattr(answer_cache, "FOLDER_BYTES", 3000)
    answer = WebAnswer(status=200, url="u", body=b"x" * 1000)
    asked = [f"{number}".encode() for number in range(3000)]
    folder = answer_cache._path(asked[0]).parent  # pyright: ignore[reportPrivateUsage]
    same = [one for one in asked if answer_cache._path(one).parent == folder][:5]  # pyright: ignore[reportPrivateUsage]
    for age_s, one in zip(range(len(same), 0, -1), same, strict=True):
        await answer_cache.add(one, answer)
        # Files that are written within a tick of the file system's clock have the same time.
        os.utime(answer_cache._path(one), (time.time() - age_s,) * 2)  # pyright: ignore[reportPrivateUsage]
    assert len(list(folder.iterdir())) == 2
    assert [await answer_cache.find(one) is not None for one in same] == [False, False, False, True, True]
    answer_cache._path(same[4]).write_bytes(b"broken")  # pyright: ignore[reportPrivateUsage]
    assert await answer_cache.find(same[4]) is None


async def test_a_recording_is_played_without_a_network(served: Site, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recorder = Fetcher(guard=HERE, recording=Recording(path))
    page = await recorder.page(f"{served.url}/page")
    gone = await recorder.page(f"{served.url}/none")
    served.answers["/binary"] = lambda _: _response(web.Response(body=b"\xff\x00", content_type="text/plain"))
    binary = await recorder.page(f"{served.url}/binary")
    asked = list(served.asked)
    player = Fetcher(guard=HERE, recording=Recording(path), replay=True)
    assert await player.page(f"{served.url}/page") == page
    assert await player.page(f"{served.url}/none") == gone
    assert await player.page(f"{served.url}/binary") == binary
    with pytest.raises(PageUnavailable, match="not in the recording"):
        await player.page(f"{served.url}/other")
    assert await player.recorded("search: x", lambda: ask(player)) is None
    assert served.asked == asked


async def _response(response: web.Response) -> web.Response:
    return response


async def test_a_recording_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text('{"asked": "https://example.com/a", "text": "<p>Hello</p>"}\n\n')
    player = Fetcher(recording=Recording(path), replay=True)
    answer = await player.page("https://example.com/a")
    assert (answer.status, answer.media_type, answer.body) == (200, "text/html", b"<p>Hello</p>")
    path.write_text('{"asked": "https://example.com/a", "txt": ""}\n')
    with pytest.raises(UsageError, match=r"recording\.jsonl:1: .*txt"):
        await player.page("https://example.com/a")
    path.write_text('{"asked": "https://example.com/a", "base64": "A"}\n')
    with pytest.raises(UsageError, match=r"has no Base64 for 'https://example\.com/a'"):
        await player.page("https://example.com/a")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        await Recording(tmp_path).find("x")
    path.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        await player.page("https://example.com/a")
