"""Join files: all that a process needs to reach a secured broker, in one file that its environment names.

It holds the broker's URLs, the certificate authority that signed the broker's certificate, and the secret key
of one role, or of several: a trainer that serves its own engine is a client and a model worker at once.
``gym-runtime broker`` writes one for each role, and one for such trainers; anything that takes a broker's URL
takes the path of such a file. Blocks are as in NATS's ``.creds`` files and in PEM, so that other tools can
read them as well.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import msgspec

from gym_runtime.errors import NotThereYet, UsageError

_URL = re.compile(r"^url (\S+)$", re.MULTILINE)
_AUTHORITY = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", re.DOTALL)
_KEY = re.compile(r"role '(\w+)'|\b(SU[A-Z2-7]{56})\b")


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a join file; ``authority`` is PEM, ``seeds`` are the secret keys by role."""

    urls: tuple[str, ...]
    authority: str = ""
    seeds: dict[str, str] = {}

    def trust(self) -> ssl.SSLContext:
        """How TLS is spoken to these brokers.

        Raises:
            UsageError: the authority is damaged.
        """
        try:
            context = ssl.create_default_context(cadata=self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"the certificate authority of a join file is damaged: {error}") from error
        # Authorities of join files that earlier versions made do not say what their key is for, which Python
        # refuses from 3.13 on.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
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
        text = path.read_text()
    except FileNotFoundError:
        raise NotThereYet(f"there is no join file {path}: 'gym-runtime broker' writes it") from None
    except (OSError, UnicodeDecodeError) as error:
        # A UnicodeDecodeError has no `strerror`.
        raise UsageError(f"join file {path}: {getattr(error, 'strerror', None) or error}") from error
    urls, authority, seeds = _URL.findall(text), _AUTHORITY.search(text), seeds_of(text)
    if not urls or authority is None or not seeds:
        raise UsageError(
            f"join file {path}: it needs the broker's URL, a certificate authority and a key, as files have "
            "that 'gym-runtime broker' writes"
        )
    return Join(urls=tuple(urls), authority=authority[0], seeds=seeds)


def names_file(url: str) -> bool:
    """Whether what was given as a broker's URL is the path of a join file.

    >>> names_file("nats://10.0.0.5:4222"), names_file("/run/gym/agent.join"), names_file("broker.example")
    (False, True, False)
    """
    return "://" not in url and (url.endswith(".join") or "/" in url)
