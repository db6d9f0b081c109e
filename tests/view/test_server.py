"""The server: who may ask, what the records say, hostile and growing files."""

from __future__ import annotations

import json
import math
import os
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from gym_runtime.errors import UsageError
from gym_view import web_server
from gym_view.access import Access
from gym_view.index import index_path, read_index
from time_limits import busy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's process and the one that indexes keep their indices here."""
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))


def row(number: int, **changes: Any) -> bytes:
    fields = {
        "responses_create_params": {"input": f"task {number}"},
        "response": {"id": f"r{number}", "output": []},
        "reward": 1.0,
        "_ng_task_index": number,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "mcqa"},
    }
    return json.dumps({**fields, **changes}).encode() + b"\n"


class Client:
    """Asks as the page does."""

    def __init__(self, session: aiohttp.ClientSession, access: Access) -> None:
        self.session = session
        self.access = access
        self.base = f"http://127.0.0.1:{access.port}"

    async def get(self, path: str, **options: Any) -> tuple[int, bytes, Any]:
        async with self.session.get(self.base + path, **options) as answer:
            return answer.status, await answer.read(), answer.headers

    async def records(self, run: str, part: str = "rollouts", start: int = 0) -> bytes:
        """Index records up to the end of the file, as they come."""
        found = b""
        while True:
            at = max(start, 56) + len(found) if found or start else 0
            status, data, headers = await self.get(f"/data/{run}/{part}.idx?from={at}")
            assert status == 200, data
            found += data
            if headers["X-Indexing"] == "0" and headers["X-More-Bytes"] == "0":
                return found
            await anyio.sleep(0.01)


@asynccontextmanager
async def viewing(*places: Path) -> AsyncIterator[Client]:
    async with (
        web_server.serve(places) as access,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        client = Client(session, access)
        assert (await client.get(f"/?token={access.token}"))[0] == 200
        yield client


async def test_the_token_opens_the_page_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    async with viewing(tmp_path) as client:
        assert (await client.get("/data/runs.json"))[0] == 200
        stranger = aiohttp.ClientSession()
        async with stranger, stranger.get(client.base + "/data/runs.json") as answer:
            assert answer.status == 403
            assert "carries the token" in await answer.text()
        for headers in (
            {"Host": "evil.example:80"},
            {"Host": f"127.0.0.1:{client.access.port + 1}"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        ):
            for path in ("/", "/page.js", "/data/runs.json", "/data/a/rollouts.jsonl"):
                assert (await client.get(path, headers=headers))[0] == 403, (path, headers)
        assert (await client.get("/data/runs.json", headers={"Origin": client.base}))[0] == 200
        async with client.session.post(client.base + "/data/runs.json") as answer:
            assert answer.status == 403
        assert (await client.get("/?token=wrong"))[0] == 403


async def test_every_answer_forbids_what_the_page_does_not_need(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    async with viewing(tmp_path) as client:
        for path in (
            "/",
            "/page.js",
            "/data/runs.json",
            "/data/a/rollouts.jsonl",
            "/nothing",
            "/data/a/x.idx",
        ):
            _, _, headers = await client.get(path)
            assert "default-src 'none'" in headers["Content-Security-Policy"], path
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
        _, page, _ = await client.get("/")
        assert b"<script>" not in page
        assert b"onclick" not in page


async def test_only_files_of_runs_are_given_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    (tmp_path / "secret.txt").write_text("the content")
    async with viewing(tmp_path) as client:
        for path in (
            "/data/..%2Fsecret/rollouts.jsonl",
            "/data/secret.txt/rollouts.jsonl",
            "/data/a/..%2F..%2Fsecret.jsonl",
            "/data/a/failures.jsonl",
            "/static/page.js",
            "/page.js/../../access.py",
        ):
            status, data, _ = await client.get(path)
            assert status == 404, path
            assert b"the content" not in data


async def test_a_row_is_read_by_its_range(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0) + row(1) + row(2))
    async with viewing(tmp_path) as client:
        rows = list(read_index(await client.records("a")))
        assert [one.entry.task for one in rows] == [0, 1, 2]
        where = f"bytes={rows[1].offset}-{rows[1].offset + rows[1].size - 1}"
        status, data, _ = await client.get("/data/a/rollouts.jsonl", headers={"Range": where})
        assert (status, data) == (206, row(1))


async def test_a_row_has_a_card_if_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0, expected_answer="B") + b"no json\n")
    async with viewing(tmp_path) as client:
        rows = list(read_index(await client.records("a")))
        status, data, _ = await client.get(f"/data/a/rollouts.card?from=0&size={rows[0].size}")
        assert (status, json.loads(data)["expected"]) == (200, {"expected_answer": "B"})
        _, data, _ = await client.get(f"/data/a/rollouts.card?from={rows[1].offset}&size={rows[1].size}")
        assert json.loads(data) is None
        assert (await client.get("/data/a/rollouts.card?from=0&size=-1"))[0] == 400
        assert (await client.get("/data/a/rollouts.card?from=0&size=9000000"))[0] == 200


