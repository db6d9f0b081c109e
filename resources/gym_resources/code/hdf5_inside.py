"""Reads SciCode's targets, inside a sandbox of its own: a script that imports nothing of this project.

Its arguments are a file, a step and how many tests it has; it writes the list of targets, pickled, in base64.
The worker reads none of it: another sandbox does.
"""

from __future__ import annotations

import base64
import pickle
import sys
from typing import Any

import h5py
from scipy import sparse


def value(node: Any) -> Any:
    """What a dataset or group holds."""
    if not hasattr(node, "items"):
        found = node[()]
        return found.decode() if isinstance(found, bytes) else found
    if "list" in node:
        return [value(one) for one in node["list"].values()]
    if "sparse_matrix" in node:
        return matrix(node["sparse_matrix"])
    return {number(key): value(one) for key, one in node.items()}


def number(key: str) -> Any:
    """A key that was a number before it was stored."""
    try:
        return float(key)
    except ValueError:
        return key


def matrix(group: Any) -> Any:
    """A sparse matrix, in any of its three forms."""
    data, shape = group["data"][()], tuple(group["shape"][()])
    if "row" in group:
        return sparse.coo_matrix((data, (group["row"][()], group["col"][()])), shape=shape)
    places = (data, group["indices"][()], group["indptr"][()])
    if "blocksize" in group:
        return sparse.bsr_matrix(places, shape=shape, blocksize=tuple(group["blocksize"][()]))
    return sparse.csr_matrix(places, shape=shape)


def main(path: str, step: str, count: str) -> None:
    """Write the targets."""
    targets: list[Any] = []
    with h5py.File(path, "r") as file:
        for place in range(1, int(count) + 1):
            test: Any = file[f"{step}/test{place}"]
            values = [value(one) for one in test.values()]
            targets.append(values[0] if len(values) == 1 else tuple(values))
    sys.stdout.write(base64.b64encode(pickle.dumps(targets)).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
