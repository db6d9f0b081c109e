"""Subatomic particles, as the Particle Data Group lists them.

Source: github.com/scikit-hep/particle (BSD-3-Clause), with the PDG's tables.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from anyio import to_thread
from gym_runtime import ToolError, ToolPack, tool
from msgspec import Meta

FOUND_AT_MOST = 10
NUCLEI_FROM = 10_000  # the proton and the neutron have numbers as particles, and as nuclei
ENGLISH = {
    "electron": "e-",
    "positron": "e+",
    "muon": "mu-",
    "photon": "gamma",
    "proton": "p",
    "neutron": "n",
    "antiproton": "p~",
    "higgs": "H0",
    "higgs boson": "H0",
}

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description="A name such as pi+, p, e- or J/psi(1S), or a PDG Monte Carlo number such as 211.",
    ),
]
Query = Annotated[str, Meta(min_length=1, max_length=100, description="A part of a particle's name.")]


class Pack(ToolPack):
    extra = "particle"
    data_license = "BSD-3-Clause; tables of the Particle Data Group"

    @tool(name="particle-lookup")
    async def particle_lookup(self, name_or_id: Name) -> dict[str, Any]:
        """Look up a particle by its name or its PDG number: mass, width, lifetime, charge, spin, quarks."""
        return await to_thread.run_sync(looked_up, name_or_id.strip())

    @tool(name="particle-search")
    async def particle_search(self, query: Query) -> dict[str, Any]:
        """Search particles whose names contain a text; the ten with the lowest numbers at most."""
        return await to_thread.run_sync(searched, query.strip().lower())


def looked_up(name: str) -> dict[str, Any]:
    """One particle; runs in a thread.

    Raises:
        ToolError: no particle has this name.
    """
    name = ENGLISH.get(name.lower(), name)
    for one in _all():
        if name in (str(int(one.pdgid)), one.name):
            return _described(one)
    same = [one for one in _all() if name.lower() in _names(one)]
    if not same:
        raise ToolError(f"There is no particle {name!r}. The tool particle-search finds names.")
    return _described(same[0])


def searched(query: str) -> dict[str, Any]:
    """The particles with a text in one of their names; runs in a thread."""
    found = [one for one in _all() if any(query in name for name in _names(one))]
    return {
        "found": len(found),
        "particles": [
            {"name": one.name, "pdg_id": int(one.pdgid), "mass_mev": one.mass}
            for one in found[:FOUND_AT_MOST]
        ],
    }


@cache
def _all() -> list[Any]:
    """The particles without the nuclei, those with low numbers first, each before its antiparticle."""
    import particle  # pyright: ignore[reportMissingImports]

    library: Any = particle
    every = library.Particle.all()
    known = [one for one in every if not one.pdgid.is_nucleus or abs(int(one.pdgid)) < NUCLEI_FROM]
    return sorted(known, key=lambda one: (abs(int(one.pdgid)), one.pdgid < 0))


def _names(one: Any) -> set[str]:
    """Its names in small letters: the usual one, that of programs, and that of the PDG's tables."""
    return {str(name).lower() for name in (one.name, one.programmatic_name, one.pdg_name) if name}


def _described(one: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "pdg_id": int(one.pdgid),
        "mass_mev": one.mass,
        "mass_uncertainty_mev": one.mass_upper,
        "width_mev": one.width,
        "lifetime_ns": _finite(one.lifetime),
        "charge": float(one.charge),
        "spin": None if one.J is None else float(one.J),
        "quarks": one.quarks or None,
        "antiparticle": one.invert().name,
    }


def _finite(value: float | None) -> float | None:
    """A number that JSON can hold: a stable particle lives for ever."""
    return None if value is None or value == float("inf") else value
