"""The files that a sandboxed process sees besides the Python runtime, `/usr` and `/tmp`.

A program can read the packages that it was given. A verifier is installed, trusted code, so it can read the
folders that Python imports from, the package or folder of its own module, and the folders that its
environment declares. Entries of its folder that begin with a dot are hidden, because a module is often
beside ``.env``, ``.ssh`` or ``.git``.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gym_sandbox.sandbox_errors import SetupError

PACKAGES = "/packages"
LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
"""Whether the kernel has large pages, which the C library reads here (`gym_sandbox.frames.LARGE_PAGES`)."""


class Layers(msgspec.Struct, frozen=True):
    """Folders on disk, of which later ones cover earlier ones, that are one folder in the sandbox.

    They belong to `gym_sandbox.bubblewrap.layers_owner`. No limit but that on each file holds for what is
    written.

    Attributes:
        place: the path in the sandbox.
        lower: what is only read, the lowest first.
        upper: what is written goes there.
        work: an empty folder on the same disk, for the kernel.
        above: a folder that has all of these. The sandbox sees their paths among its mounts, from this folder
            on, but where the machine cannot hide what is above.
    """

    place: str
    lower: tuple[str, ...]
    upper: str
    work: str
    above: str = ""


class View(msgspec.Struct, frozen=True):
    """The visible files.

    Attributes:
        shown: files and folders of the machine, by their paths in the sandbox.
        covered: paths within these that are hidden.
        writable: new empty folders in memory, which can be written as `/tmp` can. All else is read-only.
        own_session: the process starts its own session, apart from bubblewrap's.
        layers: a folder that can be written and stays.
    """

    shown: dict[str, str] = {}
    covered: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    own_session: bool = True
    layers: Layers | None = None

    def mounts(self) -> list[str]:
        """The arguments for bubblewrap, each folder before the paths in it."""
        told: list[str] = []
        covers: list[str] = []
        # Sorted, so that a folder comes before its content.
        for place in sorted({*self.shown, *self.covered}):
            if place in self.shown:
                told += ["--ro-bind", self.shown[place], place]
            elif os.path.isdir(place):
                told += ["--tmpfs", place]
                covers += ["--remount-ro", place]
            else:
                told += ["--ro-bind", "/dev/null", place]
        # Read-only at the end, when all mount points in them exist.
        return told + covers


def of_verifier(sources: Iterable[Path], folders: Iterable[str] = ()) -> View:
    """The view of a verifier.

    Args:
        sources: the modules that it consists of.
        folders: further folders that it reads.

    Raises:
        SetupError: a module is in the root folder, or the sandbox's user may not read it.
    """
    own = [_code(source.resolve()) for source in sources]
    paths = {*own, *map(Path, import_path()), Path(sys.prefix), Path(__file__).parents[1]}
    paths |= {Path(folder).resolve() for folder in folders}
    paths.add(LARGE_PAGES)
    if Path("/") in paths:
        raise SetupError("an environment's module cannot be in the folder '/'; move it to another folder")
    if os.geteuid() == 0:
        for path in own:
            _check_readable(path)
    shown = {str(path): str(path) for path in paths if path.exists()}
    covered = [entry.path for folder in own if folder.is_dir() for entry in os.scandir(folder) if _dot(entry)]
    hidden = tuple(path for path in covered if path not in shown)
    return View(shown, hidden, own_session=False)


def import_path() -> list[str]:
    """The folders of ``sys.path`` without the working directory and the started script's folder."""
    # These are the user's, and may hold anything.
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
    """Refuse a folder that other users cannot read: the sandboxes of a root worker run as other users."""
    wanted = stat.S_IROTH | stat.S_IXOTH
    if path.stat().st_mode & wanted != wanted:
        raise SetupError(
            f"only root can read {path}, but verifiers run as an unprivileged user; run: chmod -R o+rX {path}"
        )


def program_path(sources: Sequence[Path]) -> list[str]:
    """The folders that a verifier imports from: `import_path`, and those of its modules."""
    own = [str(code.parent if (code / "__init__.py").exists() else code) for code in map(_code, sources)]
    return list(dict.fromkeys([*import_path(), *own]))
