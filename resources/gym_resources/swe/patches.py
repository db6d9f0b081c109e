"""Patches as unified diffs: what a model's patch may change, and diffs of texts.

A patch is hostile text. `checked` splits it into the changes of each file and keeps those that may be
applied: not of the tests, of what configures or extends their runner, of files outside of the repository, of
links, submodules or binaries. All functions take linear time.
Source: a path belongs to the tests by the rule with which SWE-bench splits its patches
(github.com/SWE-bench/SWE-bench, MIT).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

import msgspec

MAX_BYTES = 1 << 20
MAX_FILES = 500
MAX_PATH = 1000
TEST_WORDS = frozenset({"test", "tests", "e2e", "testing"})
RUNNER_FILES = frozenset(
    {
        *("conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.ini", ".pytest.ini", "tox.ini"),
        *("setup.cfg", "pyproject.toml", "noxfile.py", "makefile", "runtests.py", ".coveragerc"),
        *(".gitattributes", ".gitmodules", "python", "python3", "pytest"),
    }
)
RUNNER_PACKAGES = frozenset({"pytest", "_pytest", "pluggy", "unittest", "xdist", "pytest_cov", "nose"})
COMPILED = (".pth", ".pyc", ".pyo", ".so", ".egg-link")
_WORDS = re.compile(r"[ _/.]")
_HUNK = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,([0-9]{1,9}))? @@")
_HEADER = (
    *("index ", "old mode ", "new mode ", "new file mode ", "deleted file mode ", "similarity index "),
    *("dissimilarity index ", "rename from ", "rename to ", "copy from ", "copy to ", "--- ", "+++ "),
    *("GIT binary patch", "Binary files "),
)
_PLAIN_MODES = frozenset({"100644", "100755", "100664", "644", "755"})


class Change(msgspec.Struct, frozen=True):
    """The part of a patch that changes one file: its text, and the paths that it names."""

    text: str
    paths: tuple[str, ...]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that may be applied.

    Attributes:
        text: the changes that are kept.
        ignored: the paths of the changes that are not.
        problem: why nothing is kept, or "".
    """

    text: str = ""
    ignored: tuple[str, ...] = ()
    problem: str = ""


def checked(patch: str, gold: str = "") -> Checked:
    """The changes of a patch that may be applied.

    Args:
        gold: the row's own patch; the files that it changes may be changed, whatever they are called.
    """
    if len(patch) > MAX_BYTES:
        return Checked(problem=f"the patch is longer than {MAX_BYTES} characters")
    changes = split(patch)
    if len(changes) > MAX_FILES:
        return Checked(problem=f"the patch changes more than {MAX_FILES} files")
    own = {path for change in split(gold) for path in _readings(change)}
    kept = [change for change in changes if not _refused(change, own)]
    ignored = dict.fromkeys(
        path[:500] for change in changes if change not in kept for path in change.paths or ("?",)
    )
    text = "".join(change.text for change in kept)
    return Checked(text=text, ignored=tuple(ignored), problem="" if text else "there is no patch")


def split(patch: str) -> list[Change]:
    """The changes of each file, in order: headers and hunks only, whatever stands between them.

    A hunk ends where its numbers say so, as for git: what follows it is another file, also without a
    ``diff --git`` line.
    """
    changes: list[Change] = []
    lines = _lines(patch)
    place = 0
    while place < len(lines):
        line = lines[place]
        begins = line.startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ ")
        if not begins and not line.startswith("diff --git "):
            place += 1
            continue
        header = [line]
        place += 1
        while place < len(lines) and lines[place].startswith(_HEADER):
            header.append(lines[place])
            place += 1
        hunks, place = _hunks(lines, place)
        text = "".join([*header, *hunks])
        changes.append(Change(text if text.endswith("\n") else f"{text}\n", _paths(header)))
    return changes


def _hunks(lines: list[str], place: int) -> tuple[list[str], int]:
    """The hunks that begin at a line, and the line after them."""
    start = place
    while place < len(lines) and (counts := _HUNK.match(lines[place])):
        old, new = (1 if count is None else int(count) for count in counts.groups())
        place += 1
        while place < len(lines) and (old > 0 or new > 0 or lines[place].startswith("\\")):
            kind = lines[place][:1]
            if kind not in " +-\\\r\n":
                break
            old -= kind in " -\r\n"
            new -= kind in " +\r\n"
            place += 1
    return lines[start:place], place


