"""NeMo Gym's YAML configurations: put together as there, translated, and nothing lost in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gym_faces.commands.import_config import import_config
from gym_faces.nemo_gym_configs import yaml_files
from gym_faces.nemo_gym_configs.translated import Imported, translate
from gym_faces.nemo_gym_configs.yaml_files import References, read
from gym_runtime.cli.config import load_config
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError

MODEL = """
policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: ${policy_base_url}
      api_key: ${policy_api_key}
      model: ${policy_model_name}
      return_token_id_information: true
      sampling_overrides: {temperature: 1.0}
"""
SERVER = """
config_paths: [responses_api_models/vllm_model/configs/vllm_model.yaml]
policy_api_key: sk-secret
policy_base_url: http://127.0.0.1:8000/v1
judge_model:
  responses_api_models:
    openai_model:
      openai_base_url: https://api.example.com/v1
      openai_api_key: ${oc.env:JUDGE_KEY}
      openai_model: ${oc.env:NO_SUCH_VARIABLE,gpt-5}
      extra_body: {reasoning: {effort: low}}
strict_equivalence:
  resources_servers:
    equivalence_llm_judge:
      entrypoint: app.py
      domain: knowledge
      judge_model_server: {type: responses_api_models, name: judge_model}
      judge_responses_create_params: {input: [], temperature: 0.2}
      check_twice_swap: true
      judge_prompt_template_fpath: prompts/x.txt
strict_equivalence_simple_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {type: resources_servers, name: strict_equivalence}
      model_server: {type: responses_api_models, name: policy_model}
      max_steps: 6
      sandbox: {provider: docker}
      datasets:
      - {name: train, type: train, jsonl_fpath: data/rows.jsonl, num_repeats: 4}
      - {name: lost, type: validation, jsonl_fpath: data/lost.jsonl, source: {repo_id: nvidia/lost}}
      - {name: example, type: example, jsonl_fpath: x.jsonl}
