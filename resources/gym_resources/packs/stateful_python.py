"""A Python session that keeps its variables, in a sandbox.

Numbers and arrays have NumPy, SciPy, pandas and SymPy where these libraries are installed. Code is stopped
after 10 seconds of the clock: interrupted, or killed with all its variables if it will not stop.
Source: the tool of NeMo Skills of this name; there, the model is told of 120 seconds.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import anyio
from gym_runtime import Text, ToolPack, tool
from gym_sandbox import Interpreter
from msgspec import Meta

LIMIT_S = 10.0
PACKAGES = ("numpy", "scipy", "pandas", "sympy")

Code = Annotated[str, Meta(description="Code to execute")]


class Pack(ToolPack):
    """A session.

    Attributes:
        packages: the libraries that it can import, where they are installed.
    """

    extra = "sandbox"
    packages: ClassVar[tuple[str, ...]] = PACKAGES

    def __init__(self) -> None:
        self._interpreter = Interpreter(packages=self.packages)
        self._turn = anyio.Lock()  # an environment may allow several calls at once; a session has one thread

    @tool
    async def stateful_python_code_exec(self, code: Code) -> Text:
        """Execute Python code in a session that keeps its variables; answers what was printed, or the error.

        The value of a last line that is an expression is shown, too.
        """
        async with self._turn:
            done = await self._interpreter.execute(code, LIMIT_S)
        self.timeouts += done.error is not None and done.error.rpartition("\n")[2].startswith("TimeoutError")
        shown = (done.stdout, done.value or "", done.stderr, done.error or "")
        return Text("\n".join(part.removesuffix("\n") for part in shown if part))

    async def close(self) -> None:
        await self._interpreter.close()
