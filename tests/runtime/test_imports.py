"""Imports: authors import public names, and importing does nothing and stays light."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    **{path.name: path for path in sorted((ROOT / "runtime").glob("gym_*"))},
    "gym_deploy": ROOT / "deploy" / "gym_deploy",
    "gym_agents": ROOT / "agents" / "gym_agents",
    "gym_resources": ROOT / "resources" / "gym_resources",
    "gym_models": ROOT / "models" / "gym_models",
}
HEAVY = {
    "aiohttp",
    "datasets",
    "huggingface_hub",
    "jsonschema",
    "nacl",
    "numpy",
    "openai",
    "opentelemetry",
    "pandas",
    "polars",
    "reasoning_gym",
    "rich",
    "sympy",
    "torch",
    "transformers",
    "typer",
    "xllamacpp",
}
BROUGHT_ALONG = {"rich", "aiohttp"}
"""What structlog and nats-py (for WebSockets) import by themselves."""


def modules() -> list[tuple[str, Path]]:
    return [(package, path) for package, folder in SOURCES.items() for path in sorted(folder.rglob("*.py"))]


def statements(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a source, wherever in it."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_modules_name_stands_for_one_thing() -> None:
    """In its package. A room and its main module may share a name, as ``rollout/rollout.py``; a guest's is
    its library's, and a command's the command's.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for package, path in modules():
        named = path.parent if path.name == "__init__.py" else path.with_suffix("")
        if named.name != named.parent.name and named.parent.name not in {
            "guests",
            "commands",
            "cli",
            "scaffold",
        }:
            places.setdefault((package, named.name), []).append(relative(named))
    assert [found for found in places.values() if len(found) > 1] == []


LINES = 500
TABLES = {"client.py", "link.py", "rollout.py", "dataset.py", "tools.py"}
"""Files with a reason to be longer: half of them are docstrings, of the client's face and of a bus's laws; or
they are one life read from top to bottom: of a rollout, of a file of rows, of a tool from its signature."""


def test_no_module_is_too_long() -> None:
    """Nor is a module of the tests."""
    paths = [*(path for _, path in modules()), *sorted((ROOT / "tests").rglob("*.py"))]
    lengths = {relative(path): path.read_text().count("\n") for path in paths if path.name not in TABLES}
    assert {path: length for path, length in lengths.items() if length > LINES} == {}


SATELLITES = ("gym_agents", "gym_models", "gym_resources")
SNIPPET = re.compile(r"^```python[^\n]*\n(.*?)^```", re.M | re.S)


def authors_code() -> Iterator[tuple[str, str]]:
    """What is written on top of the runtime: agents, environments, adapters, and what authors start from."""
    for package, path in modules():
        if package in SATELLITES:
            yield relative(path), path.read_text()
    for path in sorted((SOURCES["gym_testing"] / "scaffold").glob("*.py")):
        yield relative(path), path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for snippet in SNIPPET.findall(path.read_text()):
            yield relative(path), snippet


def runtime_modules(source: str) -> set[str]:
    """The modules of the runtime that a source imports: ``gym_runtime.a.b`` also if it imports b from a."""
    found: set[str] = set()
    for node in statements(source):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif node.module:
            found.add(node.module)
            if node.module.partition(".")[0] not in SOURCES:
                continue
            folder = SOURCES[node.module.partition(".")[0]].joinpath(*node.module.split(".")[1:])
            stub = folder / "__init__.pyi"
            public = stub.read_text() if stub.is_file() else ""
            found.update(
                f"{node.module}.{name.name}"
                for name in node.names
                if (folder / f"{name.name}.py").is_file() or (folder / name.name).is_dir()
                if f"import {name.name} as" not in public
            )
    return {name for name in found if name.partition(".")[0] in SOURCES}


def test_a_deep_import_is_found_in_each_form() -> None:
    deep = "gym_faces.recordings.calls_file"
    for source in (
        f"import {deep}",
        f"from {deep} import make_entry",
        "from gym_faces.recordings import calls_file",
    ):
        assert deep in runtime_modules(source)
    assert runtime_modules("from gym_faces.recordings import make_entry") == {"gym_faces.recordings"}


def is_deep(place: str, module: str) -> bool:
    """Whether a module of another package is inside a room."""
    package = module.partition(".")[0]
    return module.count(".") > 1 and package not in SATELLITES and f"/{package}/" not in place


