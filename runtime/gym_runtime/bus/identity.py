"""Who we are to a broker and whom we take for one: files that environment variables name.

========================  =================================================================================
``GYM_NATS_CREDENTIALS``  a file with an NKey seed (``SU…``), a NATS ``.creds`` file, or a join file
``GYM_NATS_CA``           the certificate authority that signed the broker's certificate, PEM
``GYM_NATS_CERTIFICATE``  our own certificate, PEM, for brokers that ask for one …
``GYM_NATS_KEY``          … and its private key
========================  =================================================================================

So no argument holds a secret, and workers inherit what they need. If a broker's URL carries a password or a
token, nothing else is sent to it: the private broker that a run starts for itself is an example.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from gym_runtime.bus.addresses import Addresses
from gym_runtime.bus.join import seeds_of
from gym_runtime.errors import UsageError

CREDENTIALS = "GYM_NATS_CREDENTIALS"
CA = "GYM_NATS_CA"
CERTIFICATE = "GYM_NATS_CERTIFICATE"
KEY = "GYM_NATS_KEY"
SEED_BYTES = 32

# A seed is 36 bytes in base32: its prefix, 32 secret bytes and a checksum.
_SEED = re.compile(rb"SU[A-Z2-7]{56}")
_SEED_OF_CREDS = re.compile(rb"BEGIN USER NKEY SEED-+\s+(SU[A-Z2-7]{56})\s")
_JWT = re.compile(rb"BEGIN NATS USER JWT-+\s+([A-Za-z0-9_.=-]+)\s")


def credentials_for(where: Addresses, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The credentials file for a broker; None where its URL says who we are, or no file is named."""
    named = environment.get(CREDENTIALS)
    # A URL with a user or a token is that of the private broker of a run, which knows no keys.
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


def read_keys(credentials: Path, role: str = "client") -> Keys:
    """The content of a credentials file; of keys for several roles, the one for ours.

    Raises:
        UsageError: It cannot be read, or holds neither a seed nor a ``.creds`` file's JWT and seed, or only
            keys of other roles.
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
    by_role = seeds_of(content.decode(errors="replace"))
    if len(by_role) > 1:
        if role not in by_role:
            raise UsageError(f"credentials {credentials}: no key of role '{role}', only {', '.join(by_role)}")
        return Keys(by_role[role])
    return Keys(seed[1].decode(), jwt[1].decode() if jwt else "")


def new_seed() -> str:
    """A new secret key of a user, as an NKey seed (``SU…``)."""
    import nkeys

    return nkeys.encode_seed(secrets.token_bytes(SEED_BYTES), nkeys.PREFIX_BYTE_USER).decode()


def public_key(seed: str) -> str:
    """The public key of a user; brokers are configured with it.

    Raises:
        ValueError: The seed is not one of a user, or damaged.
    """
    import nkeys  # it loads PyNaCl, which takes 30 ms

    try:
        _, raw = nkeys.decode_seed(seed.encode())
        if nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER).decode() != seed:  # nkeys checks no checksum
            raise ValueError("its checksum does not match, or it is not the seed of a user (SU…)")
        return cast("bytes", nkeys.from_seed(seed.encode()).public_key).decode()
    except nkeys.NkeysError as error:
        raise ValueError(str(error)) from error


def sign(seed: str, nonce: str) -> bytes:
    """The signature of what a broker asks to be signed, in base64."""
    import nkeys

    return base64.b64encode(nkeys.from_seed(seed.encode()).sign(nonce.encode()))


def proof(where: Addresses, credentials: Path | None, role: str, guard: Callable[[], None]) -> dict[str, Any]:
    """Who we are, as arguments of nats-py's ``connect``; ``guard`` is called before any of it is sent.

    The file is read for each connection, so that it can be replaced before a JWT expires.

    Raises:
        UsageError: The credentials file cannot be used.
    """

    def guarded(secret: str | None) -> Callable[[], str | None]:
        def tell() -> str | None:
            guard()
            return secret

        return tell

    # nats-py asks for the token after it has signed, also where there is none.
    told: dict[str, Any] = {"token": guarded(where.token)}
    if where.user is not None:
        told |= {"user": guarded(where.user), "password": guarded(where.password)}
    if credentials is None:
        return told
    keys = read_keys(credentials, role)
    try:
        public_key(keys.seed)
    except ValueError as error:
        raise UsageError(f"credentials {credentials}: the NKey seed is damaged: {error}") from error
    if not keys.jwt:
        return told | {"nkeys_seed_str": keys.seed}
    return told | {"signature_cb": partial(sign, keys.seed), "user_jwt_cb": keys.jwt.encode}
