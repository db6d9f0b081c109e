"""SWE-bench Verified on an image in its authors' form, made here; its repository has later commits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gym_resources.swe import shell
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ResourceError
from gym_sandbox import container_engines
from resources.judging import ROWS, call, judge, output
from sandbox import images

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]
NAME = f"{images.NAME}.own_1776_abacus-1"
WRONG, RIGHT = "    return a + b + 1\n", "    return a + b\n"
OLD_TEST = "from abacus import add\n\n\ndef test_zero():\n    assert add(0, 0) in (0, 1)\n"
NEW_TEST = "\n\n@pytest.mark.parametrize('word', ['a b'])\ndef test_add(word):\n    assert add(1, 2) == 3\n"
TEST_PATCH = (
    "diff --git a/tests/test_abacus.py b/tests/test_abacus.py\n"
    "--- a/tests/test_abacus.py\n+++ b/tests/test_abacus.py\n"
    "@@ -1,5 +1,11 @@\n+import pytest\n from abacus import add\n \n \n def test_zero():\n"
    "     assert add(0, 0) in (0, 1)\n" + "".join(f"+{line}\n" for line in NEW_TEST.split("\n")[:-1])
)
ACTIVATE = "conda() { [ \"$*\" = 'activate testbed' ]; }\n"
PYTEST = "#!/usr/bin/python3\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
PACKAGES = ("pytest", "_pytest", "py.py", "pluggy", "pluggy-*", "iniconfig", "packaging", "pygments")
FIX = "sed -i 's/a + b + 1/a + b/' abacus.py"


def _git(repository: Path, *arguments: str) -> str:
    variables = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "PATH": os.environ["PATH"],
    }
    named = ["-c", "user.name=g", "-c", "user.email=g@g"]
    done = subprocess.run(
        ["git", *named, *arguments], cwd=repository, env=variables, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _files(root: Path) -> str:
    """What the image has besides `images.NAME`; the repository's commit."""
    repository = root / "testbed"
    (repository / "tests").mkdir(parents=True)
    (repository / "abacus.py").write_text(f"def add(a, b):\n{WRONG}")
    (repository / "tests/test_abacus.py").write_text(OLD_TEST)
    (repository / "conftest.py").write_text("")
    _git(repository, "init", "-q", "-b", "main")
    for text, tag in ((WRONG, "v1"), (RIGHT, "v2")):
        (repository / "abacus.py").write_text(f"def add(a, b):\n{text}")
        _git(repository, "add", "-A")
        _git(repository, "commit", "-qm", tag)
        _git(repository, "tag", tag)
    _git(repository, "remote", "add", "origin", "https://localhost/abacus")
    _git(repository, "checkout", "-q", "v1")
    for path, text in (("opt/miniconda3/bin/activate", ACTIVATE), ("usr/local/bin/pytest", PYTEST)):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
        (root / path).chmod(0o755)
    site, place = Path(pytest.__file__).parents[1], root / "usr/lib/python3/dist-packages"
    place.mkdir(parents=True)
    for found in (path for name in PACKAGES for path in site.glob(name)):
        copy = shutil.copytree if found.is_dir() else shutil.copy
        copy(found, place / found.name)
    return _git(repository, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def base_commit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    found = images.engine("podman")
    if found.refusal:
        pytest.skip(found.refusal)
    root = tmp_path_factory.mktemp("root")
    commit = _files(root)
    problem = images.imported(found, NAME, root)
    assert not problem, problem
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**found.variables, container_engines.SETTING: found.name}.items():
            patched.setenv(name, value)
        container_engines.counts.cache_clear()
        yield commit
    container_engines.counts.cache_clear()


def row(base_commit: str, **fields: Any) -> bytes:
    published = json.loads((ROWS / "swebench_verified.jsonl").read_bytes().splitlines()[0])
    own = {
        "base_commit": base_commit,
        "image_name": NAME,
        "test_patch": TEST_PATCH,
        # As SWE-bench's reader names a test whose parameter has a space.
        "FAIL_TO_PASS": json.dumps(["tests/test_abacus.py::test_add[a"]),
    }
    return json.dumps({**published, **own, **fields}).encode()


async def worked(base_commit: str, *scripts: str) -> tuple[float, dict[str, Any]]:
    items: list[Any] = []
    for number, script in enumerate((*scripts, f"echo {shell.SUBMIT}")):
        items += [call("bash", {"command": script}, f"c{number}"), output("", f"c{number}")]
    verdict = await judge("swebench_verified", row(base_commit), *items)
    return verdict.reward, verdict.fields["metadata"]["eval_report"]


async def test_the_issue_is_resolved_by_its_patch_and_by_a_models(base_commit: str) -> None:
    golden = await judge("swebench_verified", row(base_commit, run_golden=True))
    assert golden.reward == 1.0, golden.fields
    reward, report = await worked(base_commit, FIX)
    assert reward == 1.0, report
    assert report["tests"] == {
        "tests/test_abacus.py::test_add[a": True,
        "tests/test_abacus.py::test_zero": True,
    }


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "git checkout -q v2 || git checkout -q main || git pull -q",
        "sed -i 's/a + b + 1/0/' abacus.py",
        "echo 'def pytest_collection_modifyitems(items): items.clear()' >conftest.py",
        "sed -i '1i print(\"PASSED tests/test_abacus.py::test_add[a b]\")' abacus.py",
        "echo 'import os; exec(os.popen(\"git show v2:abacus.py\").read())' >>abacus.py",
        "sed -i '1i import os; print(\"PASSED tests/test_abacus.py::test_add[a b]\"); os._exit(0)' abacus.py",
    ],
)
async def test_nothing_else_resolves_it(base_commit: str, script: str) -> None:
    reward, report = await worked(base_commit, script)
    assert (reward, report["resolved"]) == (0.0, False), report


async def test_the_model_does_not_see_later_commits(base_commit: str) -> None:
    items = [call("bash", {"command": "git log --all --format=%s; git tag; git remote; git branch -a"})]
    resource = catalogue.environment("swebench_verified").resource
    async with session_of(resource, row(base_commit)) as session:
        answer = await resource.step(session, make_response(*items))
    [said] = [json.loads(bytes(item))["output"] for item in answer.items]
    assert "v1\nv1" in said
    assert not [name for name in ("v2", "origin", "main") if name in said]


async def test_a_test_patch_that_does_not_apply_is_no_reward(base_commit: str) -> None:
    wrong = row(base_commit, run_golden=True, test_patch=TEST_PATCH.replace("add(0, 0)", "add(9, 9)"))
    with pytest.raises(ResourceError, match="set-up of own__abacus-1 failed"):
        await judge("swebench_verified", wrong)
