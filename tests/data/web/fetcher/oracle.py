"""A service that takes keys: how it answers, and how it is asked."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web
from data.web.site import Site
from gym_data.web.fetcher import Fetcher
from gym_data.web.outside_service import Service
from gym_data.web.web_request import WebAnswer, WebRequest
from gym_runtime.errors import ServiceUnavailable


def sign(request: WebRequest, key: str) -> WebRequest:
    return msgspec.structs.replace(request, headers={"Authorization": f"Bearer {key}"})


ORACLE = Service(name="oracle", key_variable="ORACLE_KEY", sign=sign)


def answers(served: Site, *statuses: int, **headers: str) -> None:
    """Answers the oracle with these statuses, one after the other; with 200 after the last."""
    left = list(statuses)

    async def answer(request: web.Request) -> web.Response:
        status = left.pop(0) if left else 200
        body = {"key": request.headers["Authorization"], "n": len(served.asked)}
        return web.json_response(body, status=status, headers=headers if status == 429 else {})

    served.answers["/ask"] = answer


async def ask(fetcher: Fetcher | None = None, service: Service = ORACLE) -> WebAnswer:
    return await (fetcher or Fetcher()).ask(service, WebRequest(url=f"{service.base_url}/ask"))


async def failure(fetcher: Fetcher | None = None, service: Service = ORACLE) -> ServiceUnavailable:
    with pytest.raises(ServiceUnavailable) as raised:
        await ask(fetcher, service)
    assert raised.value.stage == "resource"
    return raised.value


def used_keys(served: Site) -> list[str]:
    return [headers["Authorization"].removeprefix("Bearer ") for headers in served.headers]
