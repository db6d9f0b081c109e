"""What commands have left running in a container: it is lost with the container, while its files are not."""

from __future__ import annotations

import re

from gym_sandbox.container import Container

LIMIT_S = 20.0
MOST = 20
# Without any process of its own but its shell. Not counted: this shell and those that have started it, and
# processes that have ended and are not waited for.
LOOK = r"""
own=" " pid=$$
while [ "$pid" -gt 0 ] && { read -r stat <"/proc/$pid/stat"; } 2>/dev/null; do
  own="$own$pid "
  set -- ${stat##*) }
  pid=$2
done
for place in /proc/[0-9]*; do
  case $own in *" ${place#/proc/} "*) continue ;; esac
  { read -r stat <"$place/stat"; } 2>/dev/null || continue
  name=${stat#*(}
  case ${stat##*) } in [ZX]*) ;; *) echo "${name%)*}" ;; esac
done
"""


async def left_running(container: Container) -> list[str]:
    """The names of the processes that go on, each once, at most `MOST`; none if that cannot be found.

    Raises:
        StartError: the container's engine failed.
        Interrupted: something outside has killed the container.
    """
    done = await container.run(LOOK, timeout_s=LIMIT_S)
    names = done.stdout.decode(errors="replace").splitlines() if done.exit_code == 0 else []
    return sorted({re.sub(r"[^\w.+-]", "?", name)[:16] for name in names})[:MOST]
