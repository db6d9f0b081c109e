"""A real Slurm on a cluster of namespaces: one controller, a daemon on each other host (Debian packages)."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.namespaces import Cluster

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "setpriv")
_CONFIGURATION = """\
ClusterName=gym
SlurmctldHost={head}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=30
GresTypes=gpu
NodeName={nodes} CPUs=8 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Slurm's commands, run on the controller's host.

    Attributes:
        variables: the environment of commands and jobs.
    """

    def __init__(self, hosts: Cluster, folder: Path, variables: dict[str, str]) -> None:
        self._hosts = hosts
        self._folder = folder
        self.variables = {**os.environ, **variables, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command: str) -> str:
        """A command's standard output."""
        return self._hosts.run(self._hosts.hosts[0], *command, env=self.variables, cwd=self._folder)

    def jobs(self, name: str) -> list[str]:
        """The ids of the jobs of a name that run or wait."""
        return self.run("squeue", "--noheader", "--array", f"--name={name}", "--format=%i").split()

    def until_idle(self) -> None:
        """Return when every node takes jobs."""
        give_up = time.monotonic() + 30
        states: set[str] = set()
        while states != {"idle"}:
            assert time.monotonic() < give_up, states
            time.sleep(0.2)
            states = set(self.run("sinfo", "--noheader", "--format=%T").split())


@contextmanager
def slurm(hosts: Cluster, folder: Path, *, more: str = "", **variables: str) -> Generator[Slurm]:
    """Slurm until the end of the block; its jobs are cancelled.

    Args:
        more: lines of its configuration.
        variables: jobs' environment.
    """
    head, *nodes = hosts.hosts
    for name in ("state", *(f"spool/{node}" for node in nodes)):
        (folder / name).mkdir(parents=True)
    # Its own user must be able to get there, which pytest's folders do not allow.
    munge = Path(tempfile.mkdtemp(prefix="munge-"))
    munge.chmod(0o755)
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(head=head, folder=folder, munge=munge, nodes=",".join(nodes)) + more
    )
    shutil.chown(munge, "munge", "munge")
    # Pretended GPUs: any devices do (here two more of /dev/null), since task/none keeps no step from them.
    for number in range(2):
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
    _write_key(munge / "key")
    made = Slurm(hosts, folder, variables)
    paths = [f"--{name}-file={munge / name}" for name in ("key", "log", "pid", "seed")]
    user = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
    daemons = [
        [*user, "munged", "--foreground", f"--socket={munge / 'socket'}", *paths],
        hosts.command(head, "slurmctld", "-D", "-c"),
        *(hosts.command(node, "slurmd", "-D", "-N", node) for node in nodes),
    ]
    running: list[subprocess.Popen[bytes]] = []
    log = (folder / "daemons.log").open("wb")
    try:
        for daemon in daemons:
            running.append(subprocess.Popen(daemon, env=made.variables, stdout=log, stderr=log))
        made.until_idle()
        yield made
    finally:
        with suppress(AssertionError):
            made.run("scancel", "--user=root")
            give_up = time.monotonic() + 40
            while made.run("squeue", "--noheader") and time.monotonic() < give_up:
                time.sleep(0.5)
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(munge)


def _write_key(path: Path) -> None:
    path.write_bytes(os.urandom(128))
    path.chmod(0o600)
    shutil.chown(path, "munge", "munge")
