"""The system calls that sandboxed programs may not make, as a filter of the kernel (classic BPF).

Namespaces and missing privileges already prevent most of what these calls would do. The filter is for what no
namespace covers (sockets to the hypervisor, the worker's keyring), and for the parts of the kernel in which
escapes from namespaces are found most often. A refused call fails with ``EPERM``, as without privilege.

Source: Docker's default profile (github.com/moby/profiles, Apache-2.0), of which this is the part that
matters without capabilities; numbers from Linux's ``asm/unistd_64.h`` and ``asm-generic/unistd.h``.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from functools import cache

from gym_sandbox.sandbox_errors import SetupError

# Numbers of x86-64 and of aarch64; from 424 on a call has the same number on all machines.
REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
    # With these a fork could change the fork server, and so the next verification.
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # These make memory that belongs to no process: without control groups no limit counts it, and it
    # outlives the process that filled it.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
CLONE, SOCKET, CLONE3, PRLIMIT, MMAP, SETSOCKOPT = (56, 220), (41, 198), 435, (302, 261), (9, 222), (54, 208)
# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 of linux/audit.h.
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)  # the last is netlink: names of interfaces
# All flags of clone(2) that make a namespace, CLONE_NEWNS to CLONE_NEWNET.
NEW_NAMESPACES = 0x7E020000
SHARED, ANONYMOUS = 0x01, 0x20  # of the flags of a mapping
# The x32 calls of x86-64 have their own numbers, which would pass a filter of the others.
FIRST_OF_X32 = 0x40000000

# Opcodes of classic BPF: a load of a word, jumps that compare with a constant, a return.
_LOAD, _EQUALS, _ABOVE, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
# Offsets in the kernel's struct seccomp_data.
_NUMBER, _MACHINE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
# SECCOMP_RET_ALLOW, _ERRNO and _KILL_PROCESS of linux/seccomp.h.
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@cache
def program(*, counted: bool = True) -> bytes:
    """The filter for this machine.

    Args:
        counted: a control group counts all memory. Without one, only memory that processes map can be
            counted, so shared anonymous mappings are refused (their memory remains after they are unmapped),
            and buffers of sockets keep their default sizes.

    Raises:
        SetupError: this machine's architecture is not supported.
    """
    machine = platform.machine()
    if machine not in MACHINES:
        raise SetupError(f"the sandbox filters system calls of {' and '.join(MACHINES)}, not of {machine}")
    column = list(MACHINES).index(machine)
    lines = [
        _instruction(_LOAD, _MACHINE),
        # A program may make the calls of another machine (32 bits), whose numbers mean other calls.
        _instruction(_EQUALS, MACHINES[machine], then=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        *_fails(_AT_LEAST, FIRST_OF_X32, errno.ENOSYS),
        # A filter cannot read clone3's flags, which are in memory; at ENOSYS the C library uses clone.
        *_fails(_EQUALS, CLONE3, errno.ENOSYS),
    ]
    for numbers in REFUSED.values():
        lines += _fails(_EQUALS, numbers[column], errno.EPERM)
    if not counted:
        lines += [
            # Jumps are counted in instructions that are skipped.
            _instruction(_EQUALS, MMAP[column], otherwise=5),
            _instruction(_LOAD, _FOURTH_ARGUMENT),
            _instruction(_ANY_OF, ANONYMOUS, otherwise=2),
            *_fails(_ANY_OF, SHARED, errno.EPERM),
            _instruction(_RETURN, _ALLOW),
            # Sizes of sockets' buffers are wishes: the call succeeds and changes nothing.
            _instruction(_EQUALS, SETSOCKOPT[column], otherwise=7),
            _instruction(_LOAD, _SECOND_ARGUMENT),
            _instruction(_EQUALS, socket.SOL_SOCKET, otherwise=4),
            _instruction(_LOAD, _THIRD_ARGUMENT),
            _instruction(_EQUALS, socket.SO_SNDBUF, then=1),
            _instruction(_EQUALS, socket.SO_RCVBUF, otherwise=1),
            _instruction(_RETURN, _FAIL),
            _instruction(_RETURN, _ALLOW),
        ]
    lines += [
        _instruction(_EQUALS, PRLIMIT[column], otherwise=4),
        _instruction(_LOAD, _FIRST_ARGUMENT),  # 0 means the caller
        *_fails(_ABOVE, 0, errno.EPERM),
        _instruction(_RETURN, _ALLOW),
        _instruction(_EQUALS, CLONE[column], otherwise=4),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        *_fails(_ANY_OF, NEW_NAMESPACES, errno.EPERM),
        _instruction(_RETURN, _ALLOW),
        _instruction(_EQUALS, SOCKET[column], otherwise=2 + len(FAMILIES)),
        _instruction(_LOAD, _FIRST_ARGUMENT),
    ]
    for place, family in enumerate(FAMILIES):
        lines.append(_instruction(_EQUALS, family, then=len(FAMILIES) - place))
    lines += [_instruction(_RETURN, _FAIL | errno.EAFNOSUPPORT), _instruction(_RETURN, _ALLOW)]
    return b"".join(lines)


def _fails(test: int, operand: int, error: int) -> list[bytes]:
    return [_instruction(test, operand, otherwise=1), _instruction(_RETURN, _FAIL | error)]


def _instruction(code: int, operand: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, operand)