@pytest.mark.slow
def test_authors_import_from_the_package_or_from_a_room_of_it() -> None:
    deep = {
        place: names
        for place, source in authors_code()
        if (names := {name for name in runtime_modules(source) if is_deep(place, name)})
    }
    assert deep == {}, "import these names from gym_runtime, or from the room's package"


def run(program: str, **variables: str) -> str:
    """What a program prints in a fresh interpreter."""
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


WATCHED = """
import sys

seen = []
def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.system", "os.posix_spawn", "os.putenv",
                         "shutil.", "tempfile.")) or event in ("os.mkdir", "os.remove", "os.rename"):
        seen.append(event)
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        seen.append(f"open {arguments[0]}")

class Watch(dict):
    def note(self, name):
        frame = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__") == "os":
            frame = frame.f_back
        module = frame.f_globals.get("__name__", "") if frame else ""
        if module.startswith("gym_"):
            seen.append(f"{module} reads {name}")

import os, threading
real = os.environ
class Reading(type(real)):
    def __getitem__(self, name):
        Watch().note(name)
        return super().__getitem__(name)
    def get(self, name, default=None):
        Watch().note(name)
        return super().get(name, default)
real.__class__ = Reading
sys.addaudithook(watch)

import asyncio
IMPORT
assert not seen, seen
assert threading.active_count() == 1, threading.enumerate()
assert asyncio._get_running_loop() is None
HEAVY = sorted({name.partition(".")[0] for name in sys.modules} & set(HEAVY_NAMES))
print(*HEAVY)
"""


def watched(statement: str) -> set[str]:
    """The heavy libraries that a statement imports; it fails if it does anything else but importing."""
    program = WATCHED.replace("IMPORT", statement).replace("HEAVY_NAMES", repr(sorted(HEAVY)))
    # Bytecode would be written; that is Python's doing.
    return set(run(program, PYTHONDONTWRITEBYTECODE="1").split())


def test_importing_the_package_does_nothing_and_is_light() -> None:
    assert watched("import gym_runtime") == set()


NAMES = ["Environment", "Episode", "Reply", "Session", "Task", "Text", "ToolError", "Verdict", "tool"]


def test_what_authors_import_is_light() -> None:
    names = f"from gym_runtime import {', '.join(NAMES)}, GymError"
    assert watched(f"{names}\nfrom gym_runtime.adapters import Agent, Adapter, Rollout") <= {"rich"}


@pytest.mark.slow
def test_every_public_name_is_there() -> None:
    modules = ("gym_runtime", *(f"gym_runtime.{one}" for one in ("adapters", "training", "bus", "messages")))
    program = f"""
import importlib
for module in map(importlib.import_module, {modules}):
    print(len([getattr(module, name) for name in module.__all__]))
"""
    assert all(map(int, run(program).split()))
    assert len(run("import gym_runtime; print(*dir(gym_runtime))").split()) <= 50


def test_a_name_that_moved_says_where_to_look() -> None:
    # In its own process: another test may have loaded the name.
    program = "import gym_runtime\ntry: gym_runtime.Adapter\nexcept AttributeError as error: print(error)"
    assert "look in gym_runtime.adapters" in run(program)


def all_modules(package: str) -> list[str]:
    folder = SOURCES[package].parent
    return [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for owner, path in modules()
        if owner == package and not path.name.startswith("__main__")
    ]


@pytest.mark.slow
def test_importing_any_module_does_nothing() -> None:
    # Some adapters to trainers derive from a trainer's classes, so they import it where it is installed.
    left_out = (".scaffold.", *(f"gym_trainers.{name}" for name in ("openrlhf", "verl", "skyrl")))
    packages = sorted(set(SOURCES) - {"gym_models", "gym_resources"})
    modules = [one for package in packages for one in all_modules(package)]
    watched("\n".join(f"import {one}" for one in modules if not any(part in one for part in left_out)))


def test_an_agent_is_light() -> None:
    assert watched("\n".join(f"import {module}" for module in all_modules("gym_agents"))) <= {"rich"}


@pytest.mark.slow
def test_a_worker_imports_no_engine_and_no_tracing_before_it_needs_them() -> None:
    assert watched("import gym_runtime.system.worker_process, gym_runtime.system.supervisor") <= BROUGHT_ALONG
