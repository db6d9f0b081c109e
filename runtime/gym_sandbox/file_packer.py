"""Packs and unpacks the files of containers: a program of its own, beside the worker.

A worker starts it once and asks it through a socket (`gym_sandbox.seen_files`); it forks for each container.
The fork joins the container's mounts, so that each path, and each link that a model's program has made, is
one of the container, whatever changes while it is read. Nothing in the container sees the fork, and it
imports nothing any more. It serves one request after the other, until the container or the worker ends: to
fork and to join cost more than to pack a few files. What it sends and unpacks: `gym_sandbox.layer_archive`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from contextlib import suppress
from hashlib import sha256
from typing import Any, NoReturn

from gym_sandbox.file_walk import COARSE_CLOCK, Listings, Moment, Top, decoded, look, temporary, walk
from gym_sandbox.layer_archive import (
    CHUNK_BYTES,
    MOST_BYTES,
    OWN,
    ZEROS,
    Failed,
    Written,
    header,
    names,
    padding,
    unpack,
)

LIMIT_S = 60
MEMORY_BYTES = 1 << 30
KEPT_KIB = 48 << 10
"""A fork that has used more memory ends after its request; the next one needs another fork."""
OF_ENGINE = ("./etc/hosts", "./etc/hostname", "./etc/resolv.conf", "./run/.containerenv", "./.dockerenv")
"""Files that engines put over those of an image."""
FRAME = struct.Struct("!?I")

_NS_GET_USERNS = 0xB701
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_CAPABILITIES_HEADER = struct.pack("=Ii", 0x20080522, 0)
# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER and CAP_FSETID, both effective and permitted.
_CAPABILITIES = struct.pack("=6I", 0b11111, 0b11111, 0, 0, 0, 0)


# -- requests -------------------------------------------------------------------------------------------


class Connection:
    """Frames to and from the worker: a mark of the last words of a failure, the length, and the bytes."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._unread = bytearray()

    def send(self, *frames: bytes, failed: bool = False) -> None:
        self._socket.sendall(b"".join(FRAME.pack(failed, len(one)) + one for one in frames))

    def receive(self) -> bytes:
        _, size = FRAME.unpack(self._exactly(FRAME.size))
        return self._exactly(size)

    def next_request(self, container: int) -> str:
        """What is asked next; empty when the worker, or the container with this descriptor, has ended."""
        ready, _, _ = select.select([self._socket, container], [], [])
        return "" if container in ready or not self._read() else self.receive().decode()

    def _read(self) -> bool:
        piece = self._socket.recv(CHUNK_BYTES)
        self._unread += piece
        return bool(piece)

    def _exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            if not self._read():
                raise Failed("the worker has gone")
        found = bytes(self._unread[:size])
        del self._unread[:size]
        return found


