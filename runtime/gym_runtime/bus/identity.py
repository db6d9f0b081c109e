"""Where brokers are, who we are to them and whom we take for one: URLs, files, and join files.

========================  =================================================================================
``GYM_NATS_CREDENTIALS``  a file with an NKey seed (``SU…``), a NATS ``.creds`` file, or a join file
``GYM_NATS_CA``           the certificate authority that signed the broker's certificate, PEM
``GYM_NATS_CERTIFICATE``  our own certificate, PEM, for brokers that ask for one …
``GYM_NATS_KEY``          … and its private key
========================  =================================================================================

So no argument holds a secret, and workers inherit what they need. If a broker's URL carries a password or a
token, nothing else is sent to it: the private broker that a run starts for itself is an example.

A join file is all that a process needs to reach a secured broker: its URLs, the certificate authority that
signed its certificate, and the secret key of one role, or of several: a trainer that serves its own engine is
a client and a model worker at once. ``gym-runtime broker`` writes one for each role, and one for such
trainers; anything that takes a broker's URL takes the path of such a file. Blocks are as in NATS's ``.creds``
files and in PEM, so that other tools can read them as well.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from gym_runtime.errors import NotThereYet, UsageError

CREDENTIALS = "GYM_NATS_CREDENTIALS"
CA = "GYM_NATS_CA"
CERTIFICATE = "GYM_NATS_CERTIFICATE"
KEY = "GYM_NATS_KEY"
SEED_BYTES = 32

_NO_PAIR = (
    f"a certificate and its private key in PEM are needed, in one file or in two ({CERTIFICATE}, {KEY})"
)
_JWT = re.compile(r"BEGIN NATS USER JWT-+\s+([A-Za-z0-9_.=-]+)\s")

SCHEMES = ("nats", "tls")


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers of one cluster, and who we are there: a user with a password, or a token, or neither.

    Credentials hold for all brokers, also for those that the cluster names later.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @property
    def shown(self) -> str:
        """For messages: without credentials."""
        return ", ".join(without_credentials(url) for url in self.urls)


def parse(url: str | Sequence[str]) -> Addresses:
    """``nats://user:password@host:port``, ``tls://token@host``, ``host``; several, or joined by commas.

    Raises:
        UsageError: no URL is given, or one is not a NATS URL.
    """
    given = [url] if isinstance(url, str) else list(url)
    urls = [one.strip() for several in given for one in several.split(",") if one.strip()]
    if not urls:
        raise UsageError("no broker given: expected a URL such as nats://127.0.0.1:4222")
    urls = [one if "://" in one else f"nats://{one}" for one in urls]
    # The first URL with credentials counts for all, as `Addresses` promises.
    named: tuple[str | None, str | None] = (None, None)
    for one in urls:
        parts = _split(one)
        if parts.username and named[0] is None:
            named = (unquote(parts.username), None if parts.password is None else unquote(parts.password))
    user, password = named
    if password is None:
        # As with other NATS clients: a name without a password is a token.
        return Addresses(urls=tuple(urls), token=user)
    return Addresses(urls=tuple(urls), user=user, password=password)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        # What no host can be called is a ValueError, too.
        if parts.scheme in SCHEMES and (parts.hostname or "").encode("idna") and parts.port != 0:
            return parts
    except ValueError:
        pass
    # The URL may hold a password, so the message shows it without its credentials.
    raise UsageError(f"broker {without_credentials(url)!r}: expected nats://HOST:PORT or tls://HOST:PORT")


def without_credentials(url: str) -> str:
    """A URL as it may be shown."""
    scheme, _, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme or 'nats'}://{authority.rpartition('@')[2]}{slash}{path}"


# -- join files

_URL = re.compile(r"^url (\S+)$", re.MULTILINE)
_AUTHORITY = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", re.DOTALL)
# A seed is 36 bytes in base32: its prefix, 32 secret bytes and a checksum.
_KEY = re.compile(r"role '(\w+)'|\b(SU[A-Z2-7]{56})\b")


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a join file; ``authority`` is PEM, ``seeds`` are the secret keys by role."""

    urls: tuple[str, ...]
    authority: str = ""
    seeds: dict[str, str] = {}

    def trust(self) -> ssl.SSLContext:
        """How TLS is spoken to these brokers, with our certificate if the environment names one.

        Raises:
            UsageError: the authority is damaged, or our certificate cannot be used.
        """
        try:
            context = ssl.create_default_context(cadata=self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"the certificate authority of a join file is damaged: {error}") from error
        # Authorities of join files that earlier versions made do not say what their key is for, which Python
        # refuses from 3.13 on.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        _show_certificate(context, os.environ)
        return context