async def test_figures_are_of_the_run_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0) + row(1, reward=0.0))
    (tmp_path / "b.jsonl").write_bytes(row(0, reward=0.0) + row(1, reward=0.0))

    async def mean() -> float:
        await client.records("a")
        return json.loads((await client.get("/data/a/figures.json"))[1])["run"]["mean_reward"]

    async with viewing(tmp_path) as client:
        assert [await mean(), await mean()] == [0.5, 0.5]
        await client.records("b")
        status, data, _ = await client.get("/data/compare.json?a=a&b=b")
        result = json.loads(data)
        assert (status, result["losses"], result["ties"], result["difference"]) == (200, 1, 1, -0.5)
        with path.open("ab") as file:
            file.write(row(2, reward=0.5) + row(3, reward=0.0))
        with anyio.fail_after(15 * busy()):
            while await mean() != 0.375:
                pass
        assert (await client.get("/data/compare.json?a=a&b=x"))[0] == 404
        assert (await client.get("/data/x/figures.json"))[0] == 404


async def test_the_first_figures_of_a_run_are_of_its_first_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(row(number) for number in range(6)))
    (tmp_path / "a_failures.jsonl").write_bytes(row(7, _ng_failure_class="model", reward=None))
    async with viewing(tmp_path) as client:
        for part in ("rollouts", "failures"):
            await client.records("a", part)
        for most, outcomes in (
            ("?most=4", {"completed": 4}),
            ("?most=7", {"completed": 6}),
            ("", {"completed": 6, "failed": 1}),
        ):
            found = json.loads((await client.get(f"/data/a/figures.json{most}"))[1])["run"]
            assert found["outcomes"] == outcomes, most
        assert (await client.get("/data/a/figures.json?most=x"))[0] == 400


async def test_figures_are_of_what_is_indexed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    async with viewing(tmp_path) as client:
        status, data, _ = await client.get("/data/a/figures.json")
        assert (status, json.loads(data)["run"]["rollouts"]) == (200, 0)


async def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0))
    async with viewing(path) as client:
        first = await client.records("a")
        with path.open("ab") as file:
            file.write(row(1) + row(2)[:30])
        start = 56 + len(first)
        grown = b""
        with anyio.fail_after(15 * busy()):
            while not grown:
                grown = await client.records("a", start=start)
        assert [one.entry.task for one in read_index(first + grown)] == [0, 1]
        with path.open("ab") as file:
            file.write(row(2)[30:])
        with anyio.fail_after(15 * busy()):
            while not (more := await client.records("a", start=start + len(grown))):
                pass
        assert [one.entry.task for one in read_index(first + grown + more)] == [0, 1, 2]


