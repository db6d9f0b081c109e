"""Tasks of inspect_evals, unchanged: the score of a sample is that of `inspect eval` with the same answers.

The data are in the package, or generated (`own/generated_evals.py`). Run it with ``--soak`` where
inspect_evals is installed. It starts a process for each task, and takes about four minutes on two cores.
"""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, cast

import anyio
import msgspec
import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import Engine, answer, small_system
from resources.guests.guest_runs import OWN, made, own_rows

pytest.importorskip("inspect_evals", reason="needs inspect_evals 0.26: pip install inspect_evals")
pytestmark = [
    *(pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(3600)),
    pytest.mark.filterwarnings("ignore"),  # of the tasks' own imports
]

FILE = OWN / "generated_evals.py"
AT_ONCE = 4
CHOICES = [
    "arc.arc_easy",
    "arc.arc_challenge",
    "commonsense_qa.commonsense_qa",
    "hellaswag.hellaswag",
    "medqa.medqa",
    "mmlu.mmlu_0_shot",
    "mmlu.mmlu_5_shot",
    "mmlu_pro.mmlu_pro",
    "musr.musr",
    "race_h.race_h",
    "truthfulqa.truthfulqa",
    "gpqa.gpqa_diamond",
    "wmdp.wmdp_bio",
    "wmdp.wmdp_chem",
    "wmdp.wmdp_cyber",
    "sec_qa.sec_qa_v1",
    "sec_qa.sec_qa_v1_5_shot",
    "sec_qa.sec_qa_v2",
    "sec_qa.sec_qa_v2_5_shot",
    "cybermetric.cybermetric_80",
    "cybermetric.cybermetric_500",
    "cybermetric.cybermetric_2000",
    "cybermetric.cybermetric_10000",
    "sevenllm.sevenllm_mcq_zh",
    "sevenllm.sevenllm_mcq_en",
    "infinite_bench.infinite_bench_code_debug",
    "infinite_bench.infinite_bench_longbook_choice_eng",
    "agieval.agie_aqua_rat",
    "agieval.agie_logiqa_en",
    "agieval.agie_lsat_ar",
    "agieval.agie_lsat_lr",
    "agieval.agie_lsat_rc",
    "agieval.agie_sat_en",
    "agieval.agie_sat_en_without_passage",
    "agieval.agie_sat_math",
    "lab_bench.lab_bench_litqa",
    "lab_bench.lab_bench_suppqa",
    "lab_bench.lab_bench_dbqa",
    "lab_bench.lab_bench_protocolqa",
    "lab_bench.lab_bench_seqqa",
    "lab_bench.lab_bench_cloning_scenarios",
]
NUMBERS = ["aime2024.aime2024", "aime2025.aime2025", "aime2026.aime2026", "mgsm.mgsm", "agieval.agie_math"]
PLAIN = [
    "squad.squad",
    "infinite_bench.infinite_bench_kv_retrieval",
    "infinite_bench.infinite_bench_number_string",
    "infinite_bench.infinite_bench_passkey",
    "infinite_bench.infinite_bench_math_calc",
    "infinite_bench.infinite_bench_math_find",
    "infinite_bench.infinite_bench_code_run",
    "infinite_bench.infinite_bench_longdialogue_qa_eng",
]
PACKAGED = [f"agent_threat_bench_{one}" for one in ("memory_poison", "autonomy_hijack", "data_exfil")]
SCORES = {"squad.squad": "exact"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "mgsm.mgsm": {"languages": ["en"]},
    **{name: {"fewshot": 0} for name in ("gsm8k.gsm8k", "drop.drop")},
}
CASES: list[tuple[str, str]] = [
    *((name, "ANSWER: B") for name in CHOICES),
    *((name, "ANSWER: 4") for name in [*NUMBERS, "gsm8k.gsm8k", "drop.drop"]),
    *((name, "4") for name in PLAIN),
    *((name, "ANSWER: A") for name in ("piqa.piqa", "winogrande.winogrande")),
    *((name, "Yes") for name in ("boolq.boolq", "paws.paws")),
    *((name, "The answer is: 4") for name in ("bbeh.bbeh", "bbeh.bbeh_mini")),
    ("lingoly.lingoly_too", '{"a": "4"}'),
    *((f"inspect_evals/{name}", "4") for name in (*PACKAGED, "tau2_airline")),
]
REFUSED = ("agieval.agie_math", "inspect_evals/tau2_airline")
"""Their solver or scorer asks the policy's model in a second conversation."""
DIRECT = """
import json, sys
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai._eval.loader import load_tasks

def model(text):
    def outputs():
        while True:
            one = ModelOutput.from_content("mockllm", text)
            one.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            yield one
    return get_model("mockllm/model", custom_outputs=outputs(), memoize=False)

found = []
for task, arguments, text in json.loads(sys.argv[1]):
    (log,) = eval(load_tasks([task], arguments), model=model(text), limit=2, epochs=1, display="none",
                  model_roles={"grader": model("GRADE: C")}, log_dir=sys.argv[2], log_level="error")
    samples = sorted(log.samples or [], key=lambda one: str(one.id))
    found.append([{key: one.value for key, one in (each.scores or {}).items()} for each in samples])
print("SCORES", json.dumps(found))
"""


