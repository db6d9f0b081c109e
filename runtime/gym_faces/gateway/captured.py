"""A gateway's routes for captured calls, and for the launcher."""

from __future__ import annotations

from aiohttp import web

from gym_faces.dialects.dialect import Problem, encode
from gym_faces.dialects.responses import RESPONSES
from gym_faces.gateway.admission import Admission, write
from gym_faces.gateway.capture import Captures
from gym_faces.gateway.http_errors import refusal
from gym_faces.gateway.rollout_names import KEY, RolloutNames


def add_routes(
    app: web.Application,
    names: RolloutNames,
    captures: Captures | None,
    admission: Admission,
    write_s: float,
) -> None:
    """
    Args:
        captures: None if calls are not captured.
        admission: counts an answer with calls, which may have hundreds of megabytes.
        write_s: how long a client may take to read an answer.
    """

    async def name(request: web.Request) -> web.Response:
        _, key = said(request)
        names.require_launcher(key)
        rollout = request.match_info["rollout"]
        made = names.of(rollout)
        return json({"rollout_id": rollout, "name": made, "key": KEY + made})

    async def show(request: web.Request) -> web.Response:
        rollout = names.whose(*said(request))
        calls = captures.calls(rollout) if captures is not None else None
        if calls is None:
            why = f"no call of rollout '{rollout}' is known: none was made, or it was forgotten"
            return refusal(RESPONSES, Problem(kind="not_found", message=why))
        # Joined, not encoded again: the calls are JSON already, and may be megabytes.
        with admission.admitted() as place:
            place.hold(sum(map(len, calls)))
            body = b'{"rollout_id":%b,"calls":[%b]}' % (encode(rollout), b",".join(calls))
            whole = web.Response(body=body, content_type="application/json")
            await write(request, whole, write_s)
        return whole

    async def forget(request: web.Request) -> web.Response:
        named, key = said(request)
        names.require_launcher(key)
        return json({"forgotten": captures.forget(names.whose(named, key)) if captures is not None else 0})

    app.router.add_post("/rollouts/{rollout}", name)
    app.router.add_get("/rollouts/{rollout}/calls", show)
    app.router.add_delete("/rollouts/{rollout}/calls", forget)


def said(request: web.Request) -> tuple[str, str]:
    """The rollout's name in a request's path, and the request's key."""
    # Anthropic's clients send the one header, OpenAI's the other.
    key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
    return request.match_info.get("rollout", ""), key.removeprefix("Bearer ").strip()


def json(document: object) -> web.Response:
    """A document as an answer."""
    return web.Response(body=encode(document), content_type="application/json")
