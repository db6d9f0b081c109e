"""``new`` writes environments that keep the contract at once; ``test`` says which rule is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime import UnusableAnswer, make_response
from gym_runtime.cli import main
from gym_runtime.environment import ScriptedAnswers, catalogue, examples

SHAPES = {
    **dict.fromkeys(["verify", "session", "episode", "benchmark"], ""),
    "judge": " --judge PROVIDER/NAME",
    "user": " --role user=PROVIDER/NAME",
}
"""The environments that ``new`` writes, and the models that their runs need besides the policy."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_environment_keeps_the_contract(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"fresh_{shape}"
    assert main.run(["new", name, "--shape", shape]) == 0
    said = capsys.readouterr().out
    assert f"  gym-runtime test {name}\n  gym-runtime run {name}{SHAPES[shape]}\n" in said
    assert len(Path(f"{name}.py").read_text().splitlines()) < 70
    assert len(Path(f"{name}.jsonl").read_text().splitlines()) == 5
    assert main.run(["test", name, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)[0]
    assert (report["environment"], report["passed"], report["skipped"]) == (name, True, "")
    assert len(report["findings"]) >= 9
    assert all(set(finding) == {"rule", "passed", "detail", "warning"} for finding in report["findings"])
    assert not any(finding["warning"] for finding in report["findings"])


@pytest.mark.parametrize("shape", SHAPES)
def test_an_audit_of_a_new_environment_finds_nothing(shape: str) -> None:
    assert main.run(["new", f"sound_{shape}", "--shape", shape]) == 0
    assert main.run(["audit", f"sound_{shape}", "--repeats", "1", "--strict"]) == 0
    assert json.loads(Path(f"sound_{shape}.audit.json").read_text())["findings"] == []


def test_what_new_writes_passes_ruff_with_its_defaults(folder: Path) -> None:
    for shape in (*SHAPES, "agent"):
        assert main.run(["new", f"tidy_{shape}", "--shape", shape]) == 0
    for command in (["check"], ["format", "--check"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.anyio
@pytest.mark.parametrize("said", ["", "It is fine.", "YES and NO"])
async def test_a_new_judges_answer_without_a_label_is_no_reward(said: str) -> None:
    assert main.run(["new", "unlabelled", "--shape", "judge"]) == 0
    environment = catalogue.environment("unlabelled")
    resource, first = environment.resource, examples.read(environment)[0]
    session = await resource.open(first.row, ScriptedAnswers({"judge": [said]}).models(resource.roles))
    with pytest.raises(UnusableAnswer, match="neither YES nor NO"):
        await resource.verify(session, make_response("A bird is an animal that flies."))


def test_a_new_agent_keeps_the_contract_of_agents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "fresh_agent", "--shape", "agent"]) == 0
    assert "  gym-runtime run mcqa --agent fresh_agent\n" in capsys.readouterr().out
    assert not Path("fresh_agent.jsonl").exists()
    assert main.run(["test", "fresh_agent"]) == 0
    assert "✓ fresh_agent: keeps the contract" in capsys.readouterr().out


AGENT = """'An agent.'
from gym_runtime.adapters import Rollout
from gym_runtime.errors import GymError

class Agent:
    'Goes wrong.'
    asked = 0

    async def run(self, rollout: Rollout) -> None:
"""
AGAIN = "for _ in range(1 + self.asked % 2):\n            await rollout.respond()"
WRONG_AGENTS = {
    "return": ("a message ends it", "it never asked the model: await rollout.respond()"),
    "for _ in range(9):\n            await rollout.respond()": (
        "a limit of turns ends it, whatever the model says",
        "the model says nothing: it asked 9 times though max_turns is 3",
    ),
    "try:\n            await rollout.respond()\n        except GymError:\n            pass": (
        "an error of the model passes through it",
        "the rollout did not fail with this error: let it pass",
    ),
    "await rollout.respond()\n        1 / 0": ("a message ends it", "division by zero"),
    f"self.asked += 1\n        {AGAIN}": (
        "one instance serves many rollouts at once",
        "keep what belongs to a rollout in run, not in self",
    ),
}


@pytest.mark.parametrize("body", WRONG_AGENTS)
def test_what_an_agent_does_wrong_is_found(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = f"wrong_{list(WRONG_AGENTS).index(body)}.py"  # a process imports a file once
    Path(module).write_text(f"{AGENT}        {body}\n")
    assert main.run(["test", module, "--json"]) == 1
    written = capsys.readouterr()
    assert written.err.count("Traceback") <= 1
    (report,) = json.loads(written.out)
    rule, said = WRONG_AGENTS[body]
    (detail,) = [one["detail"] for one in report["findings"] if one["rule"] == rule and not one["passed"]]
    assert said in detail


def test_an_agent_that_does_not_end_is_named_while_it_is_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_testing.commands.test.LONG_S", 0.2)
    monkeypatch.setattr("gym_testing.checks.agent_contract.LIMIT_S", 1.0)
    Path("endless.py").write_text(f"{AGENT}        import anyio\n        await anyio.sleep_forever()\n")
    assert main.run(["test", "endless.py"]) == 1
    written = capsys.readouterr()
    assert "endless: 'a message ends it' has been checked for" in written.err
    assert "its rollouts did not end within 1 s" in written.out


def test_new_puts_it_where_it_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "placed", "--directory", "some/where"]) == 0
    assert "gym-runtime test some/where/placed.py" in capsys.readouterr().out
    assert main.run(["test", "some/where/placed.py"]) == 0