def named(name: str) -> tuple[str, dict[str, Any]]:
    """A case's task and its arguments, as inspect takes them."""
    if "/" in name:
        return name, {}
    return f"{FILE}@generated", {"name": name, **ARGUMENTS.get(name, {})}


def address(name: str) -> str:
    task, arguments = named(name)
    if "/" in name:
        return (
            f"inspect:{task}?score=agent_threat_bench_scorer.security"
            if "threat" in name
            else f"inspect:{task}"
        )
    settings = {**arguments, **({"score": SCORES[name]} if name in SCORES else {})}
    said = [f"{key}={msgspec.json.encode(value).decode()}" for key, value in settings.items()]
    return f"inspect:{task}?{'&'.join(said)}"


def theirs(folder: str) -> list[list[dict[str, Any]]]:
    cases = msgspec.json.encode([(*named(name), text) for name, text in CASES]).decode()
    done = subprocess.run(
        [sys.executable, "-c", DIRECT, cases, folder], capture_output=True, text=True, check=False
    )
    assert "SCORES" in done.stdout, done.stderr
    return msgspec.json.decode(done.stdout.partition("SCORES ")[2].replace("NaN", "null"))


def as_number(value: Any) -> float:
    """A score as inspect's metrics count it."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value)["security"]
    letters: dict[Any, float] = {"C": 1.0, "I": 0.0, None: math.nan}
    return letters[value] if value in letters else float(value)


async def test_scores_of_inspect_evals(tmp_path_factory: pytest.TempPathFactory) -> None:
    expected = await anyio.to_thread.run_sync(theirs, str(tmp_path_factory.mktemp("logs")))
    records: dict[str, RolloutRecord] = {}
    places = anyio.CapacityLimiter(AT_ONCE)
    pools = {text: f"model-{number}" for number, text in enumerate(dict.fromkeys(text for _, text in CASES))}
    # Before the system is up: to load a task takes seconds, in which nothing would answer.
    found = {name: (catalogue.environment(address(name)), own_rows(address(name), 2)) for name, _ in CASES}
    async with small_system() as system:
        for text, pool in pools.items():
            await system.add_model(Engine(answer(text)), name=pool, pool=pool)
        await system.add_agent({"step_loop": StepLoop()})

        async def play(place: int, name: str, text: str) -> None:
            async with places:
                where = address(name)
                await system.add_resource(found[name][0], name=f"resource-{place}")
                rows = sorted(found[name][1], key=lambda row: str(row["inspect"]["id"]))
                # Half of them the sample that is answered rightly, half of them the other one.
                row = rows[place % 2]
                (records[name],) = await made(system, where, [row], model_pool=pools[text], max_attempts=1)
                print(f"{len(records)} of {len(CASES)}: {name}", flush=True)

        async with anyio.create_task_group() as group:
            for place, (name, text) in enumerate(CASES):
                group.start_soon(play, place, name, text)
    differ: list[str] = []
    rewards: list[float] = []
    for place, (name, _) in enumerate(CASES):
        scores = expected[place][place % 2]
        value = as_number(scores[SCORES.get(name) or next(iter(scores))])
        reward = records[name].reward
        if name in REFUSED:
            assert "only solvers that go on in one conversation" in records[name].ending, name
            assert reward is None
        elif reward != value:
            differ.append(f"{name}: {value} there, {reward} here ({records[name].ending})")
        else:
            rewards.append(value)
    print(f"{len(rewards)} of {len(CASES)} tasks are scored the same, {sum(rewards):g} of them as right")
    assert not differ, "\n".join(differ)
    assert len(rewards) >= 60
