"""Scripts in boxes: files by commands, and scripts where a service gives one stream in and two out."""

from __future__ import annotations

import os
import shlex

from gym_runtime import ResourceError

from gym_boxes.answers import too_large
from gym_boxes.provider import Ran

KILLED = 137
# The sizes are told, because not each version of a protocol can close a stream. `head` of busybox would read
# more than it is told.
_LOADER = """
own=/tmp/.gym-XXXXXX
room=$(mktemp -d $own || { mkdir -p -m 1777 /tmp && mktemp -d $own; }) || exit 125
take() { [ "$1" = 0 ] || dd bs="$1" count=1 iflag=fullblock 2>/dev/null; }
take "$2" >"$room/script"; take "$3" >"$room/in"
timeout -s KILL "$1" /bin/sh "$room/script" <"$room/in"
code=$?
rm -rf "$room"
exit $code
"""


def loaded(script: str, stdin: bytes, timeout_s: float) -> tuple[list[str], bytes]:
    """The command for a script, and what is sent to it; it exits with `KILLED` at its time limit."""
    said = script.encode("utf-8", "surrogatepass")
    limits = [str(max(1, round(timeout_s))), str(len(said)), str(len(stdin))]
    return ["/bin/sh", "-c", _LOADER, "sh", *limits], said + stdin


def ran(code: int, stdout: bytes | bytearray, stderr: bytes | bytearray) -> Ran:
    """How a script has ended that was `loaded`."""
    return Ran(exit_code=None if code == KILLED else code, stdout=bytes(stdout), stderr=bytes(stderr))


def writing(path: str) -> str:
    """The script that writes its input to a file. It removes a pipe of that name, which would not end."""
    folder, file = shlex.quote(os.path.dirname(path) or "."), shlex.quote(path)
    return f"mkdir -p -- {folder} && {{ [ ! -p {file} ] || rm -f -- {file}; }} && cat >{file}"


def reading(path: str, most_bytes: int) -> str:
    """The script that prints a file: one byte more than ``most_bytes`` of a longer one.

    It refuses pipes and devices, which may have no end.
    """
    file = shlex.quote(path)
    odd = f"[ -p {file} ] || [ -c {file} ] || [ -b {file} ]"
    return (
        f"if {odd}; then echo 'it is a pipe or a device' >&2; exit 1; fi; head -c {most_bytes + 1} -- {file}"
    )


def read(done: Ran, path: str, most_bytes: int) -> bytes:
    """The file that `reading` has printed.

    Raises:
        ResourceError: the box has no such file, or the file is longer.
    """
    require_done(done, f"there is no file {path} in the box")
    if len(done.stdout) > most_bytes:
        raise too_large(path, most_bytes)
    return done.stdout


def require_done(done: Ran, what: str) -> None:
    """
    Raises:
        ResourceError: the script has failed.
    """
    if done.exit_code != 0:
        words = done.stderr.decode(errors="replace").strip()[-200:]
        raise ResourceError(f"{what}: {words}", stage="box")
