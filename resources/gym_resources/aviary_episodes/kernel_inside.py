"""The notebook's kernel inside of the sandbox: its text is run there, and imports nothing of this project.

Cells run in IPython, whose outputs all go to the standard output in order: what is printed, displayed, or the
value of the last line, and tracebacks. Its state and the working directory last as long as the process.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from typing import Any

COPIED_BYTES = 1 << 20
COPIED_TOGETHER_BYTES = 32 << 20


def tree(folder: str, entries: int, hidden: bool = False) -> dict[str, Any]:
    """The names of the files below a folder, and the same of its folders.

    Args:
        entries: how many files and folders are listed at most.
        hidden: list also those whose names begin with a dot.
    """
    left = [entries]

    def below(place: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            if entry.name.startswith(".") and not hidden:
                continue
            left[0] -= 1
            if left[0] < 0:
                found["left out"] = "what comes after these"
                break
            if entry.is_dir(follow_symlinks=False):
                found.setdefault("directories", {})[entry.name] = below(entry.path)
            else:
                found.setdefault("files", []).append(entry.name)
        return found

    return below(folder)


def _nothing(line: str) -> None:
    """A magic without an effect."""


def _name_figures() -> None:
    """Say which figures a cell has drawn, and close them, as a notebook does that shows them."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        for number in pyplot.get_fignums():
            print(repr(pyplot.figure(number)))
        pyplot.close("all")


class Kernel:
    """An IPython shell in a folder with the capsule's files.

    Files of up to `COPIED_BYTES` are copies, which code may change; larger ones, and those beyond
    `COPIED_TOGETHER_BYTES`, are links to what can only be read.
    """

    def __init__(self, capsule: str) -> None:
        from IPython.core.displayhook import DisplayHook
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        self._folder = os.path.abspath("workspace")
        self._left_bytes = COPIED_TOGETHER_BYTES
        self._bring(capsule, self._folder)
        os.chdir(self._folder)
        os.environ["IPYTHONDIR"] = os.path.join(os.path.dirname(self._folder), ".ipython")
        os.environ["MPLCONFIGDIR"] = os.environ["IPYTHONDIR"]
        os.environ["MPLBACKEND"] = "agg"

        class Plain(DisplayHook):
            def write_output_prompt(self) -> None:
                """Values are shown without a number."""

        class Shell(InteractiveShell):
            displayhook_class = Plain

            def ask_exit(self) -> None:
                """A cell cannot end the session."""

        settings = Config()
        settings.HistoryManager.enabled = False
        settings.InteractiveShell.colors = "nocolor"
        settings.InteractiveShell.xmode = "Context"
        settings.InteractiveShell.cache_size = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._shell: Any = Shell(config=settings)
        self._shell.system = self._shell.system_raw
        # Backends are found by files that the sandbox does not show; figures are named here, not drawn.
        self._shell.register_magic_function(_nothing, "line", "matplotlib")
        self._shell.events.register("post_execute", _name_figures)

    def _bring(self, source: str, target: str) -> None:
        os.makedirs(target)
        for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
            place = os.path.join(target, entry.name)
            if entry.is_dir():
                self._bring(entry.path, place)
                continue
            size = entry.stat().st_size
            if size <= min(COPIED_BYTES, self._left_bytes):
                self._left_bytes -= size
                shutil.copyfile(entry.path, place)
            else:
                os.symlink(entry.path, place)

    def run(self, code: str) -> None:
        """Run a cell; its output is what it writes."""
        self._shell.run_cell(code, store_history=True)

    def files(self, folder: str, entries: int, hidden: bool) -> None:
        """Write the `tree` of a folder of the working directory, as JSON."""
        place = os.path.normpath(os.path.join(self._folder, folder))
        if not (place + os.sep).startswith(self._folder + os.sep) or not os.path.isdir(place):
            print(f"There is no folder {folder[:200]} in the working directory.")
            return
        print(json.dumps(tree(place, entries, hidden), indent=2))
