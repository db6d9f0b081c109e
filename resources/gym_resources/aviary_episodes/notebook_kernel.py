"""A notebook's kernel: IPython in the sandbox, in a folder with a capsule's files, without a network.

It begins with its first cell. A cell that takes too long is interrupted; if it will not stop, or exceeds a
limit, the kernel is killed, and the next cell gets a new one, with the files as they were at first.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gym_runtime import ResourceError
from gym_sandbox import Interpreter, Limits

PACKAGES = (
    *("ipython", "matplotlib", "numpy", "openpyxl", "pandas", "scikit-learn", "scipy", "seaborn"),
    *("statsmodels", "anndata", "biopython", "gseapy", "lifelines", "pingouin", "pydeseq2", "scanpy"),
)
"""What cells can import, where it is installed beside the runtime."""
LIMITS = Limits(cpu_s=3600, file_bytes=512 << 20, disk_bytes=512 << 20)
START_LIMIT_S = 60.0
LIST_LIMIT_S = 10.0
OUTPUT_CHARACTERS = 3000


class Kernel:
    """
    Args:
        capsule: the folder with the files.
    """

    def __init__(self, capsule: Path) -> None:
        self._capsule = str(capsule)
        self._interpreter = Interpreter(LIMITS, packages=PACKAGES, folders=(self._capsule,))

    async def run(self, code: str, timeout_s: float) -> str:
        """Run a cell; what it wrote, shortened in the middle.

        Raises:
            ResourceError: the kernel does not start.
        """
        return shortened(await self._executed(f"_kernel.run({code!r})", timeout_s), OUTPUT_CHARACTERS)

    async def files(self, folder: str, entries: int, *, hidden: bool) -> str:
        """The tree of files below a folder of the working directory, as JSON.

        Raises:
            ResourceError: the kernel does not start.
        """
        asked = f"_kernel.files({folder!r}, {entries!r}, {hidden!r})"
        return shortened(await self._executed(asked, LIST_LIMIT_S), 10 * OUTPUT_CHARACTERS)

    async def close(self) -> None:
        """End it, with all that it started and its files. Repeatable; a later cell begins a new one."""
        await self._interpreter.close()

    async def _executed(self, code: str, timeout_s: float) -> str:
        if not self._interpreter.alive:
            begun = await self._interpreter.execute(
                f"{_program()}\n_kernel = Kernel({self._capsule!r})", START_LIMIT_S
            )
            if begun.error is not None:
                await self.close()
                problem = begun.error.rpartition("\n")[2]
                raise ResourceError(
                    f"the notebook's kernel does not start: {problem}; sandboxes must be able to read "
                    f"{self._capsule}: chmod -R o+rX",
                    stage="tool",
                )
        done = await self._interpreter.execute(code, timeout_s)
        return "\n".join(part.rstrip("\n") for part in (done.stdout, done.stderr, done.error or "") if part)


def shortened(text: str, at_most: int) -> str:
    """A text, or its beginning and end with a note of what was left out.

    >>> shortened("abcdefgh", 4)
    'ab\\n[4 characters left out]\\ngh'
    """
    left = len(text) - at_most
    half = at_most // 2
    return text if left <= 0 else f"{text[:half]}\n[{left} characters left out]\n{text[-half:]}"


@cache
def _program() -> str:
    return Path(__file__).with_name("kernel_inside.py").read_text("utf-8")
