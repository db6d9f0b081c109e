"""Boxes that are pods of Kubernetes, by its API alone. A template is an image.

Settings: in a pod, its service account; elsewhere ``GYM_KUBERNETES_URL``, such as that of ``kubectl proxy``,
``GYM_KUBERNETES_TOKEN`` where the address wants one, and ``GYM_KUBERNETES_NAMESPACE``. The JSON object in
``GYM_KUBERNETES_POD`` is laid over the specification of each pod: resources, a runtime class, node selectors.

A pod is named after its label, so a create whose answer was lost finds the pod that it has made. Pods have no
time to live that can be renewed: the reaper ends what is left, and Kubernetes after a day. What a pod may
reach is decided by a network policy, which the cluster's network must enforce.

Source: kubernetes.io/docs/reference (core/v1 Pod, pods/exec; the subprotocols v4 and v5.channel.k8s.io).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import ResourceError, UsageError
from gym_runtime.errors import UNREADABLE
from gym_runtime.escapes import shown

from gym_boxes.answers import body_of, told
from gym_boxes.provider import GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Ran, seconds_after
from gym_boxes.scripts import loaded, ran, read, reading, require_done, writing

CALL_S = 30.0
START_S = 900.0
"""How long a pod may take until it runs: its image may have to be pulled, or a node to be made."""
LOOK_S = 0.5
GRACE_S = 10.0
LIFETIME_S = 24 * 3600
KEPT_BYTES = 1 << 20
FRAME_BYTES = 64 << 10
MESSAGE_BYTES = 4 << 20
"""Of the API's messages with output, which have some KiB."""
PLAIN = {"Accept-Encoding": "identity"}
PAGE = 500
PREFIX, ACCOUNT, LABEL, INTERNET = "gym-", "gym-account", "gym-label", "gym-internet"
POLICY = "gym-boxes-without-internet"
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_HOPELESS = ("InvalidImageName", "ImageInspectError", "ErrImageNeverPull", "CreateContainerConfigError")
_ACCOUNT_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")

T = TypeVar("T")


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    labels: dict[str, str] = {}
    deleted: str | None = msgspec.field(name="deletionTimestamp", default=None)
    more: str = msgspec.field(name="continue", default="")


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None


class _Container(msgspec.Struct, frozen=True):
    state: _State = _State()


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    phase: str = ""
    containers: list[_Container] = msgspec.field(name="containerStatuses", default=[])


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


class _Pods(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta = _Meta()
    items: list[_Pod] = []


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] = []


