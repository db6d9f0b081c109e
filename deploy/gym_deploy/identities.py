"""Keys, certificates and join files for a broker that others can reach.

`make` fills a folder that only its owner can read:

==========================  ==============================================================================
``identities.conf``         the roles' public keys, which the broker's configuration includes
``ca.pem``, ``ca.key``      the certificate authority; its key signs the brokers' certificates
``NODE.pem``, ``NODE.key``  the certificate and key of a broker
``ROLE.seed``               the secret key of a client, agent, resource or model
``site.seed``               the secret key of the brokers of other sites
``join/ROLE.join``          all that a process of this role needs: addresses, authority and key
``join/trainer.join``       the same for a trainer that serves its own engine: the keys of client and model
==========================  ==============================================================================

Existing files are kept, so it may run again for another node. Several nodes may share the folder.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from gym_runtime.bus import Join, new_seed, public_key, write_join
from gym_runtime.errors import UsageError
from gym_runtime.logs import logger
from gym_runtime.own_files import open_own, replacing

ROLES = ("client", "agent", "resource", "model")
JOINS = {**{role: (role,) for role in ROLES}, "trainer": ("client", "model")}
"""The roles whose keys each join file holds."""
SITE = "site"
LIFE = timedelta(days=3650)
BEFORE = timedelta(days=1)
"""Certificates are valid since then: other machines' clocks may be behind this one's."""
AUTHORITY = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
# Brokers of a cluster and of other sites are each other's clients.
BROKER = (
    "basicConstraints=critical,CA:FALSE",
    "keyUsage=critical,digitalSignature",
    "extendedKeyUsage=serverAuth,clientAuth",
)
# Of the commands of openssl, before version 3.4 'ca' alone takes the time since when a certificate is valid.
_SIGNING = """
[ca]
default_ca = here
[here]
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = extensions
[any]
commonName = supplied
[extensions]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def make(folder: Path, *, node: str, hosts: Sequence[str], urls: Sequence[str], leaves: bool = False) -> None:
    """Fill a folder for one broker.

    Args:
        node: the broker's name, which its files get.
        hosts: the names and addresses that its certificate is for.
        urls: where workers and clients reach the broker, or all of a cluster.
        leaves: there are other sites.

    Raises:
        UsageError: openssl is missing or fails, the folder cannot be written, or half of the authority is
            missing.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "join").mkdir(mode=0o700, exist_ok=True)
        with _alone(folder):
            authority, key = folder / "ca.pem", folder / "ca.key"
            _make_authority(authority, key)
            names = ",".join(f"{'IP' if is_address(host) else 'DNS'}:{host}" for host in dict.fromkeys(hosts))
            by = ["-cert", str(authority.absolute()), "-keyfile", str(key.absolute())]
            # Made for each start: the names may be others.
            pair = folder / f"{node}.pem", folder / f"{node}.key"
            _sign(*pair, f"/CN={node}", (*BROKER, f"subjectAltName={names}"), *by)
            # That of sites also without any: nodes with copies of the folder would later make one each.
            seeds = {role: _seed(folder / f"{role}.seed") for role in (*ROLES, SITE)}
            used = seeds if leaves else {role: seeds[role] for role in ROLES}
            public = [f'{role.upper()}: "{_public(folder, role, seed)}"\n' for role, seed in used.items()]
            write_secret(folder / "identities.conf", "".join(public))
            for name, roles in JOINS.items():
                chosen = {role: seeds[role] for role in roles}
                join = Join(urls=tuple(urls), authority=authority.read_text(), seeds=chosen)
                write_secret(folder / "join" / f"{name}.join", write_join(join))
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror or error}") from error


def _make_authority(certificate: Path, key: Path) -> None:
    # All join files out there hold the certificate: another one would lock their workers out, silently.
    there = [path for path in (certificate, key) if path.exists()]
    if len(there) == 1:
        [missing] = {certificate, key} - set(there)
        raise UsageError(
            f"{there[0]} is there and {missing.name} is missing: restore it from a copy of the folder, "
            f"or delete {there[0].name} for a new authority and hand out the new join files"
        )
    if not there:
        _sign(certificate, key, "/CN=gym-runtime", AUTHORITY)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    with os.fdopen(open_own(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def in_use(folder: Path, node: str) -> Generator[None]:
    """While this lasts, no other broker of this name has the folder: two would write the same streams.

    Raises:
        UsageError: one has it, or the folder cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open_own(folder / f".{node}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror or error}") from error
    with os.fdopen(lock, "w"):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = f"{folder}: a broker '{node}' runs with this folder already"
            raise UsageError(f"{what}; stop it first, or choose another --dir") from None
        except OSError:  # a file system of a network may know no locks
            logger().warning("the folder cannot be locked; start one broker with it only", folder=str(folder))
        yield


def _public(folder: Path, role: str, seed: str) -> str:
    try:
        return public_key(seed)
    except ValueError as error:
        what = f"{folder / role}.seed holds no key ({error})"
        raise UsageError(
            f"{what}; restore it, or delete it for a new key and hand out the new join files"
        ) from None


def _seed(path: Path) -> str:
    if not path.exists():
        write_secret(path, new_seed())
    return path.read_text().strip()


def write_secret(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner can read it."""
    with replacing(path, 0o600) as file:
        file.write(text.encode())


def _sign(certificate: Path, key: Path, subject: str, extensions: Sequence[str], *by: str) -> None:
    """Make a key and its certificate; it signs itself unless ``by`` names an authority."""
    now = datetime.now(UTC)
    since, until = (f"{time:%Y%m%d%H%M%SZ}" for time in (now - BEFORE, now + LIFE))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", str(key.absolute())]
    signer = by or ("-selfsign", "-keyfile", str(key.absolute()))
    valid = ["-startdate", since, "-enddate", until, "-out", str(certificate.absolute())]
    with TemporaryDirectory() as scratch:
        (Path(scratch) / "index").touch()
        (Path(scratch) / "signing").write_text(_SIGNING + "\n".join(extensions) + "\n")
        for command in (
            ["req", "-new", "-nodes", "-subj", subject, *new, "-out", "request"],
            ["ca", "-batch", "-notext", "-config", "signing", "-in", "request", *signer, *valid],
        ):
            _run(certificate, scratch, command)


def _run(certificate: Path, scratch: str, command: list[str]) -> None:
    try:
        done = subprocess.run(
            ["openssl", *command], cwd=scratch, capture_output=True, text=True, umask=0o077, check=False
        )
    except FileNotFoundError:
        raise UsageError("openssl, which makes certificates, is not installed: apt install openssl") from None
    if done.returncode:
        raise UsageError(f"openssl cannot make {certificate}: {done.stderr.strip()}")


def is_address(host: str) -> bool:
    """Whether a host is given by its IP address.

    >>> is_address("10.0.0.5"), is_address("broker.example")
    (True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
