"""What the tests of a Harbor task say: they run in a box, and leave the rewards in a file.

A reward is what ``/logs/verifier/reward.json``, else ``reward.txt``, says after the tests; their exit status
counts for nothing, as with Harbor. No file, an unreadable one, a number that is not finite, tests that take
too long: each is an error and no reward.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from gym_runtime import ResourceError
from gym_runtime.errors import UNREADABLE
from gym_sandbox import slots

from gym_resources.harbor_tasks.task_box import TaskBox
from gym_resources.harbor_tasks.task_folder import HarborTask

REWARD_BYTES = 64 << 10
LOG_BYTES = 4000
_CLEAR_REWARDS = "rm -rf /logs/verifier && mkdir -p /logs/verifier && chmod 777 /logs/verifier"
_CLEAR_TESTS = 'rm -rf /tests 2>/dev/null; mkdir -p /tests && [ -z "$(ls -A /tests)" ]'
# A link to the expected answer would be judged as the answer. In the folder of the tests, because a link may
# lead by /proc/self/cwd; Busybox's `readlink` takes one name. /usr has most files, and no task's answers.
_UNLINK = r"""
cd /tests || exit 1
end=+; [ "$(readlink -f / / 2>/dev/null | wc -l)" = 2 ] || end=';'
links() {
  find / /usr/local "$AT" /tmp /logs -xdev \( -path /tests -o -path /proc -o -path /usr \) -prune \
    -o -type l -exec "$@"
}
if links readlink -f {} "$end" 2>/dev/null | grep -q '^/tests\(/\|$\)'; then
  leads='case $(readlink -f "$1") in /tests|/tests/*) rm -f "$1"; echo "$1" ;; esac'
  links sh -c "$leads" sh {} ';' 2>/dev/null
fi
:
"""
_TEST = "(/tests/test.sh) >/logs/verifier/test-stdout.txt 2>&1 </dev/null"
_READ = f"""
[ -f /logs/verifier/test-stdout.txt ] && tail -c {LOG_BYTES} /logs/verifier/test-stdout.txt >&2
for kind in json txt; do
  file=/logs/verifier/reward.$kind
  if [ -L "$file" ]; then echo link; exit 0; fi
  if [ -f "$file" ]; then echo $kind; head -c {REWARD_BYTES + 1} "$file"; exit 0; fi
done
echo none
"""


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests said.

    Attributes:
        rewards: by their names.
        log: the end of what they printed.
        verifier_s: how long they took, in seconds.
    """

    rewards: dict[str, float]
    log: str
    verifier_s: float


async def clear(box: TaskBox, *, tests: bool = True) -> None:
    """Empty the folders of tests and rewards, whatever stands there.

    Raises:
        ResourceError: that fails.
    """
    script = f"{_CLEAR_REWARDS}\n[ $? = 0 ] || exit 1\n{_CLEAR_TESTS if tests else ''}"
    await box.must(script, "clearing the folders of its tests")


async def grade(
    box: TaskBox,
    tests: Sequence[str],
    *,
    timeout_s: float,
    variables: Mapping[str, str],
    user: str | int | None = "root",
    links: bool = False,
) -> Grade:
    """Run a task's tests in a box that has what they judge, for at most ``timeout_s`` seconds.

    Args:
        tests: the task's folders that are copied to ``/tests``; none if the box's image has its own tests.
        user: runs them.
        links: the agent may have left some in the box; those that lead to the tests are removed.

    Raises:
        ResourceError: they give no reward.
    """
    task = box.task
    async with slots():
        await clear(box, tests=bool(tests))
        for folder in tests:
            await box.put(folder, "/tests")
        await box.must("chmod +x /tests/test.sh 2>/dev/null; :", "its tests")
        removed = b""
        if links:
            at = box.directory if box.directory.startswith("/") else "/"
            looked = await box.must(_UNLINK, "looking for links to its tests", variables={"AT": at})
            removed = looked.stdout[:300].strip()
        tested = await box.run(
            _TEST, timeout_s=timeout_s, variables={"TEST_DIR": "/tests", **variables}, user=user
        )
        if tested.timed_out:
            raise ResourceError(
                f"task {task.name}: its tests took longer than {timeout_s:g} s", stage="verify"
            )
        if box.ended:
            raise ResourceError(f"task {task.name}: its tests ended their box: {box.ended}", stage="verify")
        await box.end_processes()
        done = await box.must(_READ, "its tests")
    kind, _, content = done.stdout.partition(b"\n")
    log = done.stderr.decode(errors="replace")
    if removed:
        some = ", ".join(removed.decode(errors="replace").split("\n"))
        log = f"{log}[removed before the tests, as links to them: {some}]\n"
    try:
        rewards = read_rewards(kind.decode(errors="replace"), content)
    except ValueError as error:
        words = f"; the tests end with: {log.strip()[-500:]}" if log.strip() else ""
        raise ResourceError(f"task {task.name} has no reward: {error}{words}", stage="verify") from error
    return Grade(rewards=rewards, log=log, verifier_s=round(tested.duration_s, 3))


