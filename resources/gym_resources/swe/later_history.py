"""What git knows of a repository besides the checked-out commit and its past: it may hold the solution.

Images were published whose repositories still held later commits; models have read the fix there. It is
removed before a model works in a container, and before tests run with its patch.
Source: github.com/SWE-bench/SWE-bench, issue 465; what is removed is what its newer images leave out.
"""

from __future__ import annotations

from gym_runtime import ResourceError
from gym_sandbox import Container

# Removing is slow in a large repository, so it is done only where there is something to remove. The commits
# are counted, because one that no name leads to can still be listed and read.
REMOVE = r"""
set -e
git() { command git -c core.fsmonitor= -c core.hooksPath=/dev/null -c safe.directory='*' "$@"; }
folder=$(git rev-parse --absolute-git-dir)
commits() {
  git cat-file --batch-all-objects --unordered --batch-check='%(objecttype)' | grep -c '^commit$' || true
}
for remote in $(git remote); do git remote remove "$remote"; done
git for-each-ref --format='delete %(refname)' --no-merged=HEAD | git update-ref --stdin
rm -f "$folder"/FETCH_HEAD "$folder"/ORIG_HEAD "$folder"/MERGE_HEAD "$folder"/CHERRY_PICK_HEAD
rm -rf "$folder"/objects/info/commit-graph "$folder"/objects/info/commit-graphs
git reflog expire --expire=now --all
if [ "$(commits)" != "$(git rev-list --count HEAD)" ]; then
  rm -f "$folder"/objects/pack/*.keep
  git repack -a -d -q
  git prune --expire=now
fi
[ "$(commits)" = "$(git rev-list --count HEAD)" ]
"""
LIMIT_S = 900.0


async def remove_later_history(container: Container, instance_id: str) -> None:
    """Leave the checked-out commit and its past only, with the tags of these.

    Raises:
        ResourceError: commits are left, or git failed.
    """
    done = await container.run(REMOVE, timeout_s=LIMIT_S)
    if done.exit_code != 0:
        raise ResourceError(
            f"the commits after the one of {instance_id} cannot be removed ({done.exit_code}): "
            f"{done.stderr.decode(errors='replace')[-500:]}",
            stage="sandbox",
        )
