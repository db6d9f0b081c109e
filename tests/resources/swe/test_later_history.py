"""What a repository knows of later commits is removed before a model works in it."""

from __future__ import annotations

import os

import pytest
from gym_resources.swe.later_history import remove_later_history
from gym_runtime.errors import ResourceError
from gym_sandbox import Container, bubblewrap
from gym_sandbox.sandbox_errors import SetupError

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(_refusal), reason=_refusal)]
MAKE = """git init -q -b main . && git config user.name g && git config user.email g@g
for n in 1 2 3; do echo $n >f && git add f && git commit -qm c$n && git tag -a -m t$n v$n; done
git remote add origin https://localhost/x && git update-ref refs/remotes/origin/main main
git checkout -q -b work v2 && echo secret >f && git stash -q && git commit -q --allow-empty -m lost
git reset -q --hard v2 && git branch -q -D main && git gc -q && git fetch -q . v3
"""
SEEN = """git log --all --format=%s; git tag; git remote; git reflog; git stash list; ls .git/FETCH_HEAD
git cat-file --batch-all-objects --batch-check='%(objecttype)' | grep -c commit; cat f
"""


async def run(container: Container, script: str) -> str:
    return (await container.run(script, timeout_s=30)).stdout.decode()


@pytest.mark.slow
async def test_only_the_past_is_left() -> None:
    async with Container(directory="testbed") as container:
        await run(container, MAKE)
        assert "lost" in await run(container, "git reflog; git log --all")
        for _ in range(2):
            await remove_later_history(container, "a__a-1")
            assert (await run(container, SEEN)).split() == ["c2", "c1", "v1", "v2", "2", "2"]


async def test_a_repository_whose_later_commits_stay_is_refused() -> None:
    async with Container(directory="testbed") as container:
        await run(container, f"mkdir a b && (cd a\n{MAKE}\n) && cd b && git init -q .")
        await run(
            container,
            "cd b && git pull -q ../a v1 && echo $PWD/../a/.git/objects >.git/objects/info/alternates",
        )
        await run(container, "mv b/.git .")
        with pytest.raises(ResourceError, match="the commits after the one of a__a-1 cannot be removed"):
            await remove_later_history(container, "a__a-1")