num_samples_in_parallel: 16
uv_cache_dir: /tmp
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    models = tmp_path / "gym/responses_api_models/vllm_model/configs/vllm_model.yaml"
    server = tmp_path / "gym/resources_servers/equivalence/configs/strict.yaml"
    for path, text in ((models, MODEL), (server, SERVER), (tmp_path / "gym/data/rows.jsonl", "")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return server


def imported(*texts: str, tmp_path: Path, **overrides: object) -> Imported:
    paths = [tmp_path / f"{number}.yaml" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return translate(read(paths, overrides), paths, tmp_path)


def test_a_configuration_becomes_files_that_are_read_here_and_a_command(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("policy_model_name=Qwen/Qwen3-4B",)
    assert import_config(server, settings=given, output=Path("out")) == 0
    printed = capsys.readouterr()
    models = load_config(Path("out/models.toml")).models
    assert {role: (one.provider, one.name, one.urls) for role, one in models.items()} == {
        "policy": ("vllm", "Qwen/Qwen3-4B", ("http://127.0.0.1:8000/v1",)),
        "judge": ("openai", "gpt-5", ("https://api.example.com/v1",)),
    }
    assert models["policy"].options == {"sampling": {"temperature": 1.0}}
    assert models["judge"].extra_body == {"reasoning": {"effort": "low"}}
    assert models["judge"].api_key_variable == "JUDGE_KEY"
    loaded = catalogue.environment("out/strict_equivalence.toml")
    assert loaded.settings == {"check_twice_swap": True}
    assert catalogue.resolve_agent_ref("strict_equivalence_simple_agent") == "strict_equivalence"
    assert [line for line in printed.out.splitlines() if line.startswith("gym-runtime")] == [
        f"gym-runtime run out/strict_equivalence.toml --input {rows} --role-sampling judge.temperature=0.2 "
        "--max-turns 6 --config out/models.toml --return-token-ids --concurrency 16" + repeats
        for rows, repeats in (
            (server.resolve().parents[3] / "data/rows.jsonl", " --repeats 4"),
            ("data/lost.jsonl", ""),
        )
    ]
    said = " ".join(printed.err.split())
    for where in (
        "judge_prompt_template_fpath:",
        "simple_agent.sandbox:",
        "uv_cache_dir:",
        "api_key: not copied",
    ):
        assert where in said
    assert "datasets.lost: data/lost.jsonl is not there; get it from nvidia/lost on the hub" in said
    assert "sk-secret" not in printed.out + printed.err + "".join(
        path.read_text() for path in Path("out").iterdir()
    )
    with pytest.raises(UsageError, match="--overwrite"):
        import_config(server, settings=given, output=Path("out"))
    plain = server.with_name("plain.yaml")
    plain.write_text(server.read_text().replace("check_twice_swap: true", ""))
    Path("out/other.toml").write_text("a = 1\n")
    assert import_config(plain, settings=given, output=Path("out"), overwrite=True) == 0
    served = "out/strict_equivalence.toml"
    stale = [line for line in capsys.readouterr().err.splitlines() if "earlier import" in line]
    assert stale == [f"{served} is of an earlier import, and not of this one: remove it if nothing uses it"]


def test_a_misspelled_setting_is_told(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = "responses_api_models.vllm_model"
    known = ("policy_model_name=Q", "limit=5", f"policy_model.{model}.max_concurrent_requests=3")
    wrong = {
        "policy_modl_name": "; did you mean 'policy_model_name'?",
        f"polcy_model.{model}.base_url": f"; did you mean 'policy_model.{model}.base_url'?",
        "policy_model.responses_api_model.vllm_model.base_url": "",
    }
    import_config(server, settings=(*known, *(f"{name}=x" for name in wrong)), output=Path("out"))
    said = capsys.readouterr().err.splitlines()
    told = [line.strip() for line in said if "--set" in line and "no file has" in line]
    expected = [
        f"--set {name}: no file has such a name, or refers to it{hint}" for name, hint in wrong.items()
    ]
    assert sorted(told) == sorted(expected)
    assert not [line for line in said if line.strip().startswith("policy_modl_name")]


def test_what_a_server_or_a_model_lacks_is_said(tmp_path: Path) -> None:
    agent = (
        "{a: {responses_api_agents: {%s: {resources_server: {name: s}}}}, s: {resources_servers: {%s: %s}}}"
    )
    one = imported(agent % ("simple_agent", "mcqa", "{threshold_of_ours: 1}"), tmp_path=tmp_path)
    assert one.commands == [["gym-runtime", "run", "mcqa"]]
    assert [remark.what for remark in one.remarks] == ["mcqa has no such setting"]
    other = imported(agent % ("codex_agent", "mcqa", "{}"), tmp_path=tmp_path)
    assert "another agent here: --agent" in other.remarks[0].what
    unknown = imported(agent % ("simple_agent", "no_such_server", "{}"), tmp_path=tmp_path)
    assert not unknown.commands
    assert unknown.remarks[0].where == "a.responses_api_agents.simple_agent"
    nameless = imported(MODEL, tmp_path=tmp_path)
    assert "${policy_model_name}" in nameless.remarks[0].what
    assert not nameless.files


def test_a_judge_that_is_the_policy_is_asked_for_by_name(tmp_path: Path) -> None:
    text = (
        SERVER.split("config_paths")[1].partition("\n")[2].replace("name: judge_model", "name: policy_model")
    )
    one = imported(MODEL, text, tmp_path=tmp_path, policy_model_name="m")
    assert one.lines[0].startswith("gym-runtime prepare equivalence_llm_judge --split train")
    assert "--role judge=policy" in one.lines[1]
    assert 'names = ["judge"]' not in one.files[tmp_path / "models.toml"]


def test_a_server_cannot_choose_the_file_that_is_written(tmp_path: Path) -> None:
    text = """
a: {responses_api_agents: {simple_agent: {resources_server: {name: ../../up}}}}
../../up: {resources_servers: {equivalence_llm_judge: {check_twice_swap: true}}}
"""
    assert [*imported(text, tmp_path=tmp_path).files] == [tmp_path / "_up.toml"]


def test_directives_and_references_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        """
base: {one: {x: 1, y: {z: 2}}}
moved: {_inherit_from: base.one, y: {w: 3}}
copied: {_copy: other, _delete_key: "b"}
other: {a: "${moved.x}", b: 1, c: "at ${moved.y.z} and ${nothing}", d: "${oc.env:HOME_OF_MINE,/x}"}
"""
    )
    document = read([path], {"moved.x": 5})
    assert document["moved"] == {"x": 5, "y": {"z": 2, "w": 3}}
    assert document["base"] == {}
    assert References(document, {"HOME_OF_MINE": "/h"}).followed(document["copied"]) == {
        "a": 5,
        "c": "at 2 and ${nothing}",
        "d": "/h",
    }


def test_a_secret_of_the_environment_is_no_part_of_an_address() -> None:
    address = "https://x.example/${oc.env:MY_API_KEY}"
    assert References({}, {"MY_API_KEY": "sk-1"}).followed(address) == address
    assert References({}, {"MY_HOST": "h"}).followed("https://${oc.env:MY_HOST}") == "https://h"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!python/object/apply:os.system ['true']", "not YAML"),
        ("[1, 2]", "holds no names"),
        ("a: [", "not YAML"),
        ("config_paths: [nowhere.yaml]", "includes nowhere.yaml"),
        ("a: ${b}\nb: ${a}\nc: {responses_api_agents: {s: {x: '${a}'}}}", "is a reference a circle?"),
        ("a: {_inherit_from: a}", "is a reference a circle?"),
        ("a: {_copy: b}", "names b, which no file has"),
        ("a: 1", "no agent"),
        ("[" * 5000, "not"),
        (
            "a0: &a0 [1,1]\n"
            + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "its aliases stand for more",
        ),
        ("a: &a [*a]", "its aliases stand for more"),
    ],
)
def test_a_bad_file_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        imported(text, tmp_path=tmp_path)
    assert "\n" not in refused.value.message


def test_a_file_that_is_too_large_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"a: 1\n" * (yaml_files.MAX_BYTES // 5 + 1))
    with pytest.raises(UsageError, match="larger than"):
        read([path], {})
