"""Software engineering on local repositories: what earns a reward, and what a hostile model cannot earn."""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec
import pytest
from gym_resources.swe import local_rows, making
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import UsageError
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from resources.judging import ROWS, call, judge, output, outputs

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)
pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.skipif(bool(_refusal), reason=_refusal)]

REPOSITORY = next(making.repositories(1, 7))
AGENT_ROW = msgspec.json.encode(next(local_rows.agent_rows(1, 7)))
PATCH_ROW = next(local_rows.swerl_rows(1, 7, "eval"))
SCRIPT_ROW = msgspec.json.encode(next(local_rows.swerl_rows(1, 7, "repro-gen")))
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
MODULE = REPOSITORY.module
NAME = MODULE.removesuffix(".py").replace("/", ".")
FUNCTION = REPOSITORY.call.partition("(")[0]


async def worked(*scripts: str, row: bytes = AGENT_ROW) -> Verdict:
    """The verdict on a model that ran these scripts."""
    items: list[Any] = []
    for number, script in enumerate((*scripts, SUBMIT)):
        items += [call("bash", {"command": script}, f"c{number}"), output("", f"c{number}")]
    return await judge("mini_swe_agent", row, *items)


def edits(path: str, before: str, after: str) -> str:
    edit = f"### {path}\n<<<<<<< SEARCH\n{before}=======\n{after}>>>>>>> REPLACE"
    return f"<solution>\n```python\n{edit}\n```\n</solution>"


def written(path: str, text: str) -> str:
    return f"mkdir -p $(dirname {path}); cat >{path} <<'END'\n{text}\nEND"


FIX = written(MODULE, REPOSITORY.fixed[MODULE].rstrip("\n"))
FORGED = {
    "tests that expect nothing": written(f"tests/test_{NAME.partition('.')[0]}.py", "pass"),
    "a runner that passes all": written("conftest.py", "import os; os._exit(0)"),
    "a module that runs first": written("sitecustomize.py", "print('{}')"),
    "a module in place of a standard one": written(
        "json.py", "def dumps(*a, **k): return 'x'\ndef loads(*a): return 1"
    ),
    "answers to all calls": written(
        MODULE,
        "import os, sys\n"
        f"def {FUNCTION}(*arguments):\n"
        "    for place in range(3, 50):\n"
        '        try: os.write(place, b\'{"error": "", "value": 1}\')\n'
        "        except OSError: pass\n"
        "    os._exit(0)",
    ),
    "an object that is equal to all": written(
        MODULE,
        f"class All:\n    def __eq__(self, other): return True\ndef {FUNCTION}(*arguments): return All()",
    ),
    "an endless output": written(MODULE, f"def {FUNCTION}(*arguments):\n    while True: print('x' * 100000)"),
    "a killer of its parent": written(
        MODULE, f"import os\ndef {FUNCTION}(*arguments): os.kill(os.getppid(), 9)"
    ),
    "links out of the repository": "ln -s /etc/passwd pass; ln -s / root; rm README.md; ln -s /tmp README.md",
    "no history": "rm -rf .git",
    "another git": "git config diff.external 'echo forged'; echo 'exit 0' >.git/hooks/pre-commit",
    "processes that stay": "setsid sleep 1000 >/dev/null 2>&1 & (while true; do :; done) & echo",
    "a container that ends": "kill -9 -1",
    "a huge change": "head -c 3000000 /dev/urandom | base64 >big.txt; cp big.txt big2.txt",
    "names that lie": "mkdir -p ' b' 'a -> b'; touch 'x\ny' -- '-rf' 'a -> b/c'; echo 1 >' b/conftest.py'",
}


async def test_a_patch_that_repairs_the_repository_earns_the_reward() -> None:
    verdict = await worked("ls", FIX)
    assert verdict.reward == 1.0
    report = verdict.fields["metadata"]["eval_report"]
    assert report["resolution"] == "RESOLVED_FULL"
    assert set(report["tests"]) == {*REPOSITORY.fail_to_pass, *REPOSITORY.pass_to_pass}
    assert verdict.fields["exit_status"] == "submitted"
    assert verdict.fields["model_patch"].startswith(f"diff --git a/{MODULE}")


async def test_the_patch_counts_however_git_was_used() -> None:
    commit = (
        "git add -A; git -c user.name=m -c user.email=m@m commit -qm fix; git checkout -q -b other; git stash"
    )
    assert (await worked(FIX, commit)).reward == 1.0


@pytest.mark.parametrize("trick", FORGED)
async def test_nothing_but_a_repair_earns_the_reward(trick: str) -> None:
    verdict = await worked(FORGED[trick])
    assert verdict.reward == 0.0
    with_repair = (
        await worked(FIX, FORGED[trick]) if trick in ("tests that expect nothing", "another git") else None
    )
    assert with_repair is None or with_repair.reward == 1.0


async def test_the_perfect_patch_checks_an_installation() -> None:
    row = msgspec.json.encode({**json.loads(AGENT_ROW), "run_golden": True})
    verdict = await judge("mini_swe_agent", row)
    assert (verdict.reward, verdict.fields["exit_status"]) == (1.0, "golden")


