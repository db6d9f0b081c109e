"""The fetcher: the one way for environments to reach the outside world.

    page(url)      a page that a model named: guarded, paced for each host; an error is text for the model
    ask(service)   a service that it needs: keys, pace, quota, retries; an error fails the rollout
    send(service)  the same for a request that must not be repeated: one try, any answer
    recorded(name) an answer under a name: played from a recording, or added to one

A model names the addresses of pages, so it could make a page "fail" at will, and that must not end its
rollout without a reward. So a page that cannot be fetched is an answer (`PageUnavailable`), unless the
network is down: the fetcher then cannot connect to the environment's services either. A service that does not
answer fails the rollout (`ServiceUnavailable`, stage ``resource``), and is never a reward.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
import msgspec
from gym_runtime.environment import usage
from gym_runtime.errors import ServiceUnavailable
from gym_runtime.retrying import Backoff, Pauses
from yarl import URL

from gym_data.web import answer_cache, ledger, public_addresses
from gym_data.web.outside_service import Said, Service, turns, without
from gym_data.web.web_recording import Recording
from gym_data.web.web_request import Bounds, Guard, PageUnavailable, Unreachable, WebAnswer, WebRequest

SERVICE_PAUSES, SERVICE_RETRIES = Pauses(1.0, 4.0), 3
"""The pauses between the tries of a service, and how often it is tried again."""
SERVICE_LONGEST_PAUSE_S = 30.0
"""A service that asks for a longer one counts as unavailable now."""
SERVICE_RESTS_S = 900.0
"""How long a key rests whose quota is used up, or that the service refused."""
MAX_URL_CHARS = 2048
"""Of a page: longer ones take seconds to be checked, and hosts refuse them."""
HOST_PAUSE_S = 0.2
"""Between two pages of one host."""

TEXTS = ("text/", "application/xhtml", "application/xml", "application/json")
PAGE = Bounds(timeout_s=20.0, size_bytes=5_000_000, media_types=TEXTS)
HOSTS_REMEMBERED = 4096

_COUNTED: dict[Said, usage.How] = {
    "answered": "answered",
    "limited": "limited",
    "used up": "limited",
    "refused": "failed",
    "down": "failed",
}
# Sorted, so that equal requests have one entry in the cache, in whatever order their parts were given.
_encode = msgspec.json.Encoder(order="sorted").encode
_host_free_s: OrderedDict[str, float] = OrderedDict()


class Fetcher:
    """
    Args:
        services: used to find out whether the network is up.
        guard: which hosts may be asked for pages.
        recording: where answers are found or added.
        replay: everything is answered from the recording; nothing is sent.
        cached: answers are kept on disk and used again.
    """

    def __init__(
        self,
        *,
        services: Sequence[Service] = (),
        guard: Guard = Guard(),  # noqa: B008 - frozen
        recording: Recording | None = None,
        replay: bool = False,
        cached: bool = False,
    ) -> None:
        if replay and recording is None:
            raise ValueError("replay needs a recording")
        self._services = tuple(services)
        self._guard = guard
        self._recording = recording
        self._replay = replay
        self._cached = cached

    @property
    def replays(self) -> bool:
        """Whether all answers come from a recording; nothing is sent then."""
        return self._replay

    async def recorded(self, asked: str, ask: Callable[[], Awaitable[WebAnswer]]) -> WebAnswer | None:
        """The answer of ``ask``, or its recorded answer in replay; None if the recording has none."""
        if self._recording is None:
            return await ask()
        if self._replay:
            return await self._recording.find(asked)
        answer = await ask()
        await self._recording.add(asked, answer)
        return answer

    async def page(
        self,
        url: str,
        bounds: Bounds = PAGE,
        *,
        service: Service | None = None,
        probe: WebRequest | None = None,
    ) -> WebAnswer:
        """A page that a model named. The caller checks its status.

        Args:
            service: whose page it is: its pace holds, and its signature is sent.
            probe: as for `ask`.

        Raises:
            PageUnavailable: it cannot be fetched; the message is for the model.
            ServiceUnavailable: the network or the page's service is down.
        """
        # The part after # is never sent, and recordings must not differ by it.
        url = url.strip().partition("#")[0]
        if len(url) > MAX_URL_CHARS:
            raise PageUnavailable(f"its address has more than {MAX_URL_CHARS} characters")
        try:
            self._guard.check(URL(url))
        except ValueError as error:
            raise PageUnavailable("it is not a plain http or https address") from error
        get = partial(self._page, url, bounds, service, probe)
        answer = await self.recorded(url, partial(self._kept, "page", WebRequest(url=url), get))
        if answer is None:
            raise PageUnavailable("HTTP 404: it is not in the recording")
        return answer

    async def _page(
        self, url: str, bounds: Bounds, service: Service | None, probe: WebRequest | None
    ) -> WebAnswer:
        answer = await self._page_once(url, bounds, service)
        if service is not None and probe is not None and service.said(answer) != "answered":
            # Raises if it is the service's fault; else it waits until the service answers.
            await self._asked(service, probe)
            answer = await self._page_once(url, bounds, service)
        return answer

    async def _page_once(self, url: str, bounds: Bounds, service: Service | None) -> WebAnswer:
        request, guard, name, key = WebRequest(url=url), self._guard, "page", ""
        if service is not None:
            name = service.name
            found = turns(name).next(service.keys)
            if found is None:
                raise _unavailable(service, f"no key in {service.key_variable} can be used now")
            key = found
            await self._reserve(service)
            request = service.sign(msgspec.structs.replace(request, url=service.located(url)), key)
            guard = msgspec.structs.replace(guard, private_hosts=guard.private_hosts | service.private_hosts)
        await _wait_for_turn(URL(request.url).host or "")
        try:
            answer = await _exchanged(request, guard, bounds)
        except Unreachable as error:
            usage.count(name, "failed")
            if self._services and not await public_addresses.can_be_dialled(self._services[0].base_url):
                raise ServiceUnavailable(
                    f"the network is gone: neither a page nor {self._services[0].name} can be reached",
                    stage="resource",
                    retryable=True,
                ) from error
            raise
        usage.count(name, "answered")
        here = msgspec.structs.replace(answer, url=url) if request.url == answer.url else answer
        return without(here, key)

    async def ask(
        self, service: Service, request: WebRequest, *, probe: WebRequest | None = None
    ) -> WebAnswer:
        """A service's answer, which may be a refusal of the request itself: 400, 404, 422.

        Args:
            probe: a harmless request. If the service answers it, but not the request, which a model has
                influenced, the request is at fault, not the service.

        Raises:
            ServiceUnavailable: it is down, not configured, or its quota is used up.
            PageUnavailable: it answers the probe only; the message is for the model.
        """
        service.check()
        try:
            return await self._kept(service.name, request, partial(self._asked, service, request))
        except ServiceUnavailable as error:
            if probe is None or not error.retryable:
                raise
            await self._asked(service, probe)
            raise PageUnavailable("this cannot be answered") from error

    async def send(self, service: Service, request: WebRequest) -> WebAnswer:
        """A service's answer, of any status, to a request that is sent once, because it changes something.

        Raises:
            ServiceUnavailable: it is not configured, its quota is used up, or there was no answer. The
                request may have had its effect nevertheless.
        """
        service.check()
        try:
            answer = await self._once(service, request, service.keys[0])
        # A service is not a page: what it lacks is a failure of the rollout, never text for the model.
        except PageUnavailable as error:
            usage.count(service.name, "failed")
            raise _unavailable(service, str(error), retryable=isinstance(error, Unreachable)) from error
        usage.count(service.name, _COUNTED[service.said(answer)])
        return answer

    async def _asked(self, service: Service, request: WebRequest) -> WebAnswer:
        keys, turn = service.keys, turns(service.name)
        backoff, retries, limited, problem = Backoff(SERVICE_PAUSES), SERVICE_RETRIES, 0, ""
        while True:
            key = turn.next(keys)
            if key is None:
                raise _unavailable(service, problem or f"no key in {service.key_variable} can be used now")
            wanted_s = 0.0
            try:
                answer = await self._once(service, request, key)
            except PageUnavailable as error:
                usage.count(service.name, "failed")
                problem = str(error)
            else:
                how = service.said(answer)
                usage.count(service.name, _COUNTED[how])
                if how == "answered":
                    return answer
                problem = f"it answered with HTTP {answer.status}"
                if how in ("used up", "refused"):
                    problem += f" to {'a key in ' + service.key_variable if service.key_variable else 'us'}"
                    turn.rest(key, SERVICE_RESTS_S)
                    continue
                wanted_s = answer.retry_after_s
                limited += how == "limited"
                if how == "limited" and limited % len(keys):  # the limit is the key's: another one may do
                    continue
            if not retries or wanted_s > SERVICE_LONGEST_PAUSE_S:
                raise _unavailable(service, problem, retryable=True)
            retries -= 1
            await anyio.sleep(max(wanted_s, backoff.next_s()))

    async def _once(self, service: Service, request: WebRequest, key: str) -> WebAnswer:
        await self._reserve(service)
        bounds = Bounds(timeout_s=service.timeout_s, size_bytes=service.size_bytes)
        guard = Guard(private_hosts=service.private_hosts)
        answer = await _exchanged(service.sign(request, key), guard, bounds, strays=False)
        return without(answer, key)

    async def _reserve(self, service: Service) -> None:
        try:
            await ledger.reserve(service.name, service.per_s, service.per_day)
        except ledger.QuotaUsedUp as error:
            usage.count(service.name, "limited")
            problem = f"the quota of {service.per_day} requests a day is used up"
            raise _unavailable(service, problem) from error

    async def _kept(
        self, whose: str, request: WebRequest, ask: Callable[[], Awaitable[WebAnswer]]
    ) -> WebAnswer:
        """An answer, from the cache if it has one. The request has no key yet."""
        if not self._cached or self._replay:
            return await ask()
        identity = _encode([whose, request.url, request.params, request.body])
        known = await answer_cache.find(identity)
        if known is not None:
            usage.count(whose, "cached")
            return known
        answer = await ask()
        # Errors are not kept: they may be gone at the next request.
        if 200 <= answer.status < 300:
            await answer_cache.add(identity, answer)
        return answer


async def _exchanged(request: WebRequest, guard: Guard, bounds: Bounds, *, strays: bool = True) -> WebAnswer:
    from gym_data.web.http_exchange import exchange  # a list of environments needs no HTTP client

    return await exchange(request, guard, bounds, strays=strays)


async def _wait_for_turn(host: str) -> None:
    now_s = time.monotonic()
    # Taken out and put in again, which moves it to the end; reserved before the wait, so that callers queue.
    start_s = max(now_s, _host_free_s.pop(host, 0.0))
    _host_free_s[host] = start_s + HOST_PAUSE_S
    while len(_host_free_s) > HOSTS_REMEMBERED:
        _host_free_s.popitem(last=False)
    await anyio.sleep(start_s - now_s)


def _unavailable(service: Service, problem: str, *, retryable: bool = False) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"{service.name} is unavailable: {problem}", stage="resource", retryable=retryable
    )
