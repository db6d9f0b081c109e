"""Finds the environment and the row of a request."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from gym_runtime.environment import LoadedEnvironment, catalogue
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages import SHOWN_CHARS
from msgspec import Raw

from gym_faces.dialects.dialect import Problem, Refusal


class _Ref(msgspec.Struct, frozen=True):
    name: str | None = None


class _Head(msgspec.Struct, frozen=True):
    agent_ref: _Ref | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a request.

    Attributes:
        fields: of the request's body, in their order.
        row: the row for the workers, without a ``response``.
    """

    environment: LoadedEnvironment
    fields: dict[str, Raw]
    row: bytes


class Served:
    """The environments of one server."""

    def __init__(self, environments: Iterable[LoadedEnvironment]) -> None:
        self.environments = {one.name: one for one in environments}

    def read(self, body: bytes, environment: str | None = None) -> Asked:
        """The row in a request's body.

        Args:
            environment: the one in the request's path; else the row's ``agent_ref`` decides, or there is only
                one.

        Raises:
            Refusal: the path names no environment of this server.
            TaskError: the body is no row, or belongs to no environment of this server.
        """
        try:
            body.decode()  # decoding does not check fields that stay raw
            head, fields = _decode_head(body), _decode_fields(body)
        except UnicodeDecodeError as error:
            found = f"byte {error.start} is 0x{body[error.start]:02x}"
            raise TaskError(f"the body is not UTF-8: {found}") from error
        except UNREADABLE as error:
            raise TaskError(f"the body is no row: {error}") from error
        ref = head.agent_ref.name if head.agent_ref else None
        found = self._named(ref) if environment is None else self.get(environment)
        given = {name: value for name, value in fields.items() if name != "response"}
        if ref is None or _whose(ref, [*self.environments, *catalogue.names("environments")]) != found.name:
            # Workers know no other agents' names. Its own name stays: settings can depend on it.
            given["agent_ref"] = Raw(_encode({"name": found.name}))
        return Asked(environment=found, fields=fields, row=_encode(given))

    def get(self, name: str) -> LoadedEnvironment:
        """
        Raises:
            Refusal: it is not served.
        """
        found = self.environments.get(name)
        if found is None:
            message = f"environment {name[:SHOWN_CHARS]!r} is not served here; there are: {self._listed}"
            raise Refusal(Problem(kind="not_found", message=message))
        return found

    def _named(self, ref: str | None) -> LoadedEnvironment:
        """The environment of a row by its ``agent_ref.name``.

        The rule is that of `catalogue.resolve_agent_ref`, but nothing is imported, which would block the
        event loop. A server of one environment accepts rows that name an agent of the client's.
        """
        only = next(iter(self.environments.values())) if len(self.environments) == 1 else None
        if ref is None:
            if only is None:
                raise TaskError(
                    f"the row has no 'agent_ref', and several environments are served ({self._listed}): "
                    "put the environment's name before the path, as in /NAME/run"
                )
            return only
        name = _whose(ref, [*self.environments, *catalogue.names("environments")])
        found = self.environments.get(name or "") or catalogue.named(ref, self.environments.values())
        if found is not None:
            return found
        if name is None and only is not None:
            return only
        what = f"environment '{name}'" if name else f"agent_ref {ref[:SHOWN_CHARS]!r}"
        raise TaskError(f"{what} is not served here; there are: {self._listed}")

    @property
    def _listed(self) -> str:
        return ", ".join(sorted(self.environments))


def _whose(ref: str, environments: Iterable[str]) -> str | None:
    """The environment whose name is the agent's, or its longest beginning in whole words."""
    fitting = [name for name in environments if ref == name or ref.startswith(f"{name}_")]
    return max(fitting, key=len, default=None)
