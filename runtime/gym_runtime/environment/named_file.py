"""Imports a Python file that the user has named and that is part of no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from gym_runtime.errors import UsageError


def load_file(path: Path) -> ModuleType:
    """The module of a file, imported once. Modules beside it can be imported, too.

    Raises:
        UsageError: it is not a Python module.
        Exception: whatever it raises while it is imported.
    """
    key = f"gym_runtime_file_{path.stem}"
    loaded = sys.modules.get(key)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(key, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module
    if str(path.parent) not in sys.path:  # it may import modules beside it
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    return module
