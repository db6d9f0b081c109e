"""Microsoft Entra tokens: fetched when the first call needs one, and again before they expire.

Source: "How to configure Azure OpenAI with Microsoft Entra ID authentication", which names the scope.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

import anyio
import anyio.to_thread
import msgspec
from gym_runtime import clock
from gym_runtime.errors import UNREADABLE, ModelRefused, ModelUnavailable

from gym_models.wire.quoted import Quoted

SCOPE = "https://cognitiveservices.azure.com/.default"
EARLY_S = 300.0
_COMMAND_LIMIT_S = 60.0
_SHOWN_CHARS = 200


class Token(msgspec.Struct, frozen=True, rename={"token": "accessToken"}):
    """A token, and when it expires, in seconds since the epoch."""

    token: str
    expires_on: float

    def __repr__(self) -> str:
        return f"Token(expires_on={self.expires_on})"


_decode = msgspec.json.Decoder(Token, strict=False).decode


class Login:
    """The authorization header, from a token that is valid for some more minutes.

    ``fetch`` blocks, and raises a `ModelError` if it gets no token; it runs in a thread, once at a time.
    """

    def __init__(self, fetch: Callable[[], Token]) -> None:
        self._fetch = fetch
        self._token = Token(token="", expires_on=0.0)
        self._fetching = anyio.Semaphore(1)

    async def __call__(self) -> Mapping[str, str]:
        if self._is_old():
            async with self._fetching:
                # Again, because another call may have fetched one while this one waited.
                if self._is_old():
                    self._token = await anyio.to_thread.run_sync(self._fetch)
        return {"authorization": f"Bearer {self._token.token}"}

    def _is_old(self) -> bool:
        return clock.now() > self._token.expires_on - EARLY_S


def from_command(command: Sequence[str]) -> Callable[[], Token]:
    """Tokens that a command prints as JSON. It runs without a shell."""

    def fetch() -> Token:
        name = command[0]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_COMMAND_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ModelRefused(f"the token command '{name}' cannot be run: {error}", stage="model") from error
        if done.returncode:
            said = Quoted(done.stderr.strip()).cut(_SHOWN_CHARS)
            raise ModelRefused(
                f"the token command '{name}' ended with {done.returncode}: {said}", stage="model"
            )
        try:
            return _decode(done.stdout)
        except UNREADABLE as error:
            raise ModelRefused(
                f"the token command '{name}' must print JSON with accessToken and expires_on: {error}",
                stage="model",
            ) from error

    return fetch


def from_identity() -> Callable[[], Token]:
    """Tokens of the identity that the package azure-identity finds."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError
    from azure.identity import DefaultAzureCredential

    credential = DefaultAzureCredential()

    def fetch() -> Token:
        try:
            found = credential.get_token(SCOPE)
        except ClientAuthenticationError as error:
            said = Quoted(error.message.split("\n", 1)[0]).cut(_SHOWN_CHARS)
            raise ModelRefused(
                f"azure-identity found no credentials: {said}; run az login, or set AZURE_OPENAI_API_KEY",
                stage="model",
            ) from error
        except AzureError as error:
            raise ModelUnavailable(
                f"no Entra token: {Quoted(error.message).cut(_SHOWN_CHARS)}", stage="model"
            ) from error
        return Token(token=found.token, expires_on=float(found.expires_on))

    return fetch
