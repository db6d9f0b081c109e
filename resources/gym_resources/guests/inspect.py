"""A task of inspect_ai: ``inspect:FILE.py@TASK``, or ``inspect:PACKAGE/TASK`` as in ``inspect_evals/gsm8k``.

The task's own solver runs, with its prompts, tools and scorer; the agent stands below it, as its model. A
rollout is one sample in a process of its own in the sandbox, which stays while the model thinks. The
model role ``grader`` is asked as the role ``judge``; ``roles`` names further ones, which are asked by their
names.

``score=NAME`` or ``score=NAME.KEY`` says which score is the reward, if there are several; ``folders`` what
the task may read; ``log=true`` puts inspect's log of the sample into the row. All other settings are the
task's arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gym_runtime import Environment, Role, UsageError
from gym_sandbox import Script
from gym_sandbox.readable_files import import_path

from gym_resources.guests.played import inspect_play, named_code
from gym_resources.guests.played.kept_episode import KeptEpisode

JUDGE, GRADER = "judge", "grader"
_PROGRAM = """import sys
sys.path[:] = {path}
from gym_resources.guests.played import inspect_play

inspect_play.import_all()

def main(arguments):
    inspect_play.main()

if __name__ == "__main__":
    main(())
"""


def environment(address: str) -> Environment:
    """The environment of an address.

    Raises:
        UsageError: as `inspect_play.load`, or a setting is of another form.
    """
    name, settings = named_code.parse(address)
    folders, roles = _texts("folders", settings), _texts("roles", settings)
    score, log = settings.pop("score", ""), settings.pop("log", False) is True
    file, mark, task = name.rpartition("@")
    if mark:
        name = f"{Path(file).resolve()}@{task}"
        folders = [file, *folders]
    start = inspect_play.Start(
        task=name, arguments=settings, score=str(score), roles=[GRADER, *roles], log=log
    )

    def generate(size: int | None, seed: int) -> Iterator[dict[str, Any]]:
        return inspect_play.rows(start, size)

    inspect_play.load(start)
    here = {
        "start": start,
        "program": Script(_PROGRAM.format(path=list(filter(os.path.exists, import_path()))), own_view=True),
        "readable": tuple(str(Path(folder).resolve()) for folder in folders),
        "asks": {GRADER: JUDGE, **{role: role for role in roles}},
    }
    return Environment(
        resource=type("InspectEpisode", (KeptEpisode,), here),
        description=f"inspect's task {name}",
        extra="inspect",
        roles=(Role(name=JUDGE, optional=True), *(Role(name=role) for role in roles if role != JUDGE)),
        replayable=False,  # a task may draw random numbers, and its process asks in their order
        generate=generate,
    )


def _texts(key: str, settings: dict[str, Any]) -> list[str]:
    found = settings.pop(key, [])
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):  # pyright: ignore[reportUnknownVariableType]
        raise UsageError(f"inspect: {key} is a text or a list of texts")
    return found  # pyright: ignore[reportUnknownVariableType]