@pytest.mark.parametrize("suffix", [".py", ".jsonl"])
def test_new_overwrites_nothing(suffix: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"mine{suffix}").write_text("precious")
    assert main.run(["new", "mine"]) == 2
    assert f"mine{suffix} exists" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [f"mine{suffix}"]
    assert Path(f"mine{suffix}").read_text() == "precious"


def test_new_says_where_it_cannot_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert main.run(["new", "mine", "--directory", "taken/deep"]) == 2
    assert capsys.readouterr().err.startswith("gym-runtime: cannot write to taken/deep: ")


@pytest.mark.parametrize("name", ["json", "random"])
def test_new_hides_no_module_of_pythons_own(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["new", name]) == 2
    assert f"'{name}' is a module of Python's own library; choose another name" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_a_broken_rule_is_shown_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "broken_rule", "--shape", "verify"]) == 0
    module = Path("broken_rule.py")
    module.write_text(module.read_text().replace("float(said == task.expected)", "1.0"))
    capsys.readouterr()
    assert main.run(["test", "broken_rule"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✗ broken_rule: 1 of 11 rules broken"
    where = "5 rows: first at broken_rule.jsonl:1"
    assert f"  ✗ silence scores nothing: {where}: scores 1 instead of 0" in lines
    assert any(line == "  ✓ bad rows are refused" for line in lines)


def test_a_maker_of_replies_that_raises_hides_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "raising"]) == 0
    assert main.run(["new", "maker", "--shape", "verify"]) == 0
    module = Path("maker.py")
    module.write_text(module.read_text().replace("target.row['expected']", "target.row['expectd']"))
    capsys.readouterr()
    assert main.run(["test", "maker", "raising"]) == 1
    said = capsys.readouterr().out
    assert "maker: 1 of 12 rules broken" in said
    assert "replies for the audit can be made: maker:off_by_one made no replies to row 1: KeyError" in said
    assert "✓ raising: keeps the contract" in said