class _Ended(msgspec.Struct, frozen=True):
    """The status with which a command ends."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class Kubernetes:
    """The provider `gym_boxes.Provider` of one namespace.

    Args:
        url: of the API.
        token: of the account; empty for none.
        authority: a file with the certificate of the API's authority; None for the system's.
        pod: laid over each pod's specification.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        token: str = "",
        authority: Path | None = None,
        pod: Mapping[str, Any] | None = None,
    ) -> None:
        from aiohttp import ClientSession, ClientTimeout, TraceConfig

        root = f"{url.rstrip('/')}/{{}}/namespaces/{quote(namespace, safe='')}"
        self._pods, self._policies = (
            root.format("api/v1") + "/pods",
            root.format("apis/networking.k8s.io/v1") + "/networkpolicies",
        )
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._trust = ssl.create_default_context(cafile=authority) if authority else None
        self._pod = dict(pod or {})
        self._token = token
        # Of a websocket there is no other way to follow no redirect.
        traced = TraceConfig()
        traced.on_request_redirect.append(_refuse_redirect)
        self._make = lambda: ClientSession(
            timeout=ClientTimeout(total=None), headers=PLAIN, auto_decompress=False, trace_configs=[traced]
        )
        self._opened: Any = None
        self._running: set[str] = set()
        self._has_policy = False

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """See `gym_boxes.Provider.create`. Its name follows from the label, so it may be repeated."""
        if not internet:
            await self._without_internet()
        account = label.partition(".")[0]
        labels = {ACCOUNT: account, LABEL: label, INTERNET: "true" if internet else "false"}
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40]
        name = f"{PREFIX}{slug}-{blake2b(label.encode(), digest_size=4).hexdigest()}"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": _laid_over(_spec(template), self._pod),
        }
        try:
            await self._ask("POST", self._pods, body)
        except BoxRefused:
            # The name is taken: by this very box, if an answer was lost.
            pod = await self._read(name)
            if pod.metadata.labels.get(LABEL) != label or pod.metadata.deleted:
                raise
        return name

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        return await self._exec(box, script, timeout_s, stdin, KEPT_BYTES)

    async def put(self, box: str, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        done = await self._exec(box, writing(path), CALL_S, data, KEPT_BYTES)
        require_done(done, f"{path} cannot be written")

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        script = reading(path, most_bytes)
        return read(await self._exec(box, script, CALL_S, b"", most_bytes + 1), path, most_bytes)

    async def snapshot(self, box: str) -> str:
        """Pods have no snapshots.

        Raises:
            UsageError: always.
        """
        raise UsageError("Kubernetes keeps no snapshots of a pod's files: use images, or another provider")

    async def forget(self, template: str) -> None:
        """See `gym_boxes.Provider.forget`."""

    async def renew(self, box: str, life_s: float) -> None:
        """See `gym_boxes.Provider.renew`; its life is not renewed, it is only looked for."""
        _require_alive(box, await self._read(box))

    async def end(self, box: str) -> None:
        """See `gym_boxes.Provider.end`."""
        self._running.discard(box)
        try:
            await self._ask("DELETE", self._pod_url(box), {"gracePeriodSeconds": 0})
        except BoxGone:
            return

    async def list(self, prefix: str) -> Sequence[Found]:
        """See `gym_boxes.Provider.list`."""
        account, whole = prefix.partition(".")[0], prefix.count(".") >= 2
        selector = f"{LABEL}={prefix}" if whole else f"{ACCOUNT}={account}"
        found: list[Found] = []
        page = ""
        while True:
            query = {"labelSelector": selector, "limit": str(PAGE), **({"continue": page} if page else {})}
            pods = _decoded(await self._ask("GET", f"{self._pods}?{urlencode(query)}"), _Pods)
            for pod in pods.items:
                if (label := pod.metadata.labels.get(LABEL, "")).startswith(prefix):
                    found.append(Found(pod.metadata.name, label))
            page = pods.metadata.more
            if not page:
                return found

    async def aclose(self) -> None:
        """See `gym_boxes.Provider.aclose`."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    def _pod_url(self, box: str) -> str:
        """
        Raises:
            BoxGone: this provider makes no pod of that name, which another worker has told.
        """
        if not box.startswith(PREFIX):
            raise BoxGone(f"there is no box {box!r}", stage="box")
        return f"{self._pods}/{quote(box, safe='')}"

    async def _read(self, box: str) -> _Pod:
        return _decoded(await self._ask("GET", self._pod_url(box)), _Pod)

    async def _without_internet(self) -> None:
        """Once: pods with the label reach nothing, and nothing reaches them but the API's commands."""
        if self._has_policy:
            return
        body = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": POLICY},
            "spec": {
                "podSelector": {"matchLabels": {INTERNET: "false"}},
                "policyTypes": ["Ingress", "Egress"],
            },
        }
        await self._ask("POST", self._policies, body, or_exists=True)
        self._has_policy = True

    async def _started(self, box: str) -> None:
        """Wait until a pod runs.

        Raises:
            BoxGone: it has ended.
            ResourceError: it cannot start, or takes too long.
        """
        if box in self._running:
            return
        why = ""
        with anyio.move_on_after(START_S):
            while True:
                pod = await self._read(box)
                _require_alive(box, pod)
                if pod.status.phase == "Running":
                    self._running.add(box)
                    return
                for container in pod.status.containers:
                    if (waiting := container.state.waiting) is not None:
                        why = f"{waiting.reason}: {shown(waiting.message)[:200]}"
                        if waiting.reason in _HOPELESS:
                            raise ResourceError(f"pod {box} does not start: {why}", stage="box")
                await anyio.sleep(LOOK_S)
        raise ResourceError(f"pod {box} does not run after {START_S:g} s {why}", stage="box")

    async def _exec(self, box: str, script: str, timeout_s: float, stdin: bytes, kept_bytes: int) -> Ran:
        from aiohttp import ClientError, WSMsgType, WSServerHandshakeError

        await self._started(box)
        command, sent = loaded(script, stdin, timeout_s)
        query = [("command", part) for part in command]
        query += [(stream, "true") for stream in ("stdin", "stdout", "stderr")]
        url = f"{self._pod_url(box)}/exec?{urlencode(query)}"
        output = {_STDOUT: bytearray(), _STDERR: bytearray()}
        ended: bytes | None = None
        session = self._session()
        scope = anyio.move_on_after(timeout_s + GRACE_S + CALL_S)
        try:
            with scope:
                async with session.ws_connect(
                    url,
                    protocols=_PROTOCOLS,
                    headers=self._headers,
                    ssl=self._trust or True,
                    max_msg_size=MESSAGE_BYTES,
                ) as socket:
                    for start in range(0, len(sent), FRAME_BYTES):
                        await socket.send_bytes(bytes([_STDIN]) + sent[start : start + FRAME_BYTES])
                    if socket.protocol == _PROTOCOLS[0]:
                        await socket.send_bytes(bytes([_CLOSE, _STDIN]))
                    async for message in socket:
                        await checkpoint()  # also while the next one is there already
                        if message.type is not WSMsgType.BINARY or not message.data:
                            continue
                        channel, data = message.data[0], message.data[1:]
                        if (kept := output.get(channel)) is not None:
                            kept += data[: kept_bytes - len(kept)]
                        elif channel == _STATUS:
                            ended = data
                            break
        except WSServerHandshakeError as error:
            self._running.discard(box)
            if error.status in (404, 410):
                raise BoxGone(f"there is no pod {box}", stage="box") from error
            _require_alive(box, await self._read(box))
            raise BoxUnknown(f"pod {box} runs no command: {error.status} {shown(error.message)}") from error
        except (ClientError, OSError) as error:
            raise BoxUnknown(f"Kubernetes: {type(error).__name__} {shown(str(error))[:200]}") from error
        if scope.cancelled_caught:
            raise BoxUnknown(f"the command in pod {box} did not end in time", stage="box")
        if ended is None:
            _require_alive(box, await self._read(box))
            raise BoxUnknown(f"pod {box} does not say how the command ended", stage="box")
        return ran(_exit_code(_decoded(ended, _Ended)), output[_STDOUT], output[_STDERR])

    def _session(self) -> Any:
        self._opened = self._opened or self._make()
        return self._opened

    async def _ask(
        self, method: str, url: str, asked: Mapping[str, Any] | None = None, *, or_exists: bool = False
    ) -> bytes:
        """
        Args:
            or_exists: what is to be created may exist already.

        Raises:
            BoxGone, BoxRefused, BoxUnknown, UsageError: the status of the answer is 300 or above, or none.
        """
        async with self._call(method, url, asked) as answer:
            body = await body_of(answer)
            status: int = answer.status
            if status < 300 or (or_exists and status == 409):
                return body
            said = f"{status} {told(body[:2000].decode(errors='replace'), self._token)}"
            if status in (404, 410):
                raise BoxGone(f"the pod is gone: {said}", stage="box")
            if status in (401, 403) and "exceeded quota" not in said:
                raise UsageError(f"Kubernetes does not let this account do that: {said}", stage="box")
            if status in (400, 422):
                raise UsageError(f"Kubernetes does not take this: {said}", stage="box")
            if status in (403, 409, 429):
                raise BoxRefused(f"Kubernetes refuses: {said}", after_s=seconds_after(answer.headers))
            raise BoxUnknown(f"Kubernetes: {said}", stage="box")

    @asynccontextmanager
    async def _call(self, method: str, url: str, asked: Mapping[str, Any] | None) -> AsyncGenerator[Any]:
        from aiohttp import ClientError

        how: dict[str, Any] = {} if asked is None else {"json": asked}
        scope = anyio.move_on_after(CALL_S)
        try:
            with scope:
                async with self._session().request(
                    method, url, headers=self._headers, ssl=self._trust or True, allow_redirects=False, **how
                ) as answer:
                    yield answer
        except (ClientError, OSError) as error:
            raise BoxUnknown(f"Kubernetes: {type(error).__name__} {shown(str(error))[:200]}") from error
        if scope.cancelled_caught:
            raise BoxUnknown(f"Kubernetes did not answer within {CALL_S:g} s", stage="box")


