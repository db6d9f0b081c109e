"""Names of rollouts that only their launcher can make, so that one rollout's client cannot use another's.

A rollout's name is ``ID~TAG``. The tag is an HMAC of the id with a secret that the gateway and the launcher
share. So the gateway needs no table, and a client that has one name cannot compute another. The launcher
makes names itself (`RolloutNames.of`), or asks the gateway for them, with the secret as its key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from gym_runtime.errors import TaskError, UsageError

from gym_faces.dialects.dialect import Problem, Refusal

KEY = "gym-"
LEAST_SECRET_CHARS = 16
# Without `_SEPARATOR`, so that a name can be read in one way only.
_ID = re.compile(r"[A-Za-z0-9._:@-]{1,200}")
_SEPARATOR = "~"
# 128 bits of the HMAC.
_TAG_CHARS = 32


class RolloutNames:
    """The names of one gateway's rollouts.

    Args:
        secret: shared with the launcher; a random one if it is empty.

    Raises:
        UsageError: the secret is so short that it could be guessed.
    """

    def __init__(self, secret: str = "") -> None:
        if secret and len(secret) < LEAST_SECRET_CHARS:
            raise UsageError(
                f"the gateway's secret has {len(secret)} characters; it needs at least {LEAST_SECRET_CHARS}"
            )
        self.secret = secret or secrets.token_urlsafe(24)

    def of(self, rollout: str) -> str:
        """The name of a rollout, always the same; it can be used in URLs and headers.

        Raises:
            TaskError: ``rollout`` is not a valid id.
        """
        if not _ID.fullmatch(rollout):
            raise TaskError("a rollout's id has 1 to 200 letters, digits and . _ : @ -")
        tag = hmac.digest(self.secret.encode(), rollout.encode(), hashlib.sha256).hex()[:_TAG_CHARS]
        return f"{rollout}{_SEPARATOR}{tag}"

    def whose(self, path: str, key: str) -> str:
        """The id of the rollout that a request names; empty if it names none.

        Args:
            path: the rollout in its path: a name; or an id, if the key is that rollout's or the launcher's.
            key: its key, in which a name begins with `KEY`; used if the path names no rollout.

        Raises:
            TaskError: the id is not valid.
            Refusal: the name's tag is missing or wrong.
        """
        named = key.removeprefix(KEY) if key.startswith(KEY) else ""
        if not path:
            return self._read(named) if named else ""
        if _SEPARATOR in path:
            return self._read(path)
        # Only for its error.
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
            message = "only the launcher may do this; send the gateway's secret as the key"
            raise Refusal(Problem(kind="unauthorized", message=message))

    def _read(self, name: str) -> str:
        rollout = name.rpartition(_SEPARATOR)[0] or name
        # In constant time, or the tag could be guessed byte by byte; as bytes, because text must be ASCII.
        if not hmac.compare_digest(_bytes(name), self.of(rollout).encode()):
            raise _stranger()
        return rollout

    def _is_launcher(self, key: str) -> bool:
        return hmac.compare_digest(_bytes(key), self.secret.encode())


def _bytes(text: str) -> bytes:
    # aiohttp decodes a header that is not UTF-8 with surrogate escapes, which plain `encode` refuses.
    return text.encode(errors="surrogateescape")


def _stranger() -> Refusal:
    message = "the rollout's name is wrong: use the name ID~TAG that the launcher has made"
    return Refusal(Problem(kind="unauthorized", message=message))
