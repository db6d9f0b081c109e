"""Where control groups may be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gym_sandbox.processes.cgroups import ControlGroup
from gym_sandbox.processes.delegation import LEAF, PREFIX, own_groups, prepare

pytestmark = pytest.mark.timeout(60)


UNIFIED_MOUNT = "24 23 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("own", "mounts", "expected"),
    [
        pytest.param(
            "0::/system.slice/gym.service",
            UNIFIED_MOUNT,
            {"": ("/sys/fs/cgroup/system.slice/gym.service", "/sys/fs/cgroup")},
            id="a unit",
        ),
        pytest.param("0::/", UNIFIED_MOUNT, {"": ("/sys/fs/cgroup", "/sys/fs/cgroup")}, id="a container"),
        pytest.param(
            "0::/docker/123/inner",
            "24 23 0:22 /docker/123 /sys/fs/cgroup ro - cgroup2 cgroup rw",
            {"": ("/sys/fs/cgroup/inner", "/sys/fs/cgroup")},
            id="a container that sees the host's names",
        ),
        pytest.param("0::/../other", UNIFIED_MOUNT, {}, id="outside of its namespace"),
        pytest.param(
            "3:pids:/a\n2:memory:/b\n1:cpu,cpuacct:/c\n0::/d",
            "1 2 0:3 / /cg/memory rw - cgroup cgroup rw,memory\n"
            "4 5 0:6 / /cg/pids rw shared:1 - cgroup none rw,pids\n"
            "6 7 0:8 / /cg/unified rw - cgroup2 cgroup2 rw\n9 10 0:11 / / rw - ext4 /dev/vda rw",
            {
                "memory": ("/cg/memory/b", "/cg/memory"),
                "pids": ("/cg/pids/a", "/cg/pids"),
                "": ("/cg/unified/d", "/cg/unified"),
            },
            id="version 1",
        ),
        pytest.param("0::/elsewhere", "1 2 0:3 /here /cg rw - cgroup2 cgroup2 rw", {}, id="not in view"),
        pytest.param("", "", {}, id="none"),
    ],
)
def test_own_groups_are_found(own: str, mounts: str, expected: dict[str, tuple[str, str]]) -> None:
    found = own_groups(own, mounts)
    assert found == {name: (Path(folder), Path(top)) for name, (folder, top) in expected.items()}


def unit(folder: Path, *, offered: str = "cpu memory pids", handed_over: bool = True) -> Path:
    """A folder like that of a group of version 2."""
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text(offered)
    for file in ("cgroup.subtree_control", "cgroup.procs"):
        (folder / file).touch()
    if handed_over:
        try:
            os.setxattr(folder, "user.delegate", b"1")
        except OSError as error:
            pytest.skip(f"no extended attributes on {folder}: {error}")
    return folder


def test_a_unit_that_was_handed_over_gives_limits_to_groups_below_it(tmp_path: Path) -> None:
    own = unit(tmp_path / "system.slice" / "gym.service")
    assert prepare({"": (own, tmp_path)}) == (own,)
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"
    # Who has moved out of the way, or was started in a group beside, finds the same one.
    assert prepare({"": (own / LEAF, tmp_path)}) == (own,)
    assert prepare({"": (own / "workers", tmp_path)}) == (own,)


def test_a_containers_topmost_group_is_its_own(tmp_path: Path) -> None:
    top = unit(tmp_path / "cgroup", handed_over=False)
    assert prepare({"": (top, top)}) == (top,)
    assert prepare({"": (top / LEAF, top)}) == (top,)


def test_others_groups_are_left_alone_and_the_reason_is_said(tmp_path: Path) -> None:
    not_ours = unit(tmp_path / "user.slice" / "terminal.scope", handed_over=False)
    with pytest.raises(OSError, match=r"terminal.scope was not handed over .*Delegate=yes"):
        prepare({"": (not_ours, tmp_path)})
    assert (not_ours / "cgroup.subtree_control").read_text() == ""
    with pytest.raises(OSError, match="does not offer memory and pids"):
        prepare({"": (unit(tmp_path / "poor.service", offered="cpu"), tmp_path)})
    with pytest.raises(OSError, match="in a group with limits itself"):
        prepare({"": (unit(tmp_path / f"{PREFIX}1-2-3"), tmp_path)})
    with pytest.raises(OSError, match="no control groups for memory and pids"):
        prepare({"memory": (tmp_path, tmp_path)})


def test_version_1_has_a_group_in_each_hierarchy(tmp_path: Path) -> None:
    memory, pids, unified = tmp_path / "memory" / "own", tmp_path / "pids", tmp_path / "unified"
    own = {"pids": (pids, pids), "memory": (memory, tmp_path), "": (unified, unified)}
    assert prepare(own) == (memory, pids)
    assert prepare({"memory": (memory, memory), "pids": (memory, memory)}) == (memory,)


def test_a_group_of_version_2_is_limited_killed_and_read_by_its_files(tmp_path: Path) -> None:
    group = ControlGroup([tmp_path], memory_bytes=256 << 20, tasks=64)
    (folder,) = group.folders
    (folder / "memory.events").write_text("low 0\nmax 9\noom 0\noom_kill 2\n")
    assert group.excess() is None  # it was for the limit of another
    (folder / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 2\n")
    assert group.excess() == "more than 256 MiB of memory in all processes together"
    (folder / "cgroup.kill").touch()
    group.kill()
    assert (folder / "cgroup.kill").read_text() == "1"
    assert not group.remove()