async def _refuse_redirect(*_: object) -> None:
    raise ConnectionError("the answer is a redirect")


def _spec(image: str) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFETIME_S,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "box",
                "image": image,
                "command": ["/bin/sh", "-c", f"exec sleep {LIFETIME_S}"],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL"]},
                },
            }
        ],
    }


def _laid_over(under: Any, over: Any) -> Any:
    """A specification with another one laid over it: objects by their keys, lists by their places.

    >>> _laid_over({"a": [{"b": 1}], "c": 2}, {"a": [{"d": 3}]})
    {'a': [{'b': 1, 'd': 3}], 'c': 2}
    """
    if isinstance(under, dict) and isinstance(over, dict):
        one, two = cast("dict[str, Any]", under), cast("dict[str, Any]", over)
        return {**one, **{key: _laid_over(one.get(key), value) for key, value in two.items()}}
    if isinstance(under, list) and isinstance(over, list):
        pairs = zip_longest(cast("list[Any]", under), cast("list[Any]", over))
        return [below if above is None else _laid_over(below, above) for below, above in pairs]
    return over


def _require_alive(box: str, pod: _Pod) -> None:
    """
    Raises:
        BoxGone: the pod has ended, or is being deleted.
    """
    if pod.metadata.deleted or pod.status.phase in ("Succeeded", "Failed"):
        raise BoxGone(f"pod {box} has ended", stage="box")


