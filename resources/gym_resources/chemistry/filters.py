"""The two Bloom filters of the benchmark's authors: ring systems and atom environments of known molecules."""

from __future__ import annotations

from gym_runtime import Asset

NAMES = ("rings.bloom", "fingerprints.bloom")
COMMIT = "0dc64552e4a094d7431d1fb77798635584fe6cf3"
FILTERS = Asset(
    name="ether0-filters",
    description="the filters of known rings and surroundings of atoms of the package ether0",
    licence="Apache-2.0",
    urls={
        name: f"https://raw.githubusercontent.com/Future-House/ether0/{COMMIT}/src/ether0/{name}"
        for name in NAMES
    },
    size_bytes=500_000_000,
    setting="GYM_ETHER0_FILTERS",
    page="https://github.com/Future-House/ether0",
)
