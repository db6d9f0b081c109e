"""Radioactive nuclides: half-lives, decay products, and what a chain of decays leaves after a time.

The library runs in a sandboxed process: it takes seconds to import, with SciPy and SymPy.
Source: github.com/radioactivedecay/radioactivedecay (MIT). Its data are those of ICRP Publication 107, which
may be used for education, research and not-for-profit purposes only.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime import ToolError, ToolPack, run_isolated, tool
from msgspec import Meta

LIMIT_S = 10.0

Name = Annotated[str, Meta(max_length=20, description="A nuclide, such as U-238, 238U or Tc-99m.")]
Seconds = Annotated[float, Meta(ge=0, le=1e30, description="The time in seconds.")]


class Pack(ToolPack):
    extra = "radioactive"
    data_license = "ICRP-07: education, research and not-for-profit purposes only"

    @tool(name="nuclide-info")
    async def nuclide_info(self, nuclide: Name) -> dict[str, Any]:
        """Look up a nuclide: its half-life, atomic mass, and what it decays to."""
        return await self._ask(nuclide, None)

    @tool(name="decay-chain")
    async def decay_chain(self, nuclide: Name, time: Seconds) -> dict[str, Any]:
        """Compute what one mole of a nuclide has become after a time, in moles and becquerels."""
        return await self._ask(nuclide, time)

    async def _ask(self, nuclide: str, time_s: float | None) -> dict[str, Any]:
        try:
            answer = await run_isolated(
                answered, nuclide, time_s, timeout_s=LIMIT_S, imports=("radioactivedecay",)
            )
        except TimeoutError:
            self.timeouts += 1
            raise ToolError(f"The computation took longer than {LIMIT_S:g} s.") from None
        if answer.refused:
            raise ToolError(answer.refused)
        return answer.value


class Answer(msgspec.Struct, frozen=True):
    """What the library says, or why it refuses."""

    value: dict[str, Any] = {}
    refused: str = ""


def answered(name: str, time_s: float | None) -> Answer:
    """A nuclide, or with a time what one mole of it becomes. Runs in the sandboxed process."""
    import radioactivedecay  # pyright: ignore[reportMissingImports]

    library: Any = radioactivedecay
    try:
        nuclide = library.Nuclide(name)
    except ValueError as error:
        return Answer(refused=f"There is no nuclide {name!r}: {error}")
    if time_s is not None:
        left = library.Inventory({nuclide.nuclide: 1.0}, "mol").decay(time_s, "s")
        moles, activities = left.moles(), left.activities("Bq")
        products = {
            str(one): {"moles": float(moles[one]), "becquerels": float(activities[one])} for one in moles
        }
        return Answer({"nuclide": nuclide.nuclide, "time_s": time_s, "products": products})
    half_life_s = float(nuclide.half_life("s"))
    stable = half_life_s == float("inf")
    decays = [
        {"to": to, "fraction": float(fraction), "mode": mode}
        for to, fraction, mode in zip(
            nuclide.progeny(), nuclide.branching_fractions(), nuclide.decay_modes(), strict=True
        )
    ]
    return Answer(
        {
            "nuclide": nuclide.nuclide,
            "atomic_number": nuclide.Z,
            "mass_number": nuclide.A,
            "atomic_mass_u": float(nuclide.atomic_mass),
            "stable": stable,
            "half_life_s": None if stable else half_life_s,
            "half_life": nuclide.half_life("readable"),
            "decays": decays,
        }
    )