def write_join(join: Join) -> str:
    """A join file's text."""
    urls = "".join(f"url {url}\n" for url in join.urls)
    keys = "".join(
        f"# For a process of the role '{role}' of gym-runtime:\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        for role, seed in join.seeds.items()
    )
    return f"# GYM_NATS_URL=THIS_FILE. It holds secrets.\n{urls}{keys}{join.authority}"


def seeds_of(text: str) -> dict[str, str]:
    """The secret keys in a file, by role; the role is empty where the file does not say it.

    >>> seeds_of("# For the role 'client':\\n" + "SU" + 56 * "A")
    {'client': 'SUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'}
    """
    found: dict[str, str] = {}
    named = ""
    for role, seed in _KEY.findall(text):
        if role:
            named = role
        else:
            found.setdefault(named, seed)
    return found


def read_join(path: Path) -> Join:
    """A join file's content.

    Raises:
        NotThereYet: it does not exist.
        UsageError: it cannot be read, or lacks something.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        raise NotThereYet(f"there is no join file {path}: 'gym-runtime broker' writes it") from None
    except OSError as error:
        raise UsageError(f"join file {path}: {error.strerror}") from error
    urls, authority, seeds = _URL.findall(text), _AUTHORITY.search(text), seeds_of(text)
    if not urls or authority is None or not seeds:
        raise UsageError(
            f"join file {path}: it needs the broker's URL, a certificate authority and a key, as files have "
            "that 'gym-runtime broker' writes"
        )
    # Once each: files of several roles may have been put together.
    return Join(urls=tuple(dict.fromkeys(urls)), authority=authority[0], seeds=seeds)


def names_file(url: str) -> bool:
    """Whether what was given as a broker's URL is the path of a join file.

    >>> names_file("nats://10.0.0.5:4222"), names_file("/run/gym/agent.join"), names_file("broker.example")
    (False, True, False)
    """
    return "://" not in url and (url.endswith(".join") or "/" in url)


# -- credentials and trust


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
    authority, certificate = environment.get(CA), environment.get(CERTIFICATE)
    if environment.get(KEY) and not certificate:
        raise UsageError(f"{KEY} is set and {CERTIFICATE} is not: a private key needs its certificate")
    if not authority and not certificate:
        return None
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except ssl.SSLError as error:
        raise UsageError(f"{CA}={authority}: no certificates in PEM ({error.reason})") from error
    except OSError as error:
        raise UsageError(f"{CA}={authority}: {error.strerror}") from error
    _show_certificate(context, environment)
    return context


def _show_certificate(context: ssl.SSLContext, environment: Mapping[str, str]) -> None:
    certificate, key = environment.get(CERTIFICATE), environment.get(KEY)
    if not certificate:
        return
    given = f"{CERTIFICATE}={certificate}, {KEY}={key or ''}"

    def no_phrase() -> str:
        # Otherwise OpenSSL asks for it at the terminal, once for each process.
        raise UsageError(f"{given}: the key is encrypted; store it without a pass phrase: openssl pkey")

    try:
        for path in filter(None, (certificate, key)):
            with Path(path).open("rb"):
                pass
        context.load_cert_chain(certificate, key or None, no_phrase)
    except ssl.SSLError as error:
        what = "they do not belong together" if error.reason == "KEY_VALUES_MISMATCH" else _NO_PAIR
        raise UsageError(f"{given}: {what}") from error
    except OSError as error:
        raise UsageError(f"{given}: {error.filename}: {error.strerror}") from error


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
        content = credentials.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"credentials {credentials}: {error.strerror}") from error
    jwt, seeds = _JWT.search(content), seeds_of(content)
    if not seeds:
        raise UsageError(
            f"credentials {credentials}: neither an NKey seed of a user (SU…) nor a .creds or .join file"
        )
    # What a key without a role is for, its broker knows.
    seed = seeds.get(role) or seeds.get("")
    if seed is None:
        remedy = f"take {role}.join of the broker's folder, or add it to this file"
        if role == "agent" and "client" in seeds:
            remedy += ", or send rollouts to workers that run: 'gym-runtime publish', then 'collect'"
        raise UsageError(
            f"credentials {credentials}: no key of role '{role}', only {', '.join(seeds)}; {remedy}"
        )
    return Keys(seed, jwt[1] if jwt else "")


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
