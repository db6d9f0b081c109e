"""What a sandboxed process sees of the machine besides the Python runtime and `/usr`; all of it read-only.

A program sees the packages that it was given. A verifier is code that people wrote and installed, so it sees
what that consists of: the folders that Python imports from, the package or folder of its own module, and the
folders that its environment declares. Entries of its folder that begin with a dot are covered, because a
module often lies where ``.env``, ``.ssh`` or ``.git`` lie, too.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gym_runtime.errors import UsageError

PACKAGES = "/packages"


class View(msgspec.Struct, frozen=True):
    """What is shown.

    Attributes:
        shown: files and folders of the machine, by the place where they are seen.
        covered: places within these where nothing is seen.
        own_session: the process is a session of its own, apart from what isolates it.
    """

    shown: dict[str, str] = {}
    covered: tuple[str, ...] = ()
    own_session: bool = True

    def mounts(self) -> list[str]:
        """The arguments for bubblewrap: each folder before what lies in it."""
        told: list[str] = []
        covers: list[str] = []
        for place in sorted({*self.shown, *self.covered}):
            if place in self.shown:
                told += ["--ro-bind", self.shown[place], place]
            elif os.path.isdir(place):
                told += ["--tmpfs", place]
                covers += ["--remount-ro", place]
            else:
                told += ["--ro-bind", "/dev/null", place]
        return told + covers


def of_verifier(sources: Iterable[Path], folders: Iterable[str] = ()) -> View:
    """The view of a verifier.

    Args:
        sources: the modules that it consists of.
        folders: further ones that it reads.

    Raises:
        UsageError: a module lies in the root folder, or is one that the sandbox's user may not read.
    """
    own = [_code(source.resolve()) for source in sources]
    paths = {*own, *map(Path, import_path()), Path(sys.prefix), Path(__file__).parents[1]}
    paths |= {Path(folder).resolve() for folder in folders}
    if Path("/") in paths:
        raise UsageError("an environment's module cannot lie in the folder '/': move it to one of its own")
    if os.geteuid() == 0:
        for path in own:
            _check_readable(path)
    shown = {str(path): str(path) for path in paths if path.exists()}
    covered = [entry.path for folder in own if folder.is_dir() for entry in os.scandir(folder) if _dot(entry)]
    return View(shown, tuple(path for path in covered if path not in shown), own_session=False)


def import_path() -> list[str]:
    """Where Python imports from here, but not the working directory and not the started script's."""
    not_ours = {"", os.getcwd()}
    started = sys.modules.get("__main__")
    if started is not None and started.__dict__.get("__file__"):
        not_ours.add(os.path.dirname(os.path.abspath(str(started.__file__))))
    return [path for path in sys.path if path not in not_ours and os.path.isabs(path)]


def _code(source: Path) -> Path:
    """The outermost package that a module belongs to, else its folder."""
    folder = source.parent
    if not (folder / "__init__.py").exists():
        return folder
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


def _dot(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") and not entry.is_symlink()


def _check_readable(path: Path) -> None:
    """A worker that is root has sandboxes whose users are others."""
    wanted = stat.S_IROTH | stat.S_IXOTH
    if path.stat().st_mode & wanted != wanted:
        raise UsageError(
            f"{path} can be read by root alone, but verifiers run as an unprivileged user: "
            f"chmod -R o+rX {path}"
        )


def program_path(sources: Sequence[Path]) -> list[str]:
    """What a verifier imports from: as here, and the folders of its modules."""
    own = [str(code.parent if (code / "__init__.py").exists() else code) for code in map(_code, sources)]
    return list(dict.fromkeys([*import_path(), *own]))
