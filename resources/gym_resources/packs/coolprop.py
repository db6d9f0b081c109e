"""Properties of pure fluids at a temperature and a pressure, computed by CoolProp.

The library runs in a sandboxed process: it is native code, and loads files that a fluid's name may choose.
Source: github.com/CoolProp/CoolProp (MIT).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from gym_runtime import ToolError, ToolPack, run_isolated, tool
from msgspec import Meta

LIBRARY = "CoolProp.CoolProp"
LIMIT_S = 10.0
PROPERTIES = {
    "density": ("D", "kg/m^3"),
    "enthalpy": ("H", "J/kg"),
    "entropy": ("S", "J/(kg K)"),
    "internal_energy": ("U", "J/kg"),
    "heat_capacity": ("C", "J/(kg K)"),
    "heat_capacity_constant_volume": ("O", "J/(kg K)"),
    "speed_of_sound": ("A", "m/s"),
    "viscosity": ("V", "Pa s"),
    "thermal_conductivity": ("L", "W/(m K)"),
    "prandtl": ("PRANDTL", ""),
    "compressibility_factor": ("Z", ""),
    "molar_mass": ("M", "kg/mol"),
    "phase": ("Phase", ""),
}
_NAMES = {word.upper(): name for name, (key, _) in PROPERTIES.items() for word in (key, name)}

Fluid = Annotated[str, Meta(max_length=100, description="The name of a fluid, such as Water, R134a or CO2.")]
Property = Annotated[
    str, Meta(max_length=100, description=f"One of {', '.join(PROPERTIES)}; or CoolProp's letter for it.")
]
Kelvin = Annotated[float, Meta(gt=0, description="The temperature in K.")]
Pascal = Annotated[float, Meta(gt=0, description="The pressure in Pa.")]


class Pack(ToolPack):
    extra = "coolprop"
    data_license = "MIT"

    @tool(name="fluid-property")
    async def fluid_property(
        self, fluid: Fluid, output_property: Property, temperature: Kelvin, pressure: Pascal
    ) -> dict[str, Any]:
        """Compute a property of a pure fluid at a temperature and a pressure."""
        name = _NAMES.get(output_property.upper())
        if name is None:
            raise ToolError(f"There is no property {output_property!r}. There are: {', '.join(PROPERTIES)}.")
        found = await self._ask(fluid, name, temperature, pressure)
        return {"fluid": fluid, "property": name, "value": found, "unit": PROPERTIES[name][1]}

    @tool(name="fluid-list")
    async def fluid_list(self) -> dict[str, Any]:
        """List the names of the fluids that are known."""
        return {"fluids": await self._ask("", "", 0.0, 0.0)}

    async def _ask(self, *question: Any) -> float | str | list[str]:
        try:
            answer = await run_isolated(answered, *question, timeout_s=LIMIT_S, imports=(LIBRARY,))
        except TimeoutError:
            self.timeouts += 1
            raise ToolError(f"The computation took longer than {LIMIT_S:g} s.") from None
        if answer.refused:
            raise ToolError(answer.refused)
        return answer.value


class Answer(msgspec.Struct, frozen=True):
    """What the library says, or why it refuses."""

    value: float | str | list[str] = ""
    refused: str = ""


def answered(fluid: str, name: str, kelvin: float, pascal: float) -> Answer:
    """A property; without a fluid, the names of all. Runs in the sandboxed process."""
    from CoolProp import CoolProp  # pyright: ignore[reportMissingImports]

    library: Any = CoolProp
    known: list[str] = sorted(library.FluidsList())
    if not fluid:
        return Answer(known)
    try:
        aliases = {alias.upper() for one in known for alias in (one, *library.get_aliases(one))}
        if fluid.upper() not in aliases:  # a name with "::" would choose another backend
            return Answer(refused=f"There is no fluid {fluid!r}. The tool fluid-list has the names.")
        if name == "phase":
            return Answer(library.PhaseSI("T", kelvin, "P", pascal, fluid))
        value: float = library.PropsSI(PROPERTIES[name][0], "T", kelvin, "P", pascal, fluid)
    except ValueError as error:
        return Answer(refused=f"{name} of {fluid} at {kelvin:g} K and {pascal:g} Pa: {str(error)[:300]}")
    if value - value != 0:
        return Answer(refused=f"{name} of {fluid} is not defined at {kelvin:g} K and {pascal:g} Pa.")
    return Answer(value)