async def test_the_model_reads_what_its_commands_say() -> None:
    environment = catalogue.environment("mini_swe_agent")
    resource = environment.resource
    session = await resource.open(AGENT_ROW)
    try:
        first = await resource.reset(session)
        assert "issue" in json.loads(bytes(first[-1]))["content"]
        assert [json.loads(bytes(tool))["name"] for tool in resource.offered_tools(session)] == ["bash"]

        async def step(*items: dict[str, Any] | str) -> list[dict[str, Any]]:
            from gym_runtime.environment.verdict import make_response

            answer = await resource.step(session, make_response(*items))
            return [json.loads(bytes(item)) for item in answer.items]

        (said,) = await step(call("bash", {"command": "echo out; echo err >&2; exit 3"}))
        assert said["output"] == "<returncode>3</returncode>\n<output>\nout\nerr\n</output>"
        (said,) = await step(call("bash", {"command": "yes | head -c 100000"}))
        assert len(said["output"]) < 11_000
        (said,) = await step("```bash\necho block\n```")
        assert said["content"] == "<returncode>0</returncode>\n<output>\nblock\n</output>"
        assert "must be a JSON object" in (await step(call("bash", {"x": 1})))[0]["output"]
        assert "one tool" in (await step(call("python", {"command": "1"})))[0]["output"]
        assert "no command" in (await step("I am done."))[0]["content"]
    finally:
        await resource.close(session)
    assert not await outputs("mini_swe_agent", AGENT_ROW, [])


async def test_a_patch_in_a_reply_earns_the_reward_or_a_part_of_it() -> None:
    row = msgspec.json.encode(PATCH_ROW)
    whole = edits(MODULE, REPOSITORY.files[MODULE], REPOSITORY.fixed[MODULE])
    assert (await judge("swerl_gen", row, f"<think>x</think>{whole}")).reward == 1.0
    assert (await judge("swerl_gen", row, "no patch")).reward == 0.0
    wrong = edits(MODULE, REPOSITORY.files[MODULE], REPOSITORY.files[MODULE] + "# no change\n")
    assert (await judge("swerl_gen", row, wrong)).reward == 0.0
    alike = msgspec.json.encode({**PATCH_ROW, "partial_similarity": True})
    verdict = await judge("swerl_gen", alike, wrong)
    assert 0.0 < verdict.reward < 0.2
    assert verdict.reward == pytest.approx(0.2 * verdict.components["similarity"])


async def test_a_patch_that_repairs_a_part_earns_a_part() -> None:
    check = REPOSITORY.checks[REPOSITORY.fail_to_pass[0]]
    more = json.loads(msgspec.json.encode(PATCH_ROW))
    more["instance"]["checks"]["test_more"] = {**check, "value": "what it never returns"}
    more["instance"]["FAIL_TO_PASS"].append("test_more")
    whole = edits(MODULE, REPOSITORY.files[MODULE], REPOSITORY.fixed[MODULE])
    verdict = await judge("swerl_gen", msgspec.json.encode(more), whole)
    assert (verdict.reward, verdict.fields["verification_result"]["resolution"]) == (0.2, "RESOLVED_PARTIAL")


@pytest.mark.parametrize(
    "script",
    [
        "import sys\nsys.exit(2)",
        "import sys\nsys.exit(0)",
        "import subprocess, sys\nsys.exit(0 if subprocess.run(['git', 'diff', '--quiet']).returncode else 2)",
        "import os, sys\nsys.exit(0 if os.path.exists('.git') else 2)",
        "import os, sys\ntimes = {os.stat(p).st_mtime for p in ('README.md', 'reproduce_bug.py')}\n"
        f"sys.exit(0 if os.stat('{MODULE}').st_mtime not in (0, *times) else 2)",
        "import os, sys\nseen = os.path.exists('/tmp/x')\nopen('/tmp/x', 'w')\nsys.exit(0 if seen else 2)",
        "import os; os.kill(os.getppid(), 9)",
    ],
)
async def test_a_script_that_does_not_look_at_the_issue_reproduces_nothing(script: str) -> None:
    assert (await judge("swerl_gen", SCRIPT_ROW, f"```python\n{script}\n```")).reward == 0.0


async def test_a_script_that_tells_the_issue_earns_the_reward() -> None:
    gold = examples.read(catalogue.environment("swerl_gen"))[1]
    assert json.loads(gold.row)["mode"] == "repro-gen"
    assert (await judge("swerl_gen", gold.row, *gold.turns[0])).reward == 1.0


async def test_a_row_whose_image_cannot_be_had_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    row = (ROWS / "swerl_gen.jsonl").read_bytes().splitlines()[0]
    reply = edits("abacus.py", "    return a + b + 1\n", "    return a + b\n")
    with pytest.raises(UsageError, match="podman, docker or apptainer"):
        await judge("swerl_gen", row, reply)


def test_repositories_are_the_same_for_the_same_seed_and_have_a_bug_that_tests_show() -> None:
    once, again = (list(making.repositories(40, 3)) for _ in range(2))
    assert msgspec.json.encode(once) == msgspec.json.encode(again)
    assert len({repository.report for repository in once}) > 10
    assert all(repository.fail_to_pass and repository.pass_to_pass for repository in once)
