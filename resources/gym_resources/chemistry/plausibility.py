"""Whether a molecule resembles known ones, beyond being a valid SMILES.

At most one small counter-ion may be beside it; every ring system and every surrounding of an atom must be in
the benchmark's collections, or in the reference molecule. The collections are two Bloom filters, the asset
`FILTERS` of the environment.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from pathlib import Path
from typing import Any, cast

from gym_runtime import assets

from gym_resources.chemistry.filters import FILTERS
from gym_resources.chemistry.molecules import Molecule, environments, parts, rings

COUNTER_ION_ATOMS = 5


def plausible(mol: Molecule, reference: Molecule | None = None) -> bool:
    """Whether a molecule is plausible.

    Raises:
        AssetMissing: it depends on the filters, and they are not there.
    """
    main, *others = parts(mol) or [mol]
    if len(others) > 1 or any(other.GetNumHeavyAtoms() > COUNTER_ION_ATOMS for other in others):
        return False
    odd_rings, odd_places = rings(main), environments(main)
    if reference is not None:
        odd_rings -= rings(reference)
        odd_places -= environments(reference)
    return all(ring in _seen("rings") for ring in odd_rings) and all(
        str(place) in _seen("fingerprints") for place in odd_places
    )


def _seen(kind: str) -> Container[str]:
    return _filter(assets.find(FILTERS, "ether0", f"{kind}.bloom")[0])


@cache
def _filter(path: Path) -> Container[str]:
    import molbloom

    return cast("Any", molbloom).BloomFilter(str(path))
