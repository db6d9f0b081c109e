"""Make what a secure broker needs: keys for its four identities, certificates, and its configuration.

    python make_identities.py DIR --host broker.example --host 10.0.0.5

writes into DIR, readable by its owner only:

========================  ================================================================================
``nats.conf``             ``secure.conf`` for this system, for ``nats-server -c``
``identities.conf``       the public keys and paths that it includes
``ROLE.seed``             the secret key of a client, agent, resource or model
``ca.pem``                the certificate authority, public; its key ``ca.key`` signs new certificates
``server.pem``, ``.key``  the broker's certificate and key
========================  ================================================================================

Existing keys are kept, so it can be run again for another host. Needs gym-runtime and the ``openssl``
program.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gym_runtime.bus import nkeys

ROLES = ("client", "agent", "resource", "model")
DAYS = "3650"
TEMPLATE = Path(__file__).with_name("secure.conf")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--host", action="append", help="a name or address of the broker; may be repeated")
    parser.add_argument(
        "--prefix", default="gym", help="of the system's subjects, as in gym-runtime --prefix"
    )
    said = parser.parse_args(arguments)
    os.umask(0o077)
    folder: Path = said.directory.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    make_certificates(folder, said.host or ["localhost", "127.0.0.1"])
    settings = {
        "SERVER_CERTIFICATE": str(folder / "server.pem"),
        "SERVER_KEY": str(folder / "server.key"),
        "CA": str(folder / "ca.pem"),
        "STORE": str(folder / "jetstream"),
        **{role.upper(): public_key(folder / f"{role}.seed") for role in ROLES},
    }
    lines = [f"{name}: {quoted(value)}\n" for name, value in settings.items()]
    (folder / "identities.conf").write_text("".join(lines))
    text = TEMPLATE.read_text().replace("gym_", re.sub(r"\W", "_", said.prefix) + "_")
    (folder / "nats.conf").write_text('include "identities.conf"\n' + text.replace("gym.", f"{said.prefix}."))
    print(f"nats-server -c {folder / 'nats.conf'}")
    for role in ROLES:
        print(f"{role}: GYM_NATS_CREDENTIALS={folder / role}.seed GYM_NATS_CA={folder / 'ca.pem'}")


def public_key(seed: Path) -> str:
    """The public key of a user whose secret key is in a file, which is made if need be."""
    if not seed.exists():
        seed.write_text(nkeys.new_seed())
    return nkeys.public_key(seed.read_text().strip())


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """A certificate authority, unless one exists, and a certificate for the broker under these names."""
    authority, key = folder / "ca.pem", folder / "ca.key"
    if not key.exists():
        sign(authority, key, "/CN=gym-runtime", "basicConstraints=critical,CA:TRUE")
    names = ",".join(f"{'IP' if is_address(host) else 'DNS'}:{host}" for host in hosts)
    by = ["-CA", str(authority), "-CAkey", str(key)]
    sign(folder / "server.pem", folder / "server.key", f"/CN={hosts[0]}", f"subjectAltName={names}", *by)


def sign(certificate: Path, key: Path, subject: str, extension: str, *by: str) -> None:
    command = ["openssl", "req", "-x509", "-nodes", "-days", DAYS, "-subj", subject, "-addext", extension]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", str(key)]
    done = subprocess.run([*command, "-out", str(certificate), *by], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"make_identities: openssl cannot make {certificate}: {done.stderr.strip()}")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    main()
