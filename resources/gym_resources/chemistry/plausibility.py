"""Whether a molecule is one that chemists know the like of, and not only one that can be written down.

At most one small counter-ion may be beside it; every ring system and every surrounding of an atom must be
one that the benchmark's authors have seen, or that the reference molecule has. What they have seen are two
Bloom filters, which come with their package ``ether0``; it is on no index, but on GitHub.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

from gym_runtime.errors import ResourceError

from gym_resources.chemistry.molecules import Molecule, environments, parts, rings

COUNTER_ION_ATOMS = 5
INSTALL = 'pip install "ether0 @ git+https://github.com/Future-House/ether0"'


def plausible(mol: Molecule, reference: Molecule | None = None) -> bool:
    """Whether a molecule is plausible.

    Raises:
        ResourceError: it depends on the filters, and they are not installed.
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


@cache
def _seen(kind: Literal["rings", "fingerprints"]) -> Container[str]:
    import molbloom

    package = find_spec("ether0")
    for folder in (package.submodule_search_locations if package else None) or ():
        path = Path(folder) / f"{kind}.bloom"
        if path.is_file():
            return cast("Any", molbloom).BloomFilter(str(path))
    raise ResourceError(
        f"whether the molecule is plausible cannot be told without ether0's {kind}.bloom: {INSTALL}",
        stage="verify",
    )
