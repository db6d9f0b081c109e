"""What the guest takes of verifiers is there: also the names that verifiers promises to no one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from gym_resources.guests import played

PLAYED = Path(played.__file__ or "").parent
FILES = ("verifiers_items.py", "verifiers_loop.py", "verifiers_play.py")
TREES = [ast.parse((PLAYED / name).read_text()) for name in FILES]
# Of objects, whose classes no import shows: where verifiers has them.
ATTRIBUTES = {
    "verifiers.v1.env:Env": "_interception _default_harness taskset config start stop run_episode setup",
    "verifiers.v1.mcp.toolset:Toolset": "_inert_state _with_state setup setup_task register server_name",
    "verifiers.v1.session:RolloutSession": (
        "refused rewrite_request rewrite_response consume_prepared gate_tool_calls decide_tool on_turn_input "
        "request_interceptors request_stops"
    ),
}
# An attribute counts where a class has it, declares it, or sets it in a method.
LOOK = """
import importlib, inspect, sys
lost = []
for name in sys.argv[1:]:
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
        *owners, last = path.split(".")
        for owner in owners:
            found = getattr(found, owner)
        sources = [inspect.getsource(c) for c in getattr(found, "__mro__", ()) if "verifiers" in c.__module__]
        if not hasattr(found, last) and not any(f"self.{last}" in s or f" {last}:" in s for s in sources):
            lost.append(name)
    except (ImportError, AttributeError) as error:
        lost.append(f"{name} ({error})")
print("\\n".join(lost))
"""


def taken() -> Iterator[str]:
    """Every name that the guest's modules import or reach by a module of verifiers', as ``module:name``."""
    for node in (node for tree in TREES for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("verifiers", "mcp"):
            yield from (f"{node.module}:{one.name}" for one in node.names)
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner == "vf":
                yield f"verifiers.v1:{node.attr}"
            elif owner == "graph":
                yield f"verifiers.v1.graph:{node.attr}"
            elif owner.startswith("verifiers.v1."):
                yield f"{owner}:{node.attr}"


def test_every_private_attribute_is_listed() -> None:
    listed = {name for names in ATTRIBUTES.values() for name in names.split()}
    listed |= {name.partition(":")[2] for name in taken()}
    touched = {
        node.attr
        for tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if ast.unparse(node.value) not in ("self", "self._loop")
    }
    assert touched
    assert touched <= listed


@pytest.mark.slow
def test_verifiers_has_what_the_guest_takes() -> None:
    python = os.environ.get("VERIFIERS_PYTHON") or (sys.executable if find_spec("verifiers") else None)
    if python is None:
        pytest.skip("needs VERIFIERS_PYTHON: a Python with verifiers 0.4")
    listed = [f"{owner}.{name}" for owner, names in ATTRIBUTES.items() for name in names.split()]
    wanted = sorted({*taken(), *listed})
    assert "verifiers.v1.agent:_EpisodeAgent" in wanted
    done = subprocess.run([python, "-c", LOOK, *wanted], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == []
