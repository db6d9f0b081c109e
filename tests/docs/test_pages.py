"""What the documentation says of the code: paths, tests, links, environment variables, generated pages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from docs.pages import PAGES, ROOT
from gym_runtime.environment import catalogue
from gym_runtime.messages.metric_names import METRICS, prometheus_name
from tables import table

ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
AFTERNOON = ROOT / "docs" / "explanation" / "engine-in-an-afternoon.md"
GUARANTEES = ROOT / "docs" / "explanation" / "guarantees.md"
WALKS = ROOT / "docs" / "explanation" / "walks.md"
VARIABLES = ROOT / "docs" / "reference" / "environment-variables.md"
SECURITY = ROOT / "SECURITY.md"
CODE = ("runtime", "agents", "models", "resources", "deploy")
ROOMS = {path.name for path in (ROOT / "runtime" / "gym_runtime").iterdir() if path.is_dir()}
PACKAGES = {path.name for path in (ROOT / "runtime").iterdir() if path.is_dir()}
TOP = {path.name for path in ROOT.iterdir()}
BENCH = ROOT / "tests" / "bench" / "README.md"
GUESTS = sorted((ROOT / "runtime").glob("*/README.md"))


def spelled(text: str) -> list[str]:
    """``a/{b,c}.py`` as its paths.

    >>> spelled("a/{b,c}.py")
    ['a/b.py', 'a/c.py']
    """
    parts = [part.split(",") if place % 2 else [part] for place, part in enumerate(re.split(r"[{}]", text))]
    return ["".join(choice) for choice in product(*parts)]


def named_paths(page: Path) -> list[str]:
    """Paths of the repository in a page's code spans; those without a top folder are in the runtime."""
    return named_paths_in(re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def named_paths_in(text: str) -> list[str]:
    """As `named_paths`, of a text."""
    found: list[str] = []
    for span in re.findall(r"`([^`\n]+)`", text):
        path, _, _ = span.partition("::")
        if not re.fullmatch(r"[\w.{},/@-]+", path) or "/" not in path:
            continue
        first = path.partition("/")[0]
        if first in TOP:
            found += spelled(path)
        elif first in ROOMS and (path.endswith((".py", "/")) or "{" in path):
            found += [f"runtime/gym_runtime/{one}" for one in spelled(path)]
        elif first in PACKAGES:
            found += [f"runtime/{one}" for one in spelled(path)]
    return found


@table("page", [*PAGES, SECURITY, BENCH, *GUESTS])
def test_paths_exist(page: Path) -> None:
    made = ("results/", "build/", "data/")
    named = [path for path in named_paths(page) if not path.startswith(made) and "NAME" not in path]
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing, f"{page.relative_to(ROOT)} names what is not there: {missing}"


@pytest.mark.parametrize("page", GUESTS, ids=lambda page: page.parent.name)
def test_a_guests_page_names_files_that_exist(page: Path) -> None:
    """Their names begin in the guest's folder, or are those of some file of it."""
    spans = re.findall(r"`([\w{},/]+\.py)`", page.read_text())
    files = [path for span in spans if span.partition("/")[0] not in TOP | PACKAGES for path in spelled(span)]
    assert not [path for path in files if "NAME" not in path and not list(page.parent.rglob(path))]


def test_the_map_names_what_its_files_define() -> None:
    """``a/b.py` (`Name`, `Name.method`)`` in the map of ideas."""
    missing: list[str] = []
    for path, names in re.findall(r"`([\w/]+\.py)` \(([^)]*)\)", ARCHITECTURE.read_text()):
        (full,) = named_paths_in(f"`{path}`")
        source = (ROOT / full).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                if not re.search(rf"(def |class |^ *){part}\b", source, re.MULTILINE):
                    missing.append(f"{full}: {name}")
    assert not missing


@pytest.mark.parametrize(
    "page", [*(page for page in PAGES if page.parent == ROOT), SECURITY], ids=lambda page: page.name
)
def test_links_of_the_root_lead_somewhere(page: Path) -> None:
    """Those within docs/ are checked by the strict build."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http", "#")):
            assert (ROOT / target.partition("#")[0]).exists(), target


def test_where_to_read_on_has_every_page() -> None:
    """As the start page says; the page of environments has a page of each domain."""
    docs = ROOT / "docs"
    own = docs / "where-to-read-on.md"
    named = {(docs / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", own.read_text())}
    pages = set(docs.rglob("*.md")) - set((docs / "reference" / "environments").glob("*.md"))
    assert pages - named == {docs / "index.md", own}


def test_the_page_of_the_engine_counts_its_files_and_their_lines() -> None:
    """Without blanks, comments and docstrings; a file may grow by a tenth before its number changes."""
    page = AFTERNOON.read_text()
    rows = re.findall(r"^\| `([\w/.]+\.py)` \| (\d+) \|", page, re.MULTILINE)
    counts = {path: _code_lines(ROOT / "runtime" / "gym_runtime" / path) for path, _ in rows}
    for path, said in rows:
        assert abs(counts[path] - int(said)) <= max(15, int(said) // 10), f"{path} has {counts[path]} lines"
    on_trust = {path for path in counts if path.startswith("bus/") and path != "bus/interface.py"}
    all_files, fewer = re.findall(r"(\d+) (?:of its )?files.*?([\d,]+) lines", page, re.DOTALL)
    for (files, lines), of in ((all_files, set(counts)), (fewer, set(counts) - on_trust)):
        assert int(files) == len(of)
        told = int(lines.replace(",", ""))
        assert abs(sum(counts[path] for path in of) - told) <= told // 20


def _code_lines(path: Path) -> int:
    source = path.read_text()
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        named = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if named and ast.get_docstring(node, clean=False) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(re.match(r"\s*[^\s#]", line)) for number, line in lines if number not in documented)


def test_guarantees_name_tests_that_exist() -> None:
    named = re.findall(r"`tests/([\w/]+\.py)(?:::(\w+))?`", GUARANTEES.read_text())
    assert named
    for path, name in named:
        text = (ROOT / "tests" / path).read_text()
        assert not name or f"def {name}(" in text, f"{path} has no {name}"


def test_every_environment_variable_is_documented() -> None:
    written = [path for top in CODE for kind in ("*.py", "*.sbatch") for path in (ROOT / top).rglob(kind)]
    source = "".join(path.read_text() for path in written)
    used = set(re.findall(r"GYM_[A-Z][A-Z0-9_]*[A-Z0-9]", source))
    documented = set(re.findall(r"GYM_[A-Z][A-Z0-9_]*[A-Z0-9]", VARIABLES.read_text()))
    assert {re.sub(r"_0$", "", name) for name in documented} == used


@pytest.mark.slow
def test_reference_is_what_the_code_says() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / ".ci" / "reference", "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert checked.returncode == 0, f"run: python .ci/reference\n{checked.stdout}{checked.stderr}"


def test_the_page_of_files_has_each_field_of_a_rows_own_part() -> None:
    source = (ROOT / "runtime" / "gym_runtime" / "rollout" / "record.py").read_text()
    written = source.partition('row["_gym"] = {')[2].partition("}")[0]
    rarer = source.partition("    known = {\n")[2].partition("\n    }\n")[0]
    fields = re.findall(r'^ {8}"(\w+)":', written + rarer, re.MULTILINE)
    page = (ROOT / "docs" / "reference" / "files.md").read_text()
    described = page.partition("`_gym` has:")[2].partition("##")[0]
    assert {"attempt", "calls"} < {*fields} <= {*re.findall(r"`(\w+)`", described)}


def test_the_python_reference_begins_with_connect() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    assert re.findall(r"^### `(\w+)`", page, re.MULTILINE)[:3] == ["connect", "connect_sync", "Client"]


@pytest.mark.slow
def test_walks_name_methods_that_exist() -> None:
    sources = [path.read_text() for top in CODE for path in (ROOT / top).rglob("*.py")]
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", WALKS.read_text())
    assert named
    for owner, method in named:
        found = [source for source in sources if re.search(rf"^class {owner}\b", source, re.MULTILINE)]
        assert any(f"def {method}(" in source for source in found), f"{owner}.{method}"


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "how-to" / "metrics.md").read_text()
    rows = re.findall(r"^\| `((?:gym|gen_ai)_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [
        (
            prometheus_name(metric),
            metric.kind,
            ", ".join(f"`{label.replace('.', '_')}`" for label in metric.labels),
            metric.about,
        )
        for metric in METRICS
    ]


def test_the_table_of_benchmarks_has_each_with_its_repeats() -> None:
    page = (ROOT / "docs" / "how-to" / "benchmarks.md").read_text()
    table_of_all = page.partition("## The benchmarks")[2].partition("\n## ")[0]
    said: dict[str, int] = {}
    for named, _, _, repeats in re.findall(
        r"^\| (`.*?) \| (.*?) \| (.*?) \| (.*?) \|", table_of_all, re.MULTILINE
    ):
        names = re.findall(r"`(\w+)`", named)
        counts = [int(one) for one in re.findall(r"(?:^|; )(\d+)", repeats)]
        said |= zip(names, counts if len(counts) == len(names) else counts[:1] * len(names), strict=True)
    defined = {name: catalogue.environment(name).definition for name in catalogue.names("environments")}
    assert said == {name: one.repeats for name, one in defined.items() if one.benchmark is not None}
