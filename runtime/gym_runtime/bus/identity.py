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

from gym_runtime.bus.addresses import Addresses
from gym_runtime.errors import UsageError

CREDENTIALS = "GYM_NATS_CREDENTIALS"
CA = "GYM_NATS_CA"
CERTIFICATE = "GYM_NATS_CERTIFICATE"
KEY = "GYM_NATS_KEY"

_JWT = b"BEGIN NATS USER JWT"
_SEED = re.compile(rb"SU[A-Z2-7]{56}")


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


def is_jwt(credentials: Path) -> bool:
    """Whether a credentials file is a ``.creds`` file; otherwise it holds a bare seed.

    Raises:
        UsageError: It cannot be read, or is neither.
    """
    try:
        content = credentials.read_bytes()
    except OSError as error:
        raise UsageError(f"credentials {credentials}: {error.strerror}") from error
    if _JWT in content:
        return True
    if _SEED.fullmatch(content.strip()):
        return False
    raise UsageError(f"credentials {credentials}: neither an NKey seed of a user (SU…) nor a .creds file")
