"""Names of rollouts that only their launcher can make, so that a client of one does not reach another's.

A rollout's name is ``ID~TAG``. The tag is made of the id and a secret that the gateway and the launcher
share, so a gateway keeps no table, and a client that was told one name cannot guess the next. The launcher
makes names itself (`Names.of`), or asks the gateway for them, with the secret as its key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from gym_runtime.errors import TaskError, UsageError
from gym_runtime.gateway.dialect import Problem, Refusal

KEY = "gym-"
LEAST_SECRET_CHARS = 16
_ID = re.compile(r"[A-Za-z0-9._:@-]{1,200}")
_SEPARATOR = "~"
_TAG_CHARS = 32


class Names:
    """The names of one gateway's rollouts.

    Args:
        secret: what it shares with the launcher; made up where it is empty.

    Raises:
        UsageError: the secret is short enough to be guessed.
    """

    def __init__(self, secret: str = "") -> None:
        if secret and len(secret) < LEAST_SECRET_CHARS:
            raise UsageError(
                f"a gateway's secret has {LEAST_SECRET_CHARS} characters or more, not {len(secret)}"
            )
        self.secret = secret or secrets.token_urlsafe(24)

    def of(self, rollout: str) -> str:
        """The name of a rollout, the same at all times; it may stand in URLs and headers.

        Raises:
            TaskError: that is no rollout's id.
        """
        if not _ID.fullmatch(rollout):
            raise TaskError("a rollout's id has 1 to 200 letters, digits and . _ : @ -")
        tag = hmac.digest(self.secret.encode(), rollout.encode(), hashlib.sha256).hex()[:_TAG_CHARS]
        return f"{rollout}{_SEPARATOR}{tag}"

    def whose(self, path: str, key: str) -> str:
        """The id of the rollout that a request is about; empty if it names none.

        Args:
            path: what its path says: a name; or an id, where the key is that rollout's or the launcher's.
            key: its key, in which a name begins with `KEY`; without a path's, that one counts.

        Raises:
            TaskError: that is no rollout's id.
            Refusal: the name's tag is missing or wrong.
        """
        named = key.removeprefix(KEY) if key.startswith(KEY) else ""
        if not path:
            return self._read(named) if named else ""
        if _SEPARATOR in path:
            return self._read(path)
        self.of(path)  # it is an id
        if self._is_launcher(key) or (named and self._read(named) == path):
            return path
        raise _stranger()

    def require_launcher(self, key: str) -> None:
        """
        Raises:
            Refusal: the key is not the secret.
        """
        if not self._is_launcher(key):
            said = "only the launcher may do this, with the gateway's secret as its key"
            raise Refusal(Problem(kind="unauthorized", message=said))

    def _read(self, name: str) -> str:
        rollout = name.rpartition(_SEPARATOR)[0] or name
        if not hmac.compare_digest(name.encode(), self.of(rollout).encode()):
            raise _stranger()
        return rollout

    def _is_launcher(self, key: str) -> bool:
        return hmac.compare_digest(key.encode(), self.secret.encode())


def _stranger() -> Refusal:
    said = "this is not the name that the launcher has given to that rollout: a name is ID~TAG"
    return Refusal(Problem(kind="unauthorized", message=said))
