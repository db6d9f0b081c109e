"""The chemical elements and their isotopes.

Source: github.com/python-periodictable/periodictable (public domain).
"""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from gym_runtime import ToolError, ToolPack, tool
from msgspec import Meta

Name = Annotated[
    str,
    Meta(min_length=1, max_length=40, description="A symbol (Fe), an English name (iron), or a number (26)."),
]
MassNumber = Annotated[int, Meta(ge=1, le=400, description="Protons and neutrons together, such as 56.")]


class Pack(ToolPack):
    extra = "periodictable"
    data_license = "public domain"

    @tool(name="element-info")
    async def element_info(self, element: Name) -> dict[str, Any]:
        """Look up a chemical element: its number, mass, density, radius, and isotopes."""
        return await to_thread.run_sync(described, element)

    @tool(name="isotope-info")
    async def isotope_info(self, element: Name, mass_number: MassNumber) -> dict[str, Any]:
        """Look up an isotope: its mass and natural abundance."""
        return await to_thread.run_sync(isotope, element, mass_number)


def described(element: str) -> dict[str, Any]:
    """An element; runs in a thread.

    Raises:
        ToolError: no element has this name.
    """
    found = _element(element)
    return {
        "symbol": found.symbol,
        "name": found.name,
        "number": found.number,
        "mass_u": found.mass,
        "density_g_cm3": found.density,
        "covalent_radius_angstrom": found.covalent_radius,
        "ions": list(found.ions),
        "isotopes": list(found.isotopes),
    }


def isotope(element: str, mass_number: int) -> dict[str, Any]:
    """An isotope; runs in a thread.

    Raises:
        ToolError: no element has this name, or no isotope this mass number.
    """
    found = _element(element)
    if mass_number not in found.isotopes:
        raise ToolError(f"{found.name} has no isotope {mass_number}. It has: {_listed(found.isotopes)}.")
    one = found[mass_number]
    return {
        "symbol": found.symbol,
        "mass_number": mass_number,
        "mass_u": one.mass,
        # The library has 0 for each isotope of some elements, such as uranium, whose shares it does not know.
        "abundance_percent": one.abundance if any(found[a].abundance for a in found.isotopes) else None,
    }


def _element(name: str) -> Any:
    import periodictable  # pyright: ignore[reportMissingImports]

    library: Any = periodictable
    wanted = name.strip().lower()
    for element in library.elements:
        if element.number and wanted in (element.symbol.lower(), element.name.lower(), str(element.number)):
            return element
    raise ToolError(
        f"There is no element {name!r}. Give a symbol (Fe), an English name (iron) or a number (26)."
    )


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, numbers))
