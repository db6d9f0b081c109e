from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime import catalogue
from gym_runtime.environment import Environment, LoadedEnvironment
from gym_runtime.errors import UsageError

OWN = '''"""One of the user's own."""

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(resource=verify, description="Always right.", agent_refs=("their-name_v2",))
'''


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    catalogue.environment.cache_clear()
    return tmp_path


def test_every_module_of_the_packages_is_a_name() -> None:
    names = catalogue.names("environments")
    assert {"mcqa", "example_multi_step"} <= set(names)
    assert names == sorted(names)
    assert "extract" not in names
    assert "tool_loop" in catalogue.names("agents")


def test_listing_imports_nothing() -> None:
    code = (
        "import sys; from gym_runtime import catalogue; catalogue.names('environments');"
        "print([name for name in sys.modules if name.startswith('gym_resources.')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_an_environment_comes_with_its_name_its_resource_and_its_rows() -> None:
    mcqa = catalogue.environment("mcqa")
    assert mcqa.name == "mcqa"
    assert mcqa.definition.domain == "knowledge"
    assert mcqa.resource.stateless
    assert mcqa.examples.name == "mcqa.jsonl"
    assert catalogue.environment("mcqa") is mcqa


@pytest.mark.parametrize("name", ["own", "own.py", "./own.py"])
def test_a_module_in_the_working_directory_is_found(workdir: Path, name: str) -> None:
    (workdir / "own.py").write_text(OWN)
    own = catalogue.environment(name)
    assert (own.name, own.source) == ("own", workdir / "own.py")
    assert own.definition.description == "Always right."


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="there is no environment 'mqca'; did you mean 'mcqa'"):
        catalogue.environment("mqca")
    with pytest.raises(UsageError, match="there is no model 'xyzzy'; 'gym-runtime ls' lists what there is"):
        catalogue.load("models", "xyzzy")


def test_a_module_without_an_environment_is_refused(workdir: Path) -> None:
    (workdir / "empty.py").write_text("")
    with pytest.raises(UsageError, match=r"empty.py has no global 'environment = Environment\(...\)'"):
        catalogue.environment("empty")


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("mcqa", "mcqa"),
        ("mcqa_simple_agent", "mcqa"),
        ("reasoning_gym_simple_agent", "reasoning_gym"),
        ("example_multi_step_simple_agent", "example_multi_step"),
        ("example_session_state_mgmt_simple_agent", "example_session_state_mgmt"),
        ("mcqa_non_executing_simple_agent", "mcqa"),
    ],
)
def test_an_agent_ref_of_nemo_gym_names_an_environment(ref: str, name: str) -> None:
    assert catalogue.resolve_agent_ref(ref) == name


def test_an_agent_ref_that_nobody_has_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no environment goes by agent_ref 'mqca'; did you mean 'mcqa'"):
        catalogue.resolve_agent_ref("mqca")


def needing(extra: str) -> LoadedEnvironment:
    mcqa = catalogue.environment("mcqa")
    definition = Environment(resource=mcqa.definition.resource, description="d", extra=extra)
    return LoadedEnvironment(name="own", definition=definition, resource=mcqa.resource, source=mcqa.source)


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_there(name: str) -> object:
        raise catalogue.PackageNotFoundError(name)

    catalogue.require(needing(""))
    monkeypatch.setattr(catalogue, "distribution", not_there)
    with pytest.raises(
        UsageError, match=r'needs reasoning-gym, .*: pip install "gym-runtime\[reasoning-gym\]"'
    ):
        catalogue.require(needing("reasoning-gym"))
