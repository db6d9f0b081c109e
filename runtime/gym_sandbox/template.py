"""A template: imports once, then forks a sandbox for each program.

    worker ──a byte, descriptors──▶ template ──clone, in new namespaces──▶ first process ──fork──▶ program
       │   ◀──────pidfd────────────                                         ▲         │
       └───────────────────settings─────────────────────────────────────────┘         │
       ◀───────────────────exit code──────────────────────────────────────────────────┘

A script, which imports nothing but the standard library. It runs in its own sandbox, which shows it
what programs may see (`gym_sandbox.bubblewrap.arguments`). It reads nothing of a program, so that no fork
finds what another was told. Programs cannot reach it: it is outside of their pid namespaces, not dumpable,
and the descriptors that it has are closed before they start.

The first process of the new namespaces reads the settings, mounts what a sandbox has for itself (`/tmp`,
`/dev/shm`, `/dev/pts`, `/proc`), becomes the sandbox's user, drops all privileges for ever, and then starts
the program. It ends with the program, and the kernel ends all others of the pid namespace with it.
"""

from __future__ import annotations

import array
import ctypes
import faulthandler
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
# From linux/sched.h. The first are of mounts, host names, IPC, processes and networks.
NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
NEW_USERS, NEW_GROUPS, PIDFD = 0x10000000, 0x02000000, 0x1000
# From linux/mount.h.
READ_ONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
# From linux/prctl.h, seccomp.h and capability.h.
SET_DUMPABLE, SET_SECCOMP, DROP_FROM_BOUNDS, NO_NEW_PRIVILEGES, AMBIENT = 4, 22, 24, 38, 47
FILTER, CLEAR_ALL, CAPABILITIES_VERSION = 2, 4, 0x20080522
SET_INTERFACE, UP = 0x8914, 0x41  # from linux/sockios.h and if.h
COVERED = ("sys", "sysrq-trigger", "irq", "bus")
MOST_DESCRIPTORS = 1 << 20
LAST_WORD = 3  # the descriptor with which a script that is the first process tells its end
NOT_EXECUTABLE, NOT_FOUND = 126, 127
_library = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class Template:
    """What forks find.

    Args:
        control: a socket to the worker.
        script: the text of a module that is imported now, and whose `main` is called in forks; may be empty.
        filters: the seccomp program of sandboxes.
        own_users: each sandbox has a user namespace, because this process may not set its user.
    """

    def __init__(self, control: int, script: str, filters: bytes, *, own_users: bool) -> None:
        self._worker = socket.socket(fileno=control)
        self._filter = _Filter(len(filters) // 8, filters)
        self._own_users = own_users
        self._script = ModuleType("script")
        exec(compile(script, "<script>", "exec"), self._script.__dict__)

    def serve(self) -> None:
        """Fork for each message, until the worker closes its end.

        A message is a byte and four descriptors: a channel for settings and exit code, and the program's
        standard input, output and errors.
        """
        _prctl(SET_DUMPABLE, 0)
        # Such as that of a namespace (`gym_sandbox.bubblewrap.command`).
        os.closerange(3, self._worker.fileno())
        os.closerange(self._worker.fileno() + 1, MOST_DESCRIPTORS)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes children that have ended
        # A collection in a fork would write to every object, and so copy every page.
        gc.collect()
        gc.freeze()
        self._worker.sendall(b"r")
        while descriptors := self._next():
            self._fork(descriptors)
            for descriptor in descriptors:
                os.close(descriptor)

    def _next(self) -> list[int]:
        found = array.array("i")
        _, ancillary, _, _ = self._worker.recvmsg(1, socket.CMSG_SPACE(4 * found.itemsize))
        for _, _, content in ancillary:
            found.frombytes(content)
        return list(found)

    def _fork(self, descriptors: list[int]) -> None:
        pidfd = ctypes.c_int(-1)
        flags = NEW_NAMESPACES | PIDFD | signal.SIGCHLD | (NEW_USERS if self._own_users else 0)
        # Without the C library, whose `fork` makes no namespaces. What it would set right is set right when
        # this child forks the program.
        pid = _library.syscall(CLONE, ctypes.c_ulong(flags), None, ctypes.byref(pidfd), None, None)
        if pid == 0:
            self._begin(descriptors)
        with socket.socket(fileno=os.dup(descriptors[0])) as channel, suppress(OSError):
            if pid < 0:
                channel.sendall(b"!" + os.strerror(ctypes.get_errno()).encode() + b"\n")
            else:
                socket.send_fds(channel, [b"p"], [pidfd.value])
        if pidfd.value >= 0:
            os.close(pidfd.value)

    def _begin(self, descriptors: list[int]) -> NoReturn:
        """The first process of the new namespaces."""
        try:
            self._worker.close()
            channel = socket.socket(fileno=descriptors[0])
            try:
                settings = json.loads(_exactly(channel, int.from_bytes(_exactly(channel, 8), "big")))
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                self._isolate(settings)
                channel.sendall(b"s")
                # A script that forks itself may be the first process, whose signals are not those of others.
                pid = 0 if settings["forks"] else os.fork()
            except BaseException as error:
                channel.sendall(f"!{error}\n".encode(errors="replace"))
                raise
            if pid == 0:
                self._be_the_program(settings, descriptors, channel if settings["forks"] else None)
            # The program's pipes stay open here: a reader that comes to their end finds the exit code.
            ended, status = os.wait()
            while ended != pid:  # orphans become children of this process
                ended, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            channel.sendall(str(code if code >= 0 else 128 - code).encode())
        finally:
            os._exit(0)

    def _isolate(self, settings: dict[str, Any]) -> None:
        user = settings["user"]
        if self._own_users:
            _prctl(SET_DUMPABLE, 1)  # else these files are root's
            mapping = f"{user} {user} 1"
            for name, text in (("setgroups", "deny"), ("uid_map", mapping), ("gid_map", mapping)):
                _write(f"/proc/self/{name}", text)
            _write("/proc/sys/user/max_user_namespaces", "0")
        os.setsid()
        # The worker has moved this process into its control group by now.
        _checked(_library.unshare(NEW_GROUPS), "unshare")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SET_INTERFACE, struct.pack("16sh14x", b"lo", UP))
        _mount("", "/", "", RECURSIVE | PRIVATE)
        below = [(place, os.open(place, os.O_PATH)) for place in settings["below"]]
        own = f"mode=755,uid={user},gid={user}"
        _mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV, f"{own},size={settings['disk_bytes']}")
        _mount("tmpfs", "/dev/shm", "tmpfs", NOSUID | NODEV, f"{own},size={settings['disk_bytes']}")
        for place, descriptor in below:
            _show_again(place, f"/proc/self/fd/{descriptor}")
            os.close(descriptor)
        _mount("devpts", "/dev/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")
        _mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
        for name in COVERED:
            if os.path.exists(place := f"/proc/{name}"):
                _mount(place, place, "", BIND | RECURSIVE)
                _mount("", place, "", BIND | REMOUNT | READ_ONLY | NOSUID | NODEV | NOEXEC)
        # The working directory is still the template's, below the new one.
        os.chdir("/tmp")
        self._drop(user)

    def _drop(self, user: int) -> None:
        """Become the sandbox's user, without privileges, and never to get any."""
        number = 0
        while _library.prctl(DROP_FROM_BOUNDS, number, 0, 0, 0) == 0:
            number += 1
        _checked(_library.prctl(AMBIENT, CLEAR_ALL, 0, 0, 0), "prctl")
        if not self._own_users:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        _checked(_library.capset(struct.pack("Ii", CAPABILITIES_VERSION, 0), bytes(24)), "capset")
        _prctl(SET_DUMPABLE, 0)
        _prctl(NO_NEW_PRIVILEGES, 1)
        _checked(_library.prctl(SET_SECCOMP, FILTER, ctypes.byref(self._filter), 0, 0), "seccomp")

    def _be_the_program(
        self, settings: dict[str, Any], descriptors: list[int], channel: socket.socket | None
    ) -> NoReturn:
        """Run it; where it is the first process, with the channel to tell its end. Its forks lack that."""
        code = 1
        try:
            for place, descriptor in enumerate(descriptors[1:]):
                os.dup2(descriptor, place)
            if channel:
                os.dup2(channel.fileno(), LAST_WORD)
                os.set_inheritable(LAST_WORD, False)
                faulthandler.enable(LAST_WORD, all_threads=False)
                os.register_at_fork(after_in_child=_be_silent)
            os.closerange(LAST_WORD + bool(channel), MOST_DESCRIPTORS)
            _prctl(SET_DUMPABLE, 1)
            signal.signal(signal.SIGTERM, signal.SIG_IGN if settings["outlives_sigterm"] else signal.SIG_DFL)
            for limit, most in settings["limits"]:
                resource.setrlimit(limit, (most, most))
            if settings["command"]:
                _execute(settings["command"])
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.modules["__main__"] = self._script
            sys.argv = ["-c", *settings["arguments"]]
            code = 0
            self._script.main(settings["arguments"])
            sys.stdout.flush()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:  # noqa: BLE001 - as Python ends
            code = 1
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            if channel:
                with suppress(OSError):
                    os.write(LAST_WORD, str(code & 0xFF).encode())
            os._exit(code & 0xFF)


def _be_silent() -> None:
    faulthandler.disable()
    with suppress(OSError):
        os.close(LAST_WORD)


def _execute(command: list[str]) -> NoReturn:
    # Python ignores them, and what it executes would.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def _exactly(channel: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = channel.recv(size - len(received))
        if not piece:
            os._exit(0)  # the worker has given the program up
        received += piece
    return bytes(received)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _show_again(place: str, shown: str) -> None:
    """Mount a path that a new folder covers."""
    if os.path.isdir(shown):
        os.makedirs(place, exist_ok=True)
    elif not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        open(place, "x").close()
    _mount(shown, place, "", BIND | RECURSIVE)


def _mount(source: str, place: str, kind: str, flags: int, options: str = "") -> None:
    texts = [text.encode() or None for text in (source, place, kind)]
    done = _library.mount(*texts, ctypes.c_ulong(flags), options.encode() or None)
    _checked(done, f"mount of {place}")


def _prctl(option: int, value: int) -> None:
    _checked(_library.prctl(option, value, 0, 0, 0), "prctl")


def _checked(returned: int, call: str) -> None:
    if returned < 0:
        raise OSError(f"{call}: {os.strerror(ctypes.get_errno())}")