async def test_another_file_under_the_name_has_another_generation(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0))
    async with viewing(path) as client:
        await client.records("a")
        _, _, before = await client.get("/data/a/rollouts.idx?from=0")
        path.write_bytes(row(7))
        assert [one.entry.task for one in read_index(await client.records("a"))] == [7]
        _, _, after = await client.get("/data/a/rollouts.idx?from=0")
        assert before["X-Generation"] != after["X-Generation"]


@pytest.mark.slow
async def test_hostile_lines_are_rows_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    big = row(1, response={"id": "big", "output": [{"type": "message", "content": "x" * 50_000_000}]})
    lines = [row(0), b"no json\n", b"\n", b"[1, 2]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", big, row(2)]
    path.write_bytes(b"".join(lines) + row(3)[:-9])
    async with viewing(path) as client:
        rows = list(read_index(await client.records("a")))
        assert [one.size for one in rows] == [len(line) for line in lines if line.strip()]
        assert [one.entry.outcome for one in rows] == [0, 4, 4, 4, 4, 0, 0]
        _, _, headers = await client.get("/data/a/rollouts.idx?from=0")
        assert int(headers["X-Rows-Bytes"]) - int(headers["X-Indexed-Bytes"]) == len(row(3)) - 9


@pytest.mark.parametrize("instead", [Path.unlink, Path.mkdir, os.mkfifo], ids=["gone", "folder", "pipe"])
async def test_a_file_that_goes_while_it_is_looked_at_is_told_of(
    tmp_path: Path, instead: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0))
    async with viewing(tmp_path) as client:
        await client.records("a")
        path.unlink()
        if instead is not Path.unlink:
            instead(path)
        with anyio.fail_after(15 * busy()):
            for asked in (
                "a/rollouts.idx?from=0",
                "a/figures.json",
                "a/fields.json",
                "a/labels.json",
                "a/rollouts.card?from=0&size=9",
                "compare.json?a=a&b=a",
            ):
                status, said, _ = await client.get(f"/data/{asked}")
                assert (status, said) == (409, f"{path} is not there any more\n".encode()), asked


async def test_a_folder_that_is_emptied_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    async with viewing(tmp_path) as client:
        (tmp_path / "a.jsonl").unlink()
        status, said, _ = await client.get("/data/b/figures.json")
        assert (status, b"there are no rollouts in" in said) == (409, True)


async def test_a_file_that_may_not_be_read_any_more_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0))
    async with viewing(tmp_path) as client:
        await client.records("a")
        # The tests may run as root, who may read everything; a name that is too long is refused to all.
        monkeypatch.setattr(web_server, "index_path", lambda _: tmp_path / ("x" * 300))
        status, said, _ = await client.get("/data/a/figures.json")
        assert (status, b"cannot be read: File name too long" in said) == (409, True)


async def test_a_search_that_the_page_gives_up_ends_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    ended = threading.Event()

    def endless(*_: object) -> Iterator[list[int]]:
        try:
            while True:
                yield []
        finally:
            ended.set()

    monkeypatch.setattr(web_server, "offsets_of", endless)
    async with viewing(tmp_path) as client:
        answer = await client.session.get(client.base + "/data/a/rollouts.found?q=x")
        assert await answer.content.readline() == b"\n"
        answer.close()
        with anyio.fail_after(15 * busy()):
            while not (ended.is_set() or caplog.records):
                await anyio.sleep(0.01)
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_text_is_found_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    said = [f'call "{number}" é' for number in range(50)]
    path.write_text("".join(json.dumps({"response": text}, ensure_ascii=False) + "\n" for text in said))
    async with viewing(path) as client:
        rows = list(read_index(await client.records("a")))
        _, data, _ = await client.get("/data/a/rollouts.found", params={"q": '"7" é'})
        assert [int(line) for line in data.split()] == [rows[7].offset]
        _, data, _ = await client.get("/data/a/rollouts.found", params={"q": "call"})
        assert len(data.split()) == 50
        assert (await client.get("/data/a/rollouts.found"))[0] == 400


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index[:112] + struct.pack("<d", math.nan) + index[120:],
        lambda index: index[:-56] + struct.pack("<d", math.inf) + index[-48:],
        lambda index: index[:112] + struct.pack("<d", 1e15) + index[120:],
        lambda index: index[:120] + struct.pack("<d", math.inf) + index[128:],
        lambda index: index[:49] * 3,
        lambda index: b"",
    ],
    ids=["nan", "inf", "beyond the end", "reward", "torn", "empty"],
)
async def test_a_damaged_index_is_made_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(row(number, agent_ref={"name": "mcqa"}) for number in range(3)))
    async with viewing(path) as client:
        whole = await client.records("a")
        place = index_path(path)
        # After the header, the first record is the environment's name; the damage is to a row.
        place.write_bytes(damage(place.read_bytes()))
        with anyio.fail_after(15 * busy()):
            while (found := await client.records("a")) != whole:
                assert all(math.isfinite(one.offset) for one in read_index(found))


