"""One writer per output: a lock that its holder's death releases."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType

from gym_runtime.errors import UsageError
from gym_runtime.logs import logger
from gym_runtime.own_files import open_own

_HOLDER = b"pid "  # how a lock file begins
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


class Lock:
    """Holds a lock file, ``.NAME.lock`` beside the file it protects, until it is closed.

    The system releases it when the process ends, however that happens; a file that is left behind means
    nothing. It works between machines where the file system passes locks on (NFS 4, Lustre with
    ``flock``); where it knows no locks at all, a warning is logged and nothing is protected.

    Raises:
        UsageError: another process holds it, which the message names; or its name is that of another file.
    """

    def __init__(self, protected: Path) -> None:
        # Two links to one file must meet at the same lock.
        real = protected.resolve()
        self.path = real.with_name(f".{real.stem}.lock")
        self._fd = -1
        while not self._acquire(protected):
            pass

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock and remove its file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                # While it is still locked: another process that has this file open sees that it is not there
                # any more.
                self.path.unlink()
            os.close(self._fd)
            self._fd = -1

    def _acquire(self, protected: Path) -> bool:
        """True when the lock is held; False when its file was removed meanwhile, by the holder before us."""
        try:
            fd = open_own(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise UsageError(f"cannot write to {self.path.parent}: {error.strerror}") from None
        found = os.pread(fd, 200, 0)
        if found and not found.startswith(_HOLDER):
            os.close(fd)
            raise UsageError(f"{self.path} is not a lock of this runtime; move it away, or choose another -o")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = found.decode(errors="replace").strip() or "another process"
            os.close(fd)
            raise UsageError(f"{protected} is being written by {holder}; choose another -o") from None
        except OSError as error:
            os.close(fd)
            if error.errno not in _NO_LOCKS:
                raise UsageError(f"cannot lock {self.path}: {error.strerror}") from None
            self.path.unlink(missing_ok=True)
            logger().warning("this file system has no locks; do not start a second run", path=str(protected))
            return True
        try:
            # The holder may have removed the file between our open and our lock; then another process may
            # lock a new one.
            same = os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, _HOLDER + f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        self._fd = fd
        return True