def main() -> None:
    """Serve the requests that come through the socket whose number is the argument, until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(fileno=int(sys.argv[1])) as server:
        gc.freeze()
        while True:
            request, descriptors, _, _ = socket.recv_fds(server, 1 << 16, 1)
            if not request:
                return
            if os.fork() == 0:
                server.close()
                _serve(Connection(descriptors[0]), json.loads(request))
            for one in descriptors:
                os.close(one)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _serve(connection: Connection, request: dict[str, Any]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    code = 1
    try:
        # What a container's files would be imported by the name of a module is not looked for.
        sys.path.clear()
        sys.meta_path.clear()
        container, asked = os.pidfd_open(request["process"]), request["do"]
        signal.alarm(LIMIT_S)
        tops, upper = join(request)
        listings = Listings()
        while asked:
            match asked:
                case "begin":
                    begin(connection, tops, upper, listings)
                case "pack":
                    pack(connection, tops, listings)
                case _:
                    restore(connection, tops, listings, owners=request["image"])
            signal.alarm(0)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > KEPT_KIB:
                break
            asked = connection.next_request(container)
            signal.alarm(LIMIT_S)
        code = 0
    # Whatever it is, the worker is told, and the fork must not go on as the process that forks.
    except Exception as error:  # noqa: BLE001
        with suppress(OSError):
            connection.send(f"{type(error).__name__}: {error}".encode(errors="replace")[:500], failed=True)
    finally:
        os._exit(code)


def join(request: dict[str, Any]) -> tuple[list[Top], str]:
    """Join the container's mounts; the folders that are kept, and where an image's changes are seen outside.

    Raises:
        Failed: the process is not the container's.
        OSError: this process may not.
    """
    first, upper = request["process"], request["upper"]
    mounts = os.open(f"/proc/{first}/ns/mnt", os.O_RDONLY)
    if started(first) != request["started"]:
        raise Failed("the container has ended")
    with open(f"/proc/{first}/mountinfo", "rb") as file:
        mounted = [one for line in file if (one := _mount(line))]
    if request["do"] == "begin" and request["image"]:
        root = [one for one in mounted if one[0] == "/"][-1:]
        upper = root[0][2].get("upperdir", "") if root else ""
    outside = -1
    if upper:
        with suppress(OSError):
            outside = os.open(upper, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    library = ctypes.CDLL(None, use_errno=True)
    owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        _checked(library.setns(owner, _NEWUSER))
    # As this namespace numbers them.
    with open(f"/proc/{first}/status") as file:
        users = {line.split()[0]: int(line.split()[1]) for line in file if line.startswith(("Uid:", "Gid:"))}
    _checked(library.setns(mounts, _NEWNS))
    os.chdir("/")
    user, group = (0, 0) if request["image"] else (users["Uid:"], users["Gid:"])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # Those over files stay, of which the container's user may have lost some.
    _checked(library.capset(_CAPABILITIES_HEADER, _CAPABILITIES))
    os.umask(0)
    here = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    if request["do"] == "begin" and outside >= 0 and not _seen_outside(outside):
        outside, upper = -1, ""
    if not request["image"]:
        return [Top(here, name) for name in request["folders"]], ""
    if outside < 0 and upper:
        raise Failed("the files of the container are no longer seen")
    inside = [
        Top(here, f".{place}")
        for place, kind, _ in mounted
        if kind == "tmpfs" and place != "/" and not place.startswith(("/dev", "/proc", "/sys", "/run"))
    ]
    folders = [one for one in inside if os.path.isdir(one.name)]
    return [Top(outside if outside >= 0 else here, "."), *folders], upper


def _seen_outside(folder: int) -> bool:
    """Whether what is written in the container appears in a folder outside."""
    name = f"tmp/{OWN}{os.urandom(8).hex()}"
    try:
        os.close(os.open(f"/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    try:
        os.stat(name, dir_fd=folder)
        return True
    except OSError:
        return False
    finally:
        os.unlink(f"/{name}")


def started(process: int) -> str:
    """When a process was started, as the kernel counts: with its id it is the name of one process."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def _mount(line: bytes) -> tuple[str, str, dict[str, str]] | None:
    before, _, after = line.decode(errors="surrogateescape").partition(" - ")
    fields, (kind, _, options) = before.split(), after.split(maxsplit=2)
    place = fields[4]
    for escaped, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escaped, character)
    told = {name: value for name, _, value in (one.partition("=") for one in options.strip().split(","))}
    return place, kind, told