async def test_a_read_that_began_before_the_index_was_whole_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    read = web_server._records
    early: list[Any] = []

    def slow_read(rows: Path, start: int) -> Any:
        early.append(read(rows, start))
        if len(early) == 2:  # the index becomes whole between this read and its answer
            while read(rows, 0).end_bytes == 0:
                time.sleep(0.01)
            time.sleep(0.2)
            return early[0]
        return early[-1]

    monkeypatch.setattr(web_server, "_records", slow_read)
    async with viewing(tmp_path) as client:
        assert [one.entry.task for one in read_index(await client.records("a"))] == [0]


async def test_an_index_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0) + row(1))
    async with viewing(path) as client:
        whole = await client.records("a")
    made = index_path(path).stat()
    async with viewing(path) as client:
        _, data, headers = await client.get("/data/a/rollouts.idx?from=0")
        assert (data, headers["X-Indexing"]) == (whole, "0")
    assert index_path(path).stat().st_mtime_ns == made.st_mtime_ns
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "cache"]


async def test_an_index_beside_the_rows_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(0, reward=0.0))
    victim = tmp_path / "victim"
    victim.write_bytes(b"GYMINDEX and what else")
    (tmp_path / "a.jsonl.idx").symlink_to(victim)
    async with viewing(path) as client:
        assert [one.entry.reward for one in read_index(await client.records("a"))] == [0.0]
    assert victim.read_bytes() == b"GYMINDEX and what else"


async def test_a_cache_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    (tmp_path / "elsewhere").mkdir()
    cache = tmp_path / "cache-2"
    cache.mkdir()
    (cache / "indices").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("GYM_CACHE", str(cache))
    with pytest.raises(UsageError, match=r"indices cannot be used .*set GYM_CACHE"):
        async with web_server.serve([tmp_path]):
            pass


async def test_blank_lines_at_the_end_are_no_half_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for end, whole in ((b"", True), (b"\n \n", True), (b'\n{"torn', False)):
        path.write_bytes(row(0) + end)
        async with viewing(tmp_path) as client:
            await client.records("a")
            _, _, headers = await client.get("/data/a/rollouts.idx?from=112")
            assert (headers["X-Indexed-Bytes"] == headers["X-Rows-Bytes"]) == whole, end


@pytest.mark.slow
async def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no rollouts in"):
        async with web_server.serve([tmp_path]):
            pass
    with pytest.raises(UsageError, match="there is no file or folder"):
        async with web_server.serve([tmp_path / "x"]):
            pass
    (tmp_path / "a.jsonl").write_bytes(row(0))
    async with web_server.serve([tmp_path]) as access:
        with pytest.raises(UsageError, match=rf"cannot listen on port {access.port}: .*--port"):
            async with web_server.serve([tmp_path], access.port):
                pass


async def test_a_server_that_is_started_again_has_its_port_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(row(0))
    port = 0
    async with aiohttp.ClientSession() as page:
        for _ in range(2):
            async with web_server.serve([tmp_path], port) as access:
                port = access.port
                # The server closes this connection, as it does that of an open page.
                assert (await page.get(access.url)).status == 200
