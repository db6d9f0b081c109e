"""Folders of Harbor tasks: one task, a folder of them, or a data set of a local ``registry.json``.

A task's folder is hostile: symbolic links and special files are refused, and nothing of it runs outside of a
box. What goes into a box is packed here, as tar.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from gym_runtime import UsageError
from gym_runtime.errors import UNREADABLE

from gym_resources.harbor_tasks.task_file import StepPart, TaskFile, parse

MAX_BYTES = 64 << 20
MAX_FILES = 10_000
MAX_TEXT_BYTES = 1 << 20
"""Of an instruction, and of other files that are read here as text."""
_TASK, _REGISTRY, _IGNORED = "task.toml", "registry.json", ".harborignore"
_CANARY = re.compile(r"(?:<!--|#).*canary", re.IGNORECASE)
_SCRIPT = re.compile(r"(?:steps/[^/]+/)?(?:tests|solution)/.+\.sh")
_NETWORK = re.compile(
    rb"\b(apt-get|apt|apk|dnf|pip3?|uvx|uv|curl|wget|npm|npx|cargo|conda|git\s+clone)\b[^\n]{0,200}"
)


class HarborTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task: its ``name``, unique in what the user has named, its folder, its file."""

    name: str
    folder: Path
    file: TaskFile

    @property
    def instruction(self) -> str:
        """What the agent reads first."""
        return self.instruction_of(self.file.all_steps[0])

    def instruction_of(self, step: StepPart) -> str:
        """What the agent reads of a step, without the lines that mark where it was published.

        Raises:
            UsageError: there is nothing.
        """
        path = self.folder / (f"steps/{step.name}" if step.name else "") / "instruction.md"
        lines = _text(path).split("\n")
        begin = next(
            (place for place, line in enumerate(lines) if not _CANARY.match(line.strip())), len(lines)
        )
        found = "\n".join(lines[begin:]).strip()
        if not found:
            raise UsageError(f"{path} is empty")
        return found

    def tests_of(self, step: StepPart) -> list[str]:
        """The folders whose files are laid over each other in ``/tests``."""
        return [
            one for one in ("tests", f"steps/{step.name}/tests" if step.name else "") if one and self.has(one)
        ]

    def solution_of(self, step: StepPart) -> str:
        """The folder of a step's solution; empty without one."""
        folders = [f"steps/{step.name}/solution", "solution"] if step.name else ["solution"]
        return next((one for one in folders if self.has(f"{one}/solve.sh")), "")

    def has(self, path: str) -> bool:
        """Whether a file or folder is in the task's folder; a broken link counts."""
        return os.path.lexists(self.folder / path)

    def digest(self) -> str:
        """The hash of all its files and their paths, also of those that ``.harborignore`` keeps out of boxes.

        Raises:
            UsageError: as `files`.
        """
        state = hashlib.sha256()
        for path, content, _ in files(self.folder, ignored=True):
            state.update(f"{len(path.encode())} {len(content)} {path}".encode() + content)
        return f"sha256:{state.hexdigest()}"

    def packed(self, folder: str, at: str) -> bytes:
        """A folder of the task as tar, with its files below ``at``.

        Raises:
            UsageError: as `files`.
        """
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, content, executable in files(self.folder / folder):
                entry = tarfile.TarInfo(f"{at}/{path}".lstrip("/"))
                entry.size, entry.mode = len(content), 0o755 if executable else 0o644
                archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()

    def network_commands(self, file: str = "") -> list[str]:
        """The commands of its tests and its solution, or of one file, that use a network."""
        found: list[str] = []
        for path, content, _ in files(self.folder):
            if path != file if file else not _SCRIPT.fullmatch(path):
                continue
            for line in content.split(b"\n")[:5000]:
                if not line.lstrip().startswith(b"#") and (match := _NETWORK.search(line[:500])):
                    words = " ".join(match[0].decode(errors="replace").split()[:3])
                    found.append(f"{path}: {words}")
        return list(dict.fromkeys(found))


