"""One request: where it goes, what it reads, and where it stops."""

from __future__ import annotations

import socket
import time
from typing import Any
from urllib.parse import quote

import anyio
import msgspec
import pytest
from data.web.site import BOUNDS, HERE, site
from gym_data.web import http_exchange as exchange_module
from gym_data.web import web_request
from gym_data.web.http_exchange import exchange
from gym_data.web.web_request import Bounds, Guard, PageUnavailable, Unreachable, WebRequest
from gym_runtime.environment.blocked_loop import watching
from tables import table
from yarl import URL

pytestmark = pytest.mark.anyio

INSIDE = [
    "http://127.0.0.1/x",
    "http://127.0.0.1:1/x",
    "http://localhost/x",
    "http://LOCALHOST./x",
    "http://2130706433/x",
    "http://017700000001/x",
    "http://0x7f000001/x",
    "http://0x7f.1/x",
    "http://127.1/x",
    "http://0/x",
    "http://[::1]/x",
    "http://[::ffff:127.0.0.1]/x",
    "http://[::ffff:7f00:1]/x",
    "http://[::127.0.0.1]/x",
    "http://[2002:7f00:1::]/x",
    "http://[64:ff9b::7f00:1]/x",
    "http://[fe80::1%25lo]/x",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://168.63.129.16/machine",
    "http://10.0.0.1/x",
    "http://①②⑦.⓪.⓪.①/x",
    "http://127。0。0。1/x",
]
NOT_PLAIN = ["", "x", "file:///etc/passwd", "http://me@example.com/", "http://a\\@127.0.0.1/", "http://[::1"]


async def get(url: str, guard: Guard = HERE, bounds: Bounds = BOUNDS, **headers: str) -> Any:
    return await exchange(WebRequest(url=url, headers=headers), guard, bounds)


@table("url", INSIDE)
async def test_no_address_inside_is_asked(url: str) -> None:
    async with site() as served:
        port = served.url.rpartition(":")[2]
        for one in (url, url.replace("/x", f":{port}/page", 1)):
            with pytest.raises(PageUnavailable):
                await get(one, Guard())
        assert served.asked == []


@table("url", INSIDE)
async def test_no_redirect_leads_inside(url: str) -> None:
    async with site() as served:
        with pytest.raises(PageUnavailable):
            await get(f"{served.url}/to?url={quote(url, safe='')}", _Alone())
        assert len(served.asked) == 1


