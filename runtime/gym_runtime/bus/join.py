"""Join files: all that a process needs to reach a secured broker, in one file that its environment names.

It holds the broker's URLs, the certificate authority that signed the broker's certificate, and the secret key
of one role. ``gym-runtime broker`` writes one for each role; anything that takes a broker's URL takes the
path of such a file. Blocks are as in NATS's ``.creds`` files and in PEM, so that other tools can read them as
well.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import msgspec

from gym_runtime.errors import NotThereYet, UsageError

_URL = re.compile(r"^url (\S+)$", re.MULTILINE)
_AUTHORITY = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", re.DOTALL)
_SEED = re.compile(r"SU[A-Z2-7]{56}")


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a join file; ``authority`` is PEM, ``seed`` the secret key."""

    urls: tuple[str, ...]
    authority: str = ""
    seed: str = ""

    def trust(self) -> ssl.SSLContext:
        """How TLS is spoken to these brokers.

        Raises:
            UsageError: the authority is damaged.
        """
        try:
            return ssl.create_default_context(cadata=self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"the certificate authority of a join file is damaged: {error}") from error


def write_join(join: Join, role: str) -> str:
    """A join file's text."""
    urls = "".join(f"url {url}\n" for url in join.urls)
    return (
        f"# For a process of the role '{role}' of gym-runtime: GYM_NATS_URL=THIS_FILE. It holds a secret.\n"
        f"{urls}-----BEGIN USER NKEY SEED-----\n{join.seed}\n------END USER NKEY SEED------\n"
        f"{join.authority}"
    )


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
        raise UsageError(f"join file {path}: {getattr(error, 'strerror', None) or error}") from error
    urls, authority, seed = _URL.findall(text), _AUTHORITY.search(text), _SEED.search(text)
    if not urls or authority is None or seed is None:
        raise UsageError(
            f"join file {path}: it needs the broker's URL, a certificate authority and a key, as files have "
            "that 'gym-runtime broker' writes"
        )
    return Join(urls=tuple(urls), authority=authority[0], seed=seed[0])


def names_file(url: str) -> bool:
    """Whether what was given as a broker's URL is the path of a join file.

    >>> names_file("nats://10.0.0.5:4222"), names_file("/run/gym/agent.join"), names_file("broker.example")
    (False, True, False)
    """
    return "://" not in url and (url.endswith(".join") or "/" in url)
