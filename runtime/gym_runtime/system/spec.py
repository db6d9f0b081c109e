"""The parts of a system: the broker, and pools of workers. It is the supervisor's input."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

import msgspec

from gym_runtime.timing import DRAIN_S
from gym_runtime.workers.adapter import ModelSettings

Kind = Literal["agent", "resource", "model"]

DRAIN_SIGNAL = signal.SIGUSR1
"""How a supervisor tells a worker to drain. Not SIGTERM: schedulers and service managers send that to all
processes at once, and models and environments must outlast the agents that ask them."""

HEALTH_DIR = "GYM_HEALTH_DIR"
"""Names a folder for the probes of a platform. Each worker process that serves has a file there, named by the
process's id. The process's event loop touches the file, so an old file is that of a process that hangs."""

READY_LINE, DRAIN_LINE, WAITING = "ready\n", "drain\n", "waiting for "
"""What a worker writes to its supervisor; the name of what it waits for and a line break follow the last."""

DEFAULT_CAPACITY: dict[Kind, int] = {"agent": 256, "resource": 32768, "model": 32768}


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Workers of one kind that serve the same names.

    Attributes:
        names: agents, environments, or names under which agents ask for the model (``policy``).
        processes: how many workers.
        capacity: per worker: rollouts in flight (agent) or calls in progress; 0 for the kind's default.
        model: which model a model pool serves.
        hosted: pools of environments and models that live in each of its processes; for agents only
            (`gym_runtime.system.hosting`). Their ``processes`` are its own.
    """

    kind: Kind
    names: tuple[str, ...]
    processes: int = 1
    capacity: int = 0
    model: ModelSettings | None = None
    hosted: tuple[PoolSpec, ...] = ()

    @property
    def slots(self) -> int:
        return self.capacity or DEFAULT_CAPACITY[self.kind]


class SystemSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A system to run.

    Attributes:
        pools: what to start.
        nats: the broker's URLs; empty to start one.
        state_dir: where a started broker keeps its streams.
        temporary: that directory is removed at the end.
        prefix: of all subjects and streams, so that several systems can share a broker.
        drain_s: how many seconds the workers together may take to finish their work when they stop; what is
            left then goes back to the queue, which takes up to four seconds more.
        wait_s: how many seconds starting workers wait for a broker, its streams and engines that are not
            there yet.
        log_lines: it logs lines for people, also where standard error is no terminal.
        weak_sandbox: its workers run code with limits only, without isolation.
    """

    pools: tuple[PoolSpec, ...] = ()
    nats: tuple[str, ...] = ()
    state_dir: str = ""
    temporary: bool = False
    prefix: str = "gym"
    drain_s: float = DRAIN_S
    wait_s: float = 0.0
    log_lines: bool = False
    weak_sandbox: bool = False


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that the supervisor reports as one JSON line.

    ``event`` is ``broker`` (with ``url``), ``ready`` (one worker, and the ``pools`` it serves),
    ``waiting`` (``reason`` is what for), ``all_ready``, ``restarted`` (with the ``reason``), ``drained`` (a
    worker left as it was asked to), ``failed`` (it gave up; ``reason`` is the message for the user) or
    ``stopped``.
    """

    event: Literal["broker", "waiting", "ready", "all_ready", "restarted", "drained", "failed", "stopped"]
    url: str = ""
    worker: str = ""
    kind: str = ""
    pools: tuple[str, ...] = ()
    pid: int = 0
    reason: str = ""


encode = msgspec.json.Encoder().encode
decode_system = msgspec.json.Decoder(SystemSpec).decode
decode_event = msgspec.json.Decoder(Event).decode


def health_file(pid: int) -> Path | None:
    """The file by which a worker process shows that it serves; None if `HEALTH_DIR` names no folder."""
    folder = os.environ.get(HEALTH_DIR)
    return Path(folder) / str(pid) if folder else None
