"""Where this process may make control groups: found in the files of `/proc`, prepared in the file system.

- Version 1: below this process's own groups in the hierarchies of `memory` and of `pids`.
- Version 2: below a group that was delegated to this process: that of a systemd unit with ``Delegate=``, or
  the topmost one, as a container sees it. The kernel allows no processes beside groups with limits, so all
  processes there move into a group `LEAF` first. A group that was not delegated belongs to its manager, even
  if it is writable.

A process in a group with limits (`cgroups`) makes no further groups.

Source: docs.kernel.org/admin-guide/cgroup-v2.html, systemd.io/CGROUP_DELEGATION.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath

PREFIX, LEAF = "gym-", "gym-workers"
CONTROLLERS = ("memory", "pids")
UNIFIED = ""  # the name of version 2 in the controllers' field of `/proc/self/cgroup`
MOVES_AT_MOST = 10


def own_groups(groups: str, mounts: str) -> dict[str, tuple[Path, Path]]:
    """This process's group, and the topmost one that it sees, by controller; `UNIFIED` is version 2.

    Args:
        groups: the text of `/proc/self/cgroup`.
        mounts: the text of `/proc/self/mountinfo`.
    """
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: dict[str, tuple[Path, Path]] = {}
    for line in mounts.splitlines():
        mount, _, system = line.partition(" - ")
        root, folder = mount.split()[3:5]
        kind, *_, options = system.split()
        for controller in {"cgroup2": [UNIFIED], "cgroup": options.split(",")}.get(kind, []):
            path = PurePath(paths.get(controller, "."))
            if path.is_relative_to(root) and ".." not in path.parts:
                found.setdefault(controller, (Path(folder, path.relative_to(root)), Path(folder)))
    return found


def prepare(own: Mapping[str, tuple[Path, Path]]) -> tuple[Path, ...]:
    """The groups below which groups with limits can be made: one, or two if each controller has its own.

    The first one is that of `memory`.

    Raises:
        OSError: no control groups are mounted, or this process may not make any.
    """
    if all(controller in own for controller in CONTROLLERS):
        # Both controllers may be mounted together, and then are one folder.
        folders = tuple(dict.fromkeys(own[controller][0] for controller in CONTROLLERS))
    elif UNIFIED in own:
        folders = (own[UNIFIED][0],)
    else:
        raise OSError("no control groups for memory and pids are mounted")
    if any(folder.name.startswith(PREFIX) and folder.name != LEAF for folder in folders):
        raise OSError("this process is in a group with limits itself")
    if "memory" not in own:
        folders = (_handed_over(*own[UNIFIED]),)
        _enable(folders[0])
    return folders


def _handed_over(own: Path, top: Path) -> Path:
    if own in (top, top / LEAF):
        return top
    for folder in (own, own.parent):
        for name in ("user.delegate", "trusted.delegate"):
            # Not every file system has such attributes.
            with suppress(OSError):
                if os.getxattr(folder, name) == b"1":
                    return folder
    raise OSError(f"{own} was not handed over to this process (systemd: Delegate=yes)")


def _enable(folder: Path) -> None:
    """Let groups below this one have limits. Repeatable, also by several processes at once."""
    offered = (folder / "cgroup.controllers").read_text().split()
    if missing := [controller for controller in CONTROLLERS if controller not in offered]:
        raise OSError(f"{folder} does not offer {' and '.join(missing)}")
    # Several times: a process may be forked there while the others are moved.
    for _ in range(MOVES_AT_MOST):
        try:
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))
            return
        except OSError as error:
            # EBUSY: there are processes beside the groups. They are moved below, and this is tried again.
            if error.errno != errno.EBUSY:
                raise
        (folder / LEAF).mkdir(exist_ok=True)
        for pid in (folder / "cgroup.procs").read_text().split():
            # It may have ended meanwhile.
            with suppress(ProcessLookupError):
                (folder / LEAF / "cgroup.procs").write_text(pid)
    raise OSError(f"processes of {folder} cannot be moved out of the way")
