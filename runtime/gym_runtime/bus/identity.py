"""Who we are to a broker and whom we take for one: files that environment variables name.

========================  =================================================================================
``GYM_NATS_CREDENTIALS``  a file with an NKey seed (``SU…``), or a NATS ``.creds`` file
``GYM_NATS_CA``           the certificate authority that signed the broker's certificate, PEM
``GYM_NATS_CERTIFICATE``  our own certificate, PEM, for brokers that ask for one …
``GYM_NATS_KEY``          … and its private key
========================  =================================================================================

So no secret stands in an argument, and workers inherit what they need. A broker whose URL carries a
password or a token is told nothing else: such is the private broker that a run starts for itself.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gym_runtime.bus import nkeys
from gym_runtime.bus.addresses import Addresses
from gym_runtime.errors import UsageError

CREDENTIALS = "GYM_NATS_CREDENTIALS"
CA = "GYM_NATS_CA"
CERTIFICATE = "GYM_NATS_CERTIFICATE"
KEY = "GYM_NATS_KEY"

_SEED = re.compile(rb"SU[A-Z2-7]{56}")
_SEED_OF_CREDS = re.compile(rb"BEGIN USER NKEY SEED-+\s+(SU[A-Z2-7]{56})\s")
_JWT = re.compile(rb"BEGIN NATS USER JWT-+\s+([A-Za-z0-9_.=-]+)\s")


def credentials_for(where: Addresses, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The credentials file for a broker; None where its URL says who we are, or no file is named."""
    named = environment.get(CREDENTIALS)
    return Path(named) if named and where.user is None and where.token is None else None


def trust(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext | None:
    """How TLS is spoken to brokers; None for the system's certificate authorities and no certificate.

    Raises:
        UsageError: A file cannot be used; the message names its variable.
    """
    authority, certificate, key = (environment.get(name) for name in (CA, CERTIFICATE, KEY))
    if key and not certificate:
        raise UsageError(f"{KEY} is set and {CERTIFICATE} is not: a private key needs its certificate")
    if not authority and not certificate:
        return None
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"{CA}={authority}: {error.strerror or error}") from error
    if certificate:
        try:
            context.load_cert_chain(certificate, key or None)
        except OSError as error:
            raise UsageError(
                f"{CERTIFICATE}={certificate}, {KEY}={key or ''}: {error.strerror or error}"
            ) from error
    return context


class Keys(msgspec.Struct, frozen=True):
    """What a credentials file holds: the secret seed, and the JWT of a ``.creds`` file, or an empty one."""

    seed: str
    jwt: str = ""


def read_keys(credentials: Path) -> Keys:
    """The content of a credentials file.

    Raises:
        UsageError: It cannot be read, or holds neither a seed nor a ``.creds`` file's JWT and seed.
    """
    try:
        content = credentials.read_bytes()
    except OSError as error:
        raise UsageError(f"credentials {credentials}: {error.strerror}") from error
    if _SEED.fullmatch(content.strip()):
        return Keys(content.strip().decode())
    jwt, seed = _JWT.search(content), _SEED_OF_CREDS.search(content)
    if seed is None:
        raise UsageError(
            f"credentials {credentials}: neither an NKey seed of a user (SU…) nor a .creds or .join file"
        )
    return Keys(seed[1].decode(), jwt[1].decode() if jwt else "")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this process is to a broker: a user with a password, a token, a credentials file, or nothing."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None

    def proof(self, nonce: str) -> dict[str, str]:
        """The fields of CONNECT that say so; keys sign the broker's ``nonce``, if it sent one.

        The file is read for each connection, so that it can be replaced before a JWT expires.

        Raises:
            UsageError: The credentials file cannot be used.
        """
        known = {"user": self.user, "pass": self.password, "auth_token": self.token}
        proof = {name: value for name, value in known.items() if value is not None}
        if self.credentials is not None:
            proof |= self._signed(self.credentials, nonce)
        return proof

    @staticmethod
    def _signed(credentials: Path, nonce: str) -> dict[str, str]:
        keys = read_keys(credentials)
        if not nonce:
            return {}
        try:
            signature = nkeys.sign(keys.seed, nonce)
            who = {"jwt": keys.jwt} if keys.jwt else {"nkey": nkeys.public_key(keys.seed)}
        except ValueError as error:
            raise UsageError(f"credentials {credentials}: the NKey seed is damaged: {error}") from error
        return {**who, "sig": signature}