def _exit_code(ended: _Ended) -> int:
    """
    Raises:
        BoxUnknown: the command did not run to its end.
    """
    if ended.status == "Success":
        return 0
    for cause in ended.details.causes if ended.details else ():
        if cause.reason == "ExitCode" and cause.message.isdigit():
            return int(cause.message)
    raise BoxUnknown(f"the command did not run: {shown(ended.message)[:300]}", stage="box")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise BoxUnknown(f"Kubernetes answers something else than its API says: {error}") from error


def make() -> Kubernetes:
    """The provider, from the pod's service account or from environment variables.

    Raises:
        UsageError: there is neither.
    """
    url, token = os.environ.get("GYM_KUBERNETES_URL", ""), os.environ.get("GYM_KUBERNETES_TOKEN", "")
    namespace, authority = os.environ.get("GYM_KUBERNETES_NAMESPACE", ""), None
    if not url and (host := os.environ.get("KUBERNETES_SERVICE_HOST")):
        url = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        token = token or (_ACCOUNT_FILES / "token").read_text()
        namespace = namespace or (_ACCOUNT_FILES / "namespace").read_text()
        authority = _ACCOUNT_FILES / "ca.crt"
    if not url:
        raise UsageError(
            "boxes of Kubernetes need its API: run `kubectl proxy` and set "
            "GYM_KUBERNETES_URL=http://127.0.0.1:8001, or work in a pod"
        )
    try:
        pod = msgspec.json.decode(os.environ.get("GYM_KUBERNETES_POD", "{}"), type=dict[str, Any])
    except UNREADABLE as error:
        raise UsageError(f"GYM_KUBERNETES_POD must be a JSON object: {error}") from error
    return Kubernetes(url, namespace=namespace or "default", token=token, authority=authority, pod=pod)
