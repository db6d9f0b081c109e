"""``audit --judge``: what a judge decides is measured, and how often it agrees with itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_runtime.cli import main

MODULE = '''"""Sums, judged by a model."""

from gym_runtime import Environment, Model, Reply, Task, UnusableAnswer, Verdict


class SumTask(Task):
    expected_answer: str


async def verify(task: SumTask, reply: Reply, judge: Model) -> Verdict:
    if not reply.text.strip():
        return Verdict(0.0)
    answer = await judge.ask(f"{task.expected_answer} = {reply.text}")
    if answer.text not in ("YES", "NO"):
        raise UnusableAnswer(f"neither YES nor NO: {answer.text}")
    return Verdict(float(answer.text == "YES"))


environment = Environment(resource=verify, roles=("judge",), description="Sums, judged by a model.")
'''
JUDGE = '''"""A judge that says YES to what begins with the answer; every fifth time it says NO."""

import json
from collections import Counter

from gym_runtime import make_response
from gym_runtime.adapters import ModelAnswer
from msgspec import Raw


class Adapter:
    def __init__(self, settings):
        self.wavers, self.mute = settings.name == "wavers", settings.name == "mute"
        self.asked = Counter()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def respond(self, call, context):
        content = json.loads(bytes(call.input[-1]))["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        self.asked[text] += 1
        expected, _, said = text.partition(" = ")
        right = said.strip().startswith(expected) and not (self.wavers and self.asked[text] % 5 == 0)
        said = "PERHAPS" if self.mute else "YES" if right else "NO"
        return ModelAnswer(response=Raw(make_response(said)))
'''


@pytest.fixture(autouse=True)
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("judged.py").write_text(MODULE)
    Path("flaky.py").write_text(JUDGE)
    rows = [
        {
            "responses_create_params": {"input": "How many?"},
            "expected_answer": answer,
            "gold": {"turns": answer, "roles": {"judge": ["YES"]}},
        }
        for answer in ("17", "23")
    ]
    Path("judged.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


@pytest.mark.slow
def test_a_judge_that_agrees_with_itself_four_times_of_five(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["audit", "./judged.py", "--judge", "flaky/wavers", "--seconds", "30"]) == 0
    said = capsys.readouterr().out
    made = json.loads(Path("judged.audit.json").read_text())
    found = made["agreement"]
    # The golds waver; what is wrong is always refused.
    wrong = found["replies"] - 2
    assert (found["models"], found["unanimous"]) == ({"judge": "flaky/wavers"}, wrong)
    assert found["verdicts"] == 20 * found["replies"]
    assert found["verdicts"] - found["agreed"] == 2 * 4
    assert found["low"] < found["agreed"] / found["verdicts"] < found["high"]
    assert f"judge flaky/wavers agrees with itself in {found['agreed'] / found['verdicts']:.0%} (" in said
    assert f"in all of them on {wrong} of {wrong + 2} replies" in said
    assert made["rates"]["unstable"]["found"] == 2
    assert "judge" not in made["unobserved"]
    assert "process" not in made["stability"]["ways"]


@pytest.mark.slow
def test_a_judge_that_gives_no_verdict_is_not_unstable() -> None:
    how = ["--judge", "flaky/mute", "--seconds", "20", "--repeats", "2"]
    assert main.run(["audit", "./judged.py", *how]) == 0
    made = json.loads(Path("judged.audit.json").read_text())
    assert (made["rates"]["unstable"]["found"], made["findings"]) == (0, [])
    assert {"judge", "false_positive"} <= set(made["unobserved"])


@pytest.mark.slow
def test_what_a_judge_decides_is_measured_with_it_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main.run(["audit", "./judged.py", "--judge", "flaky/steady", "--seconds", "20", "--repeats", "2"])
        == 0
    )
    made = json.loads(Path("judged.audit.json").read_text())
    assert (made["rates"]["false_positive"]["found"], made["judged"]) == (2, 0)
    assert made["agreement"]["agreed"] == made["agreement"]["verdicts"] > 0
    assert main.run(["audit", "./judged.py", "--seconds", "20", "--repeats", "2"]) == 0
    made = json.loads(Path("judged.audit.json").read_text())
    assert made["agreement"] is None
    assert {"judge", "false_positive"} <= set(made["unobserved"])
    assert made["judged"] > 0
    capsys.readouterr()
    assert main.run(["audit", "./judged.py", "--judge", "policy"]) == 2
    assert "role 'judge' is the model that tries the rows: name it" in capsys.readouterr().err
