from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.environment import Environment, LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_sandbox import bubblewrap
from tables import table

SINGLE_STEP = "single_step_tool_use_with_argument_comparison"
OWN = '''"""One of the user's own."""

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(resource=verify, description="Always right.", agent_refs=("their-name_v2",))
'''


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_module_of_the_packages_is_a_name() -> None:
    names = catalogue.names("environments")
    assert {"mcqa", "example_multi_step"} <= set(names)
    assert names == sorted(names)
    assert "extract" not in names
    assert "tool_loop" in catalogue.names("agents")


def test_listing_imports_nothing() -> None:
    code = (
        "import sys; from gym_runtime.environment import catalogue; catalogue.names('environments');"
        "print([name for name in sys.modules if name.startswith('gym_resources.')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_environments_are_named_one_by_one_or_in_a_list(workdir: Path) -> None:
    Path("a,b.py").write_text(OWN)
    several = catalogue.several
    assert several(["mcqa", "bfcl,./own.py", "gpqa, mcqa"]) == ("mcqa", "bfcl", "./own.py", "gpqa", "mcqa")
    for nothing in ("", " ", ","):
        with pytest.raises(UsageError, match=f"'{nothing}' names no environment"):
            several(["mcqa", nothing])
    assert several(["a,b.py"]) == ("a,b.py",), "a file's name may have a comma"
    url = "openenv:http://h:1/x?a=1,2"
    setting = 'reasoning-gym:x?a=["b", "c"],,'
    assert several([setting]) == (setting,)
    assert several([f"mcqa,{url},mcqa,nosuch"]) == ("mcqa", url, "mcqa", "nosuch")


def test_two_files_of_one_name_are_refused(workdir: Path) -> None:
    for folder in ("one", "two"):
        (workdir / folder).mkdir()
        (workdir / folder / "twin.py").write_text(OWN)
    with pytest.raises(UsageError, match="both the environment 'twin': rename a file"):
        catalogue.environments(["one/twin.py", "mcqa", "two/twin.py"])
    twice = catalogue.environments(["one/twin.py", "./one/twin.py", "mcqa"])
    assert [one.name for one in twice] == ["twin", "twin", "mcqa"]


def test_a_relative_import_of_a_file_says_how_it_is_written(workdir: Path) -> None:
    (workdir / "relative.py").write_text(f"from .prompts import WORD\n{OWN}")
    with pytest.raises(
        UsageError, match=r"a file is no package: import what is beside it by its name \(.*:1\)$"
    ):
        catalogue.environment("relative.py")


def test_two_folders_with_a_module_of_one_name_are_refused(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the second would judge with the first one's prompts.
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("left", "right"):
        (workdir / folder).mkdir()
        (workdir / folder / "own_prompts.py").write_text(f"WORD = '{folder}'\n")
        (workdir / folder / "json.py").write_text("")  # the standard library's is meant
        text = "import json\nfrom own_prompts import WORD\n"
        (workdir / folder / f"of_{folder}.py").write_text(f"{text}{OWN}")
    (workdir / "right" / "of_itself.py").write_text(OWN)
    catalogue.environment("left/of_left.py")
    catalogue.environment("right/of_itself.py")
    wrong = f"right/of_right.py imports 'own_prompts', which is {workdir}/left/own_prompts.py in this process"
    with pytest.raises(UsageError, match=re.escape(wrong)):
        catalogue.environment("right/of_right.py")
    del sys.modules["own_prompts"]


def test_a_file_that_has_changed_is_imported_again_when_it_is_asked_for(workdir: Path) -> None:
    file = workdir / "edited.py"
    file.write_text(OWN)
    served = workdir / "served.toml"
    served.write_text('environment = "edited.py"')
    first = catalogue.environment("edited.py")
    catalogue.forget_changed()
    assert catalogue.environment("edited.py") is first
    file.write_text(OWN.replace("Always right.", "Always right, once more."))
    assert catalogue.environment("edited.py") is first  # a run may be in progress
    catalogue.forget_changed()
    for name in ("edited.py", "served.toml"):
        assert catalogue.environment(name).definition.description == "Always right, once more."
    file.unlink()
    catalogue.forget_changed()
    with pytest.raises(UsageError, match="edited"):
        catalogue.environment("edited.py")


def test_an_environment_is_not_given_as_an_object(workdir: Path) -> None:
    for given in (catalogue.environment("mcqa").definition, Path("own.py"), ["mcqa"], None):
        with pytest.raises(UsageError, match=f"by a file's path, and not as {type(given).__name__}: workers"):
            catalogue.environments([given])  # type: ignore[list-item]


OTHERS = """
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError

for name in ("mcqa", "greeting", "lacking"):
    try:
        print(catalogue.environment(name).name)
    except UsageError as error:
        print(error)
"""


def test_a_name_that_two_packages_offer_is_refused(workdir: Path) -> None:
    package, metadata = workdir / "greetings", workdir / "greetings-1.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    # The key is that of the project's own package, too.
    offered = "[gym_runtime.environments]\ngym_resources = greetings\n"
    (metadata / "entry_points.txt").write_text(offered)
    for name, text in {
        "__init__": "",
        "mcqa": OWN,
        "greeting": OWN,
        "lacking": "import nowhere_to_be_found",
    }.items():
        (package / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", OTHERS]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(workdir)}
    )
    twice, once, lacking = done.stdout.splitlines()
    assert "greetings.mcqa" in twice
    assert "gym_resources.mcqa" in twice
    assert "are both the environment 'mcqa': rename or uninstall one, or name its file" in twice
    assert once == "greeting"
    assert lacking.endswith("'nowhere_to_be_found', which is not installed: pip install nowhere_to_be_found")


def test_an_installed_environment_before_a_file_is_said(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "xstest.py").write_text(OWN)
    assert catalogue.several(["xstest"]) == ("xstest",)
    assert "'xstest' is an installed environment; for " in "".join(capsys.readouterr())
    assert catalogue.several(["./xstest.py"]) == ("./xstest.py",)
    assert "is an installed" not in "".join(capsys.readouterr())


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
    for name, near in (("harbr:tasks/one", "harbor:tasks/one"), ("harbor:", "harbor:ADDRESS")):
        with pytest.raises(UsageError, match=f"there is no environment '{name}'; did you mean '{near}'"):
            catalogue.environment(name)
    with pytest.raises(
        UsageError, match="there is no model 'xyzzy'; 'gym-runtime ls models' lists what there is"
    ):
        catalogue.load("models", "xyzzy")


def test_a_module_without_the_class_that_it_is_for_is_refused(workdir: Path) -> None:
    (workdir / "shout.py").write_text("Adapter = 5\nclass Agent:\n    async def run(self, rollout): ...\n")
    assert catalogue.load_class("agents", "shout").__name__ == "Agent"
    with pytest.raises(UsageError, match=r"^shout\.py has no class 'Adapter'$"):
        catalogue.load_class("models", "shout")
    (workdir / "once.py").write_text("from gym_runtime.adapters import Agent\nclass Once(Agent): ...\n")
    with pytest.raises(UsageError, match=r"^once\.py imports 'Agent' and defines no class of this name; "):
        catalogue.load_class("agents", "once")
    (workdir / "idle.py").write_text("class Agent: ...\n")
    with pytest.raises(UsageError, match=r"^the class 'Agent' of idle\.py has no method: async def run"):
        catalogue.load_class("agents", "idle")
    # Else each rollout fails, and names a line of the runtime.
    for name, run in (("more", "run(self, rollout, more): ..."), ("yields", "run(self, rollout): yield")):
        (workdir / f"{name}.py").write_text(f"class Agent:\n    async def {run}\n")
        with pytest.raises(
            UsageError, match=rf"^the class 'Agent' of {name}\.py has no method: async def run"
        ):
            catalogue.load_class("agents", name)
    with pytest.raises(UsageError, match=r"^there is no file '\./never\.py'$"):
        catalogue.load_class("agents", "./never.py")


def test_a_package_that_is_missing_or_of_another_version_is_named(workdir: Path) -> None:
    (workdir / "needs.py").write_text("import no_such_package.part\n")
    with pytest.raises(UsageError, match="'no_such_package', which is not installed: pip install no_such"):
        catalogue.environment("needs")
    (workdir / "newer.py").write_text("import msgspec.no_such_part\n")
    with pytest.raises(UsageError, match=r"'msgspec\.no_such_part', which the version of 'msgspec' that"):
        catalogue.environment("newer")
    (workdir / "older.py").write_text("import gym_runtime.no_such_part\n")
    with pytest.raises(UsageError, match=r"'gym_runtime\.no_such_part', which the version of 'gym_runtime'"):
        catalogue.environment("older")
    (workdir / "ending.py").write_text("import sys\nsys.exit('no key')\n")
    with pytest.raises(UsageError, match=r"cannot be imported: SystemExit: no key \(.*ending\.py:2\)"):
        catalogue.environment("ending")


def test_a_module_without_an_environment_is_refused(workdir: Path) -> None:
    (workdir / "empty.py").write_text("")
    with pytest.raises(UsageError, match=r"empty.py has no global 'environment = Environment\(...\)'"):
        catalogue.environment("empty")


@table(
    ("ref", "name"),
    [
        ("mcqa", "mcqa"),
        ("mcqa_simple_agent", "mcqa"),
        ("reasoning_gym_simple_agent", "reasoning_gym"),
        ("example_multi_step_simple_agent", "example_multi_step"),
        ("example_session_state_mgmt_simple_agent", "example_session_state_mgmt"),
        ("mcqa_non_executing_simple_agent", "mcqa"),
        ("calendar_simple_agent", "calendar"),
        ("calendar_v2_simple_agent", "calendar"),
        ("gsm8k_aviary_agent", "gsm8k_aviary"),
        ("hotpotqa_aviary_agent", "hotpotqa_aviary"),
        ("bixbench_aviary_agent", "bixbench_aviary"),
        ("bbh_aviary_agent", "bbh_aviary"),
        ("math_with_code_simple_agent", "math_with_code"),
        ("math_with_judge_dapo17k_agent", "math_with_judge"),
        ("dapo17k_math_with_judge_simple_agent", "math_with_judge"),
        ("math_with_judge_openclaw_agent", "math_with_judge"),
        ("reasoning_gym_claude_code_agent_model_server", "reasoning_gym"),
        ("structured_outputs_v3_simple_agent", "structured_outputs"),
        ("swerl_llm_judge_simple_agent", "swerl_llm_judge"),
        ("terminus_judge_simple_agent", "terminus_judge"),
        ("terminus_judge_string_only_simple_agent", "terminus_judge"),
        ("equivalence_llm_judge_simple_agent", "equivalence_llm_judge"),
        ("lc_judge_simple_agent", "lc_judge"),
        ("nl2bash_equivalency_simple_agent", "nl2bash_equivalency"),
        ("genrm_simple_agent", "genrm_compare"),
        ("genrm_simple_agent_reasoning_off", "genrm_compare"),
        ("jailbreak_detection_simple_agent", "jailbreak_detection"),
        ("jailbreak_engagement_with_disclaimer", "jailbreak_detection"),
        ("jailbreak_refusal_with_explanation", "jailbreak_detection"),
        ("jailbreak_hard_refusal_no_redirection", "jailbreak_detection"),
        ("jailbreak_hard_refusal_with_helplines", "jailbreak_detection"),
        ("over_refusal_detection_simple_agent", "over_refusal_detection"),
        ("nvarc_inductive_simple_agent", "nvarc"),
        ("nvarc_transductive_simple_agent", "nvarc"),
        ("lc_equivalence_rule_simple_agent", "equivalence_rule"),
        ("citation_format_simple_agent", "format_verification"),
        ("freeform_formatting_simple_agent", "format_verification"),
        ("xstest_eval_agent", "over_refusal_detection"),  # although another environment is called xstest
        ("xstest_simple_agent", "xstest"),
        ("multichallenge_simple_agent", "multichallenge"),
        ("text_to_sql_simple_agent", "text_to_sql"),
        ("math_with_judge_cline_agent", "math_with_judge"),
        ("reasoning_gym_parallel_thinking_agent", "reasoning_gym"),
        *(
            (f"{name}_math_formal_lean_simple_agent", name)
            for name in ("minif2f", "mobench", "proofnet", "putnam_bench")
        ),
        ("math_500_math_with_judge_simple_agent", "math500"),
        ("mmlu_mcqa_simple_agent", "mmlu"),
        ("mmlu_redux_mcqa_simple_agent", "mmlu_redux"),
        ("mmlu_pro_mcqa_simple_agent", "mmlu_pro"),
        ("human_eval_evalplus_simple_agent", "evalplus"),
        ("mbpp_evalplus_simple_agent", "evalplus"),
        ("langgraph_orchestrator_reasoning_gym_agent", "reasoning_gym"),
        ("langgraph_rewoo_reasoning_gym_agent", "reasoning_gym"),
        ("dapo17k_hermes_agent", "math_with_judge"),
        ("finance_agent", "finance_sec_search"),
        (f"{SINGLE_STEP}_agent", SINGLE_STEP),
        (f"{SINGLE_STEP}_tool_simulation_agent", SINGLE_STEP),
        (f"{SINGLE_STEP}_droid_pivot_agent", SINGLE_STEP),
        (f"droid_pivot_{SINGLE_STEP}_agent", SINGLE_STEP),
        (f"swe_pivot_{SINGLE_STEP}_agent", SINGLE_STEP),
        (f"search_pivot_{SINGLE_STEP}_agent", SINGLE_STEP),
        (f"toolcall_schema_{SINGLE_STEP}_agent", SINGLE_STEP),
        (f"parallel_tool_calls_{SINGLE_STEP}_agent", SINGLE_STEP),
    ],
)
def test_an_agent_ref_of_nemo_gym_names_an_environment(ref: str, name: str) -> None:
    assert catalogue.resolve_agent_ref(ref) == name


@table(
    "ref",
    [
        "",
        "agent",
        "simple_agent",
        "mcqa-simple-agent",
        "mcqas_simple_agent",
        "math_simple_agent",
        "math_with_agent",
        "math_with_grader_simple_agent",
        "swe_atlas_agent",
        "single_step_agent",
        "circle_simple_agent",
        "bigcodebenchs_simple_agent",
        "tale_simple_agent",
        "verilog_code_gen_agent",
        "xstest2_agent",
    ],
)
def test_an_agent_ref_of_another_environment_names_none(ref: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"no environment has agent_ref '{ref}'")):
        catalogue.resolve_agent_ref(ref)


def test_an_agent_ref_that_nobody_has_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"agent_ref 'mqca'; did you mean 'mcqa'\? Rows can"):
        catalogue.resolve_agent_ref("mqca")


def needing(extra: str) -> LoadedEnvironment:
    mcqa = catalogue.environment("mcqa")
    definition = Environment(resource=mcqa.definition.resource, description="d", extra=extra)
    return LoadedEnvironment(name="own", definition=definition, resource=mcqa.resource, source=mcqa.source)


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_there(name: str) -> object:
        raise requirements.PackageNotFoundError(name)

    requirements.require(needing(""))
    monkeypatch.setattr(requirements, "distribution", not_there)
    with pytest.raises(
        UsageError, match=r'needs reasoning-gym, .*: pip install "gym-runtime\[reasoning-gym\]"'
    ):
        requirements.require(needing("reasoning-gym"))


@pytest.fixture
def no_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(bubblewrap.SETTING, raising=False)
    bubblewrap.check.cache_clear()


@pytest.mark.usefixtures("no_bubblewrap")
def test_an_environment_with_a_sandbox_needs_bubblewrap_or_the_weak_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="needs bubblewrap, which is not installed: install your system's"):
        requirements.require(needing("sandbox"))
    monkeypatch.setenv(bubblewrap.SETTING, "weak")
    requirements.require(needing("sandbox"))