def _checked(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def begin(connection: Connection, tops: list[Top], upper: str, listings: Listings) -> None:
    """Tell the digest of the files that are there, where changes are seen, and the moment.

    Those of an image that its engine writes differ from machine to machine, and with the container's name.
    """
    here = os.open(".", os.O_RDONLY)
    listed = [
        b"%d %s" % (info.st_size, os.fsencode(name))
        for name in dict.fromkeys(top.name for top in tops)
        for name, info, _ in walk(Top(here, name), set(), 0, Listings())
        if stat.S_ISREG(info.st_mode) and name not in OF_ENGINE
    ]
    # As `find -printf '%s %p\\0' | sort -z | sha256sum` in a container, of which this program sees nothing.
    digest = sha256(b"".join(b"%s\0" % one for one in sorted(listed))).hexdigest()[:32]
    connection.send(json.dumps({"base": digest, "upper": upper}).encode(), look(tops, listings).encode())


# -- packing --------------------------------------------------------------------------------------------


def pack(connection: Connection, tops: list[Top], listings: Listings) -> None:
    """Read a `Moment`, and send the changes since then in frames, an empty one, and the moment of this look.

    Without changes, the first frame is the empty one.
    """
    before = decoded(connection.receive())
    # Whatever is changed from here on has a later time. What was changed within this tick has one, too, and
    # is saved again the next time: to wait for the end of the tick costs more.
    time_ns = time.clock_gettime_ns(COARSE_CLOCK) - 1
    known, changed, folders = before.folders, set[str](), set[str]()
    now: dict[str, int] = {}
    moved: list[str] = []
    gone = set[str]()
    for top in tops:
        for name, info, folder in walk(top, gone, before.time_ns, listings):
            if folder:
                now[name] = info.st_ino
                if known.get(name) != info.st_ino:
                    moved.append(name)
            if info.st_ctime_ns > before.time_ns:
                if folder:
                    folders.add(name)
                    changed.add(name)
                elif stat.S_IFMT(info.st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                    changed.add(name)
    listings.end(time_ns)
    seen = temporary()
    if seen == before.temporary and "./tmp" not in moved:
        folders.discard("./tmp")
        changed.discard("./tmp")
    # A folder that is moved does not change the files in it.
    folders.update(moved)
    changed.update(moved)
    changed.update(one[2:] for one in names(moved, gone) if one[0] in "fl")
    ended = [b""]
    if changed:
        of_folders = sorted(folders, key=os.fsencode)
        ended.insert(0, _sent(connection, sorted(changed, key=os.fsencode), of_folders, gone))
    # What has moved while it was read counts as moved the next time.
    known_now = {name: inode for name, inode in now.items() if name not in gone}
    connection.send(*ended, Moment(time_ns, known_now, seen).encode())


def restore(connection: Connection, tops: list[Top], listings: Listings, *, owners: bool) -> None:
    """Unpack one layer after the other, with an answer to each, until an empty one; then send the moment."""
    while first := connection.receive():
        signal.alarm(LIMIT_S)
        done = unpack(first, connection.receive, owners=owners)
        connection.send(b"done" if done else b"foreign")
    connection.send(look(tops, listings).encode())


def _sent(connection: Connection, changed: list[str], folders: list[str], gone: set[str]) -> bytes:
    """Send the frames of an archive but for the last one, which is returned."""
    out = Written(connection.send)
    for name, listed in (("folders", folders), ("names", sorted(names(folders, gone), key=os.fsencode))):
        content = b"".join(os.fsencode(one) + b"\0" for one in listed)
        out.write(header(name, b"0", 0o600, 0, 0, len(content), 0))
        out.write(content + padding(len(content)))
    linked: dict[tuple[int, int], str] = {}
    total = 0
    for name in changed:
        try:
            info = os.lstat(name)
        except (FileNotFoundError, NotADirectoryError):
            gone.add(os.path.dirname(name))
            continue
        shown = (info.st_mode & 0o7777, info.st_uid, info.st_gid)
        seconds = max(0, int(info.st_mtime))
        if stat.S_ISDIR(info.st_mode):
            out.write(header(name, b"5", *shown, 0, seconds))
        elif stat.S_ISLNK(info.st_mode):
            try:
                target = os.readlink(name)
            except OSError:  # it is gone, or no link any more
                gone.add(os.path.dirname(name))
                continue
            out.write(header(name, b"2", *shown, 0, seconds, target))
        elif stat.S_ISREG(info.st_mode):
            if info.st_nlink > 1:
                first = linked.setdefault((info.st_dev, info.st_ino), name)
                if first != name:
                    out.write(header(name, b"1", *shown, 0, seconds, first))
                    continue
            total += info.st_size
            if total > MOST_BYTES:
                raise Failed(f"more than {MOST_BYTES >> 20} MiB were changed")
            if not _send_file(out, name, shown, seconds):
                gone.add(os.path.dirname(name))
    out.write(bytes(1024))
    return out.end()


def _send_file(out: Written, name: str, shown: tuple[int, int, int], seconds: int) -> bool:
    """Whether it is still there."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            raise
        return False
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MOST_BYTES:
            return False
        out.write(header(name, b"0", *shown, info.st_size, seconds))
        left = info.st_size
        while left:
            # One that has become shorter meanwhile was changed again, and is saved again.
            piece = os.read(file, min(left, CHUNK_BYTES)) or ZEROS[: min(left, CHUNK_BYTES)]
            out.write(piece)
            left -= len(piece)
        out.write(padding(info.st_size))
        return True
    finally:
        os.close(file)