def _paths(header: list[str]) -> tuple[str, ...]:
    """The paths that a header names, without the first folder of those where git leaves it out."""
    found: dict[str, None] = {}
    for line in header:
        line = line.rstrip("\r\n")
        if line.startswith("diff --git "):
            named = line.removeprefix("diff --git ")
            if '"' in named:
                found['"'] = None  # git reads what is quoted in its own way, and such a path is refused
            middle = len(named) // 2  # both names are equal but for their first folder, or others follow
            one, other = named[:middle], named[middle + 1 :]
            if one.partition("/")[2] and one.partition("/")[2] == other.partition("/")[2]:
                found[one.partition("/")[2]] = None
        for prefix in ("--- ", "+++ ", "rename from ", "rename to ", "copy from ", "copy to "):
            if line.startswith(prefix):
                path = line.removeprefix(prefix).split("\t")[0]
                if prefix[0] in "-+" and path != "/dev/null":
                    path = path.partition("/")[2] if not path.startswith('"') else path
                if path != "/dev/null":
                    found[path] = None
    return tuple(found)


def _readings(change: Change) -> set[str]:
    """The paths of a change, and what git may read for them: it leaves out a date behind a space."""
    found = set(change.paths)
    for path in change.paths:
        spaces = (at for at, sign in enumerate(path[:MAX_PATH]) if sign == " ")
        found.update(path[:at] for at in spaces if path[:at].strip())
    return found


def _refused(change: Change, own: Collection[str]) -> bool:
    head = change.text.partition("\n@@")[0].splitlines()
    modes = [
        line.rpartition(" ")[2] for line in head if " mode " in line and not line.startswith(("---", "+++"))
    ]
    index = [line.split(" ")[2] for line in head if line.startswith("index ") and line.count(" ") == 2]
    if any(mode not in _PLAIN_MODES for mode in [*modes, *index]):
        return True
    if not change.paths or "GIT binary patch" in change.text or "Binary files " in change.text:
        return True
    return any(_outside(path) or (path not in own and protected(path)) for path in _readings(change))


def _outside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        path.startswith(("/", '"', "~"))
        or not parts
        or len(path) > MAX_PATH
        or ".." in parts
        or any(part.lower() == ".git" for part in parts)
        or "\\" in path
        or "\0" in path
    )


def protected(path: str) -> bool:
    """Whether a file belongs to the tests or to their runner.

    >>> protected("tests/test_a.py"), protected("src/conftest.py"), protected("src/contest.py")
    (True, True, False)
    """
    pure = PurePosixPath(path.lower())
    return (
        bool(TEST_WORDS.intersection(_WORDS.split(path.lower())))
        or pure.name in RUNNER_FILES
        or pure.suffix in COMPILED
        or "__pycache__" in pure.parts
        or pure.parts[0].partition(".")[0] in RUNNER_PACKAGES
        or (len(pure.parts) > 1 and pure.parts[0] in ("src", "lib") and pure.parts[1] in RUNNER_PACKAGES)
    )


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The unified diff between two sets of files, as git writes it."""
    parts: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        parts.append(f"diff --git a/{path} b/{path}\n")
        if old is None:
            parts.append("new file mode 100644\n")
        if new is None:
            parts.append("deleted file mode 100644\n")
        names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
        for line in difflib.unified_diff(_lines(old), _lines(new), *names):
            parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def _lines(text: str | None) -> list[str]:
    """The lines as git counts them; `str.splitlines` would also end them at a form feed."""
    parts = (text or "").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def similarity(patch: str, gold: str) -> float:
    """How alike two patches are, from 0 to 1, by their lines.

    Its time grows with the square of the lines in the worst case, so call it in a process that can be killed.
    Source: the reward of SWE-RL is the ratio of Python's ``difflib.SequenceMatcher`` (arXiv 2502.18449).
    """
    return difflib.SequenceMatcher(None, patch, gold, autojunk=False).ratio()