def read_rewards(kind: str, content: bytes) -> dict[str, float]:
    """The rewards of a file.

    Args:
        kind: ``json`` or ``txt``; anything else says that there is no such file.

    >>> read_rewards("txt", b"0.5"), read_rewards("json", b'{"reward": 1, "style": 0.2}')
    ({'reward': 0.5}, {'reward': 1.0, 'style': 0.2})

    Raises:
        ValueError: it holds no finite numbers.
    """
    if kind not in ("json", "txt"):
        raise ValueError("the reward file is a link" if kind == "link" else "its tests wrote no reward file")
    if len(content) > REWARD_BYTES:
        raise ValueError(f"reward.{kind} is larger than {REWARD_BYTES >> 10} KiB")
    if not content.strip():
        raise ValueError(f"reward.{kind} is empty")
    if kind == "txt":
        found: Any = {"reward": _number(content)}
    else:
        try:
            found = msgspec.json.decode(content)
        except UNREADABLE as error:
            raise ValueError(f"reward.json cannot be read: {error}") from error
    if not isinstance(found, dict) or not found:
        raise ValueError("reward.json is no object of numbers")
    rewards: dict[str, float] = {}
    for name, value in found.items():  # pyright: ignore[reportUnknownVariableType] - checked below
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e300:
            raise ValueError(f"reward.{kind}: {name!r:.50} is no finite number")
        rewards[str(name)] = float(value)  # pyright: ignore[reportUnknownArgumentType]
    return rewards


def _number(content: bytes) -> float:
    try:
        return float(content.decode())
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError("reward.txt is no number") from error


def chosen(rewards: dict[str, float], key: str) -> float:
    """The reward among several: that of the key, else ``reward``, else the only one.

    Raises:
        ResourceError: none of these is there.
    """
    name = key or ("reward" if "reward" in rewards or len(rewards) != 1 else next(iter(rewards)))
    if name not in rewards:
        names = ", ".join(sorted(rewards)[:10])
        raise ResourceError(
            f"the tests give no '{name}'; say which by ?reward_key=NAME: {names}", stage="verify"
        )
    return rewards[name]


async def solve(
    box: TaskBox,
    folder: str,
    *,
    timeout_s: float,
    variables: Mapping[str, str],
    user: str | int | None = "root",
) -> None:
    """Run the solution in a task's folder; its exit status counts for nothing, as its tests judge it.

    Raises:
        ResourceError: it cannot be copied.
    """
    await box.must("mkdir -p /solution", "making a folder for its solution")
    await box.put(folder, "/solution")
    await box.must("chmod +x /solution/solve.sh", "its solution")
    script = "(/solution/solve.sh) >/logs/agent/oracle.txt 2>&1 </dev/null"
    given = {"DEBIAN_FRONTEND": "noninteractive", **variables}
    await box.run(script, timeout_s=timeout_s, variables=given, user=user)
    await box.must("rm -rf /solution 2>/dev/null; :", "removing its solution")


def doubts(task: HarborTask, grade: Grade, reward: float, wanted: float) -> ResourceError:
    """Why rewards of a task whose own solution is not graded full count for nothing."""
    commands = task.network_commands()
    network = f" Its scripts use a network, which a box lacks: {'; '.join(commands[:5])}." if commands else ""
    return ResourceError(
        f"task {task.name}: its own solution gets {reward:g} here and not {wanted:g}, so a lower reward "
        f"says nothing.{network} ?gold=NUMBER says what its solution gets, ?control=none trusts the tests; "
        f"they end with: {shlex.quote(grade.log.strip()[-300:])}",
        stage="verify",
    )