def files(folder: Path, *, ignored: bool = False) -> Iterator[tuple[str, bytes, bool]]:
    """The files below a folder in a fixed order: path, content, and whether it can be executed.

    What ``.harborignore`` in the folder names is left out, unless ``ignored``. A missing folder has none. In
    shell scripts whose first line ends as on Windows, all ends of lines are made Unix's.

    Raises:
        UsageError: there is a link or special file, a name that is not UTF-8, or too much.
    """
    patterns = [] if ignored else _ignored(folder)
    count = size = 0
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = Path(place, name)
            if name != name.encode(errors="replace").decode():
                raise UsageError(f"{str(path)!a} has a name that is not UTF-8; rename it")
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise UsageError(f"{path} is a link or no file; put a copy in its place")
        for name in sorted(names):
            path = Path(place, name)
            inner = path.relative_to(folder)
            if any(fnmatchcase(part, pattern) for part in inner.parts for pattern in patterns):
                continue
            count, size = count + 1, size + path.stat().st_size
            if count > MAX_FILES or size > MAX_BYTES:
                raise UsageError(f"{folder} has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
            content = path.read_bytes()
            if name.endswith(".sh") and content.partition(b"\n")[0].endswith(b"\r"):
                content = content.replace(b"\r\n", b"\n")
            yield inner.as_posix(), content, os.access(path, os.X_OK)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error


def _ignored(folder: Path) -> list[str]:
    """Patterns of names; the file itself is never packed.

    Raises:
        UsageError: a line is not a pattern of a name.
    """
    file = folder / _IGNORED
    lines = _text(file).split("\n") if file.is_file() else []
    patterns = [line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")]
    for pattern in patterns:
        if pattern.startswith("!") or "/" in pattern:
            raise UsageError(f"{file}: '{pattern}' is not supported; use names, such as *.log or cache/")
    return [*patterns, _IGNORED]


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise UsageError(f"{path} has more than {MAX_TEXT_BYTES >> 10} KiB")
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


# -- sets of tasks ------------------------------------------------------------------------------------


class _RegistryTask(msgspec.Struct):
    path: str
    name: str = ""
    git_url: str | None = None


class _DataSet(msgspec.Struct):
    name: str
    version: str | None = None
    tasks: list[_RegistryTask] = []


def find(path: Path, dataset: str = "") -> list[HarborTask]:
    """The tasks of a path: of a task's folder, of a folder of tasks, or of a registry's data set.

    Args:
        dataset: ``NAME`` or ``NAME@VERSION`` in the registry.

    Raises:
        UsageError: the folder has no tasks, or a task cannot be read.
    """
    registry = path / _REGISTRY if path.is_dir() else path
    if registry.name == _REGISTRY and registry.is_file():
        folders = _registered(registry, dataset)
    elif dataset:
        raise UsageError(f"?dataset={dataset} needs a {_REGISTRY}, and {path} has none")
    elif (path / _TASK).is_file():
        folders = {path.resolve().name: path}
    elif path.is_dir():
        folders = {one.name: one for one in sorted(path.iterdir()) if (one / _TASK).is_file()}
        old = [one.name for one in path.iterdir() if (one / "task.yaml").is_file()]
        if not folders and old:
            raise UsageError(f"{path} has tasks of Terminal-Bench 1, such as {old[0]}; Harbor migrates them")
    else:
        raise UsageError(f"there is no folder {path}; name a Harbor task, a folder of tasks or a {_REGISTRY}")
    if not folders:
        raise UsageError(f"{path} is no Harbor task and has none: a task is a folder with {_TASK}")
    return [_task(name, folder) for name, folder in folders.items()]


def _task(name: str, folder: Path) -> HarborTask:
    file = folder / _TASK
    task = HarborTask(name=name, folder=folder.resolve(), file=parse(_text(file), str(file)))
    for step in task.file.all_steps:
        task.instruction_of(step)
    return task


def _registered(registry: Path, dataset: str) -> dict[str, Path]:
    try:
        sets = msgspec.json.decode(registry.read_bytes(), type=list[_DataSet])
    except (OSError, *UNREADABLE) as error:
        raise UsageError(f"{registry}: {error}") from error
    chosen = [one for one in sets if dataset in (one.name, f"{one.name}@{one.version}", "")]
    if len(chosen) != 1:
        names = ", ".join(f"{one.name}@{one.version}" for one in sets) or "none"
        raise UsageError(f"{registry}: say which data set by ?dataset=NAME@VERSION; there are: {names}")
    remote = [one.name or one.path for one in chosen[0].tasks if one.git_url]
    if remote:
        raise UsageError(
            f"{registry}: {len(remote)} tasks, such as {remote[0]}, are in a git repository: clone it, and "
            "name its folder of tasks"
        )
    folders: dict[str, Path] = {}
    for one in chosen[0].tasks:
        folder = registry.parent / one.path
        if not folder.resolve().is_relative_to(registry.parent.resolve()) or not (folder / _TASK).is_file():
            raise UsageError(f"{registry}: {one.path} is no task in the registry's own folder")
        folders[one.name or folder.name] = folder
    return folders
