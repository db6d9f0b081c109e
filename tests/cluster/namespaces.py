"""A cluster of hosts on one machine: network namespaces that a switch joins. Linux, as root.

Nothing is added to the machine's own network. Each host has its address, its name and an ``/etc/hosts`` of
its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("ip", "nsenter", "unshare")


def lacking(*programs: str) -> str:
    """Why a cluster cannot be made here; empty if it can."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [program for program in (*PROGRAMS, *programs) if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


class Cluster:
    """Hosts by their names.

    Args:
        folder: for their files.
    """

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self.hosts = tuple(hosts)
        self._file = folder / "hosts"
        self._tag = secrets.token_hex(2)
        self._switch = f"switch-{self._tag}"

    def _space(self, host: str) -> str:
        return f"{host}-{self._tag}"

    def make(self) -> None:
        """Make the namespaces."""
        self._ip("netns", "add", self._switch)
        self._ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        self._ip("-n", self._switch, "link", "set", "bridge", "up")
        lines = ["127.0.0.1 localhost"]
        for number, host in enumerate(self.hosts, start=10):
            space, port = self._space(host), f"port{number}"
            self._ip("netns", "add", space)
            self._ip("-n", space, "link", "set", "lo", "up")
            ends = ["eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", self._switch]
            self._ip("link", "add", *ends)
            self._ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
            self._ip("-n", space, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            self._ip("-n", space, "link", "set", "eth0", "up")
            lines.append(f"10.99.0.{number} {host}")
        self._file.write_text("\n".join(lines) + "\n")

    def remove(self) -> None:
        """Remove the namespaces; links go with them."""
        for space in (*map(self._space, self.hosts), self._switch):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def kill(self, host: str) -> None:
        """End all processes of a host at once, as a loss of power does."""
        command = ["ip", "netns", "pids", self._space(host)]
        for process in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def cut(self, host: str) -> None:
        """Take a host's link down: what is sent is lost, and no connection is told."""
        self._link(host, "down")

    def heal(self, host: str) -> None:
        """Take it up again."""
        self._link(host, "up")

    def _link(self, host: str, state: str) -> None:
        port = f"port{self.hosts.index(host) + 10}"
        self._ip("-n", self._switch, "link", "set", port, state)

    def command(self, host: str, *command: str) -> list[str]:
        """The command line that runs a command on a host.

        Not ``ip netns exec``: it mounts ``/sys`` again, without the control groups below it.
        """
        setting = 'mount --bind "$1" /etc/hosts; hostname "$2"; shift 2; exec "$@"'
        inside = ["unshare", "--mount", "--uts", "bash", "-c", setting, "-", str(self._file), host]
        return ["nsenter", f"--net=/run/netns/{self._space(host)}", *inside, *command]

    def run(self, host: str, *command: str, **more: Any) -> str:
        """Run a command on a host; its standard output."""
        done = subprocess.run(
            self.command(host, *command), capture_output=True, text=True, check=False, timeout=60, **more
        )
        assert done.returncode == 0, f"{command} on {host}: {done.stdout}{done.stderr}"
        return done.stdout

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


@contextmanager
def cluster(folder: Path, *hosts: str) -> Generator[Cluster]:
    """Hosts until the end of the block."""
    made = Cluster(folder, hosts)
    try:
        made.make()
        yield made
    finally:
        made.remove()