class _Alone(Guard, frozen=True, kw_only=True):
    """The first request may go to this machine; what follows is under the usual rules."""

    private_hosts: frozenset[str] = HERE.private_hosts

    def check(self, url: URL) -> None:
        (HERE if url.path == "/to" else Guard()).check(url)

    async def addresses(self, host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
        return await Guard().addresses(host, port)


@table("url", NOT_PLAIN)
async def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(PageUnavailable, match="plain http"):
        await get(url)


async def test_a_name_that_changes_its_mind_is_asked_where_it_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time that the name is resolved, it is somewhere else."""
    asked: list[str] = []

    async def fickle(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
        asked.append(host)
        return [(socket.AF_INET, "127.0.0.2" if len(asked) == 1 else "127.0.0.1")]

    monkeypatch.setattr(web_request, "resolved", fickle)
    allowed = Guard(private_hosts=frozenset({"fickle.example"}))
    async with site("127.0.0.2") as checked:
        port = checked.url.rpartition(":")[2]
        async with site("127.0.0.1", int(port)) as later:
            assert (await get(f"http://fickle.example:{port}/page", allowed)).status == 200
            assert asked == ["fickle.example"]
            assert (checked.asked, later.asked) == (["/page"], [])


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:10.0.0.1"]])
async def test_a_name_with_an_address_inside_is_refused(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, one) for one in addresses]

    monkeypatch.setattr(web_request, "resolved", resolved)
    with pytest.raises(PageUnavailable, match="not at a public address"):
        await get("http://inside.example/", Guard())


def test_no_socket_is_made_for_an_address_inside() -> None:
    """Even if a URL was read in two ways, and the check saw another host."""
    checked = exchange_module._Checked(Guard())  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(PermissionError):
        checked.socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))


async def test_ports_of_other_services_are_refused() -> None:
    with pytest.raises(PageUnavailable, match="port 25"):
        await get("http://93.184.216.34:25/", Guard())


async def test_excluded_domains() -> None:
    guard = Guard(denied=("example.com",))
    for url in ("http://example.com/", "http://WWW.Example.com./x"):
        with pytest.raises(PageUnavailable, match="excluded domains"):
            await get(url, guard)


async def test_an_answer() -> None:
    async with site() as served:
        answer = await get(f"{served.url}/page#part")
        assert (answer.status, answer.media_type, answer.body) == (200, "text/html", b"<p>A page.</p>")
        assert (await get(f"{served.url}/status/404")).status == 404
        assert served.headers[0]["User-Agent"] == "gym-runtime"


async def test_redirects_are_followed_but_not_without_end() -> None:
    async with site() as served:
        answer = await get(f"{served.url}/to?url=/to%3Furl=/page")
        assert (answer.status, answer.url) == (200, f"{served.url}/page")
        with pytest.raises(PageUnavailable, match="more than 5 redirects"):
            await get(f"{served.url}/again")


async def test_headers_go_to_their_origin_only() -> None:
    async with site() as served, site() as other:
        await get(f"{served.url}/to?url={other.url}/page", Authorization="Bearer secret")
        assert served.headers[0]["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.headers[0]
        await get(f"{served.url}/to?url=/page", Authorization="Bearer secret")
        assert served.headers[-1]["Authorization"] == "Bearer secret"


async def test_a_service_does_not_lead_elsewhere() -> None:
    async with site() as served, site() as other:
        with pytest.raises(Unreachable, match="another origin"):
            url = f"{served.url}/to?url={other.url}/page"
            await exchange(WebRequest(url=url), HERE, BOUNDS, strays=False)
        assert other.asked == []


@pytest.mark.parametrize("path", ["gzip", "deflate", "bare"])
async def test_compressed_answers(path: str) -> None:
    async with site() as served:
        assert (await get(f"{served.url}/{path}")).body == b"one two"


@table(
    ("path", "problem"),
    [
        ("bomb", "larger than 1 MB"),
        ("endless", "larger than 1 MB"),
        ("members", "more than 1000 parts"),
        ("broken", "compression is broken"),
        ("brotli", "compressed in a way"),
        ("slow", "did not answer within 0.5 s"),
        ("cut", "cannot be reached"),
    ],
)
async def test_bad_bodies_end_early(path: str, problem: str) -> None:
    blocked: list[str] = []
    bounds = msgspec.structs.replace(BOUNDS, timeout_s=0.5 if path == "slow" else 10.0)
    async with site() as served, watching(0.2, lambda place, _: blocked.append(place)):
        start_s = time.monotonic()
        with pytest.raises(PageUnavailable, match=problem):
            await get(f"{served.url}/{path}", bounds=bounds)
        assert time.monotonic() - start_s < 9
    assert blocked == []


async def test_what_is_no_text_is_not_read() -> None:
    bounds = msgspec.structs.replace(BOUNDS, media_types=("text/",))
    async with site() as served:
        with pytest.raises(PageUnavailable, match="application/pdf, not a page of text"):
            await get(f"{served.url}/type?type=application/pdf", bounds=bounds)
        assert (await get(f"{served.url}/type?type=text/plain", bounds=bounds)).body == b"x"


async def test_what_is_not_there_cannot_be_reached() -> None:
    async with site() as served:
        url = served.url
    with pytest.raises(Unreachable, match="cannot be reached"):
        await get(f"{url}/page")
    with pytest.raises(Unreachable, match="name cannot be resolved"):
        await get("http://there-is-no.invalid/", Guard())


async def test_cancelling_ends_a_request() -> None:
    async with site() as served:
        with anyio.move_on_after(0.2) as scope:
            await get(f"{served.url}/slow")
        assert scope.cancelled_caught