def test_a_reason_that_breaks_several_rules_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "closed_shop"]) == 0
    module = Path("closed_shop.py")
    module.write_text(
        module.read_text().replace("    @tool\n", "    async def open(self): 1 / 0\n\n    @tool\n")
    )
    capsys.readouterr()
    assert main.run(["test", "closed_shop"]) == 1
    (said,) = [
        line for line in capsys.readouterr().out.splitlines() if "first at closed_shop.jsonl:1" in line
    ]
    assert said.startswith("  ✗ the perfect rollout scores full; silence scores nothing; judging twice ")
    assert "ZeroDivisionError: division by zero" in said


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ("await anyio.sleep(0.01)", "waiting: 'the perfect rollout scores full' has been checked for "),
        ("pass", " in verify has not returned for "),
    ],
    ids=["waits", "computes"],
)
def test_a_rule_that_a_verifier_keeps_from_ending_is_named(
    waits: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_testing.commands.test.LONG_S", 0.05)
    # On a busy machine the waits for a processor would be left out, and nothing might be left for minutes.
    monkeypatch.setattr("gym_runtime.environment.blocked_loop._queued_s", lambda native: 0.0)
    assert main.run(["new", "waiting", "--shape", "verify"]) == 0
    source = f"""\
'''Waits until that was said.'''
import sys

import anyio

from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    # Each step of the event loop is named once: what came before must not be of the same one.
    await anyio.lowlevel.checkpoint()
    # What the command has said; the test's capture has it.
    while {said!r} not in sys.stderr.getvalue():
        {waits}
    return Verdict(1.0)


environment = Environment(resource=verify, description="Waits.")
"""
    Path("waiting.py").write_text(source)
    assert main.run(["test", "waiting"]) == 1
    assert said in capsys.readouterr().err


BROKEN = {
    "x = = 3": "SyntaxError: invalid syntax",
    "1 / 0": "ZeroDivisionError: division by zero",
    "import no_such_package": "pip install no_such_package",
    "from gym_runtime import Environment\nenvironment = Environment(resource=5, description='')": (
        "unusable_module.py:2: Environment(resource=5): it must be a function verify(task, reply)"
    ),
    "from gym_runtime import Environment, Session, Task, tool\n"
    "class Bank(Session[Task]):\n"
    "    @tool\n"
    "    def deposit(self, amount): ...\n"
    "environment = Environment(resource=Bank, description='')": (
        "unusable_module.py:3: the tool 'deposit' does not annotate 'amount'; add its type"
    ),
    "x = 1": "has no global 'environment = Environment(...)'",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_module_that_cannot_be_used_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("unusable_module.py").write_text(text)
    assert main.run(["test", "unusable_module"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert BROKEN[text] in error


def test_an_agent_or_rows_in_the_place_of_an_environment_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["new", "doubter", "--shape", "agent"]) == 0
    capsys.readouterr()
    for command in (["run", "--model", "scripted/message"], ["play"], ["bench"]):
        assert main.run([command[0], "doubter.py", *command[1:]]) == 2
        assert capsys.readouterr().err == (
            "gym-runtime: doubter.py is an agent: gym-runtime run ENVIRONMENT --agent doubter.py\n"
        )
    assert main.run(["run", "rows.jsonl", "--model", "scripted/message"]) == 2
    assert capsys.readouterr().err == (
        "gym-runtime: 'rows.jsonl' is the name of rows: gym-runtime run ENVIRONMENT --input rows.jsonl\n"
    )


def test_a_task_without_its_type_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("untyped_module.py").write_text(
        "from gym_runtime import Environment\n"
        "def verify(task, reply): ...\n"
        "environment = Environment(resource=verify, description='')\n"
    )
    assert main.run(["test", "untyped_module"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "untyped_module.py:2: verify's first parameter must be annotated with a subclass of Task" in error


RAISING = '''"""A bank whose till is broken."""
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

class Bank(Session[Task]):
    @tool
    def deposit(self, amount: int) -> int:
        "Put money in."
        password = "hunter" + str(2)
        raise ValueError("boom")

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(0.0)

environment = Environment(resource=Bank, description="A bank.")
'''
DEPOSIT = {"type": "function_call", "call_id": "c", "name": "deposit", "arguments": '{"amount": 1}'}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", [("test", "--json"), ("bench", "--json", "--seconds", "0.01")])
def test_what_a_tool_raises_is_logged_apart_and_without_its_variables(command: tuple[str, ...]) -> None:
    Path("bank.py").write_text(RAISING)
    row = json.dumps({"responses_create_params": {"input": "go"}, "gold": [DEPOSIT, "done"]})
    Path("bank.jsonl").write_text(f"{row}\n" * 5)
    script = Path(sys.executable).with_name("gym-runtime")
    done = subprocess.run([script, command[0], "bank", *command[1:]], capture_output=True, text=True)
    (report,) = json.loads(done.stdout)
    assert report["environment"] == "bank"
    assert "ValueError: boom" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    if command[0] == "test":
        assert done.stderr.count("Traceback") == 1
        details = [finding["detail"] for finding in report["findings"]]
        assert any(
            "bank.jsonl:1: scores 0 instead of 1; deposit raised ValueError: boom" in d for d in details
        )


NEIGHBOURLY = """
from gym_runtime import Environment, Reply, Task, Verdict
from worth import WORTH


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(WORTH)


environment = Environment(resource=verify, agent="single_turn", description="", isolated=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_users_modules_are_found_by_each_other_and_by_nobody_else(folder: Path) -> None:
    Path("ours.py").write_text(NEIGHBOURLY)
    Path("ours.jsonl").write_text('{"responses_create_params": {"input": "go"}}\n')
    Path("worth.py").write_text("WORTH = 0.5\n")
    Path("html.py").write_text("raise RuntimeError('not the library that has this name')\n")
    script = Path(sys.executable).with_name("gym-runtime")
    command = [script, "run", "ours", "--model", "scripted/message", "--output", "rows.jsonl"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert [json.loads(row)["reward"] for row in Path("rows.jsonl").read_text().splitlines()] == [0.5]


@pytest.mark.slow
def test_a_thread_that_does_not_end_does_not_hold_the_command(tmp_path: Path) -> None:
    """Python would wait for it for ever. What is done at the end of the process is done all the same."""
    assert main.run(["new", "polls"]) == 0
    path = Path("polls.py")
    path.write_text(
        path.read_text()
        + "\nimport threading, tempfile\n"
        + f"made = tempfile.TemporaryDirectory(dir={str(tmp_path)!r}, prefix='made')\n"
        + "threading.Thread(target=threading.Event().wait, name='polls').start()\n"
    )
    script = Path(sys.executable).with_name("gym-runtime")
    done = subprocess.run([script, "test", "polls"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "✓ polls: keeps the contract")
    assert done.stderr == (
        "gym-runtime: ended without waiting for threads (polls): start them with daemon=True, or end them\n"
    )
    assert not list(tmp_path.glob("made*"))
    ends = path.read_text().replace("threading.Event().wait", "lambda: threading.Event().wait(0.1)")
    path.write_text(ends + "environment = None\n")
    done = subprocess.run([script, "test", "polls"], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "ended without" not in done.stderr
