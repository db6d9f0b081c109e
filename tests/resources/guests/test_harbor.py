"""Tasks in Harbor's format, run in boxes of bubblewrap."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Failed, RolloutRecord, Truncated
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from gym_testing.small_system import Engine, Turn, answer, function_call
from resources.guests.guest_runs import guest, made, own_rows, result, said
from resources.guests.harbor_folders import SOLUTION, STEPS, TESTS, TOML, task
from resources.guests.mcp_servers import COUNTER
from resources.judging import call

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
NAME = "harbor:tasks?image=none"
SERVER = '[[environment.mcp_servers]]\nname = "db"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of tasks that `NAME` means."""
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tasks"


def shell(command: str, call_id: str = "a") -> Turn:
    return answer(function_call("bash", json.dumps({"command": command}), call_id))


async def ran(name: str, *turns: Turn | Engine) -> dict[str, RolloutRecord]:
    """What became of each task of a guest, with these answers of the model."""
    async with guest(name, *turns) as system:
        records = await made(system, name, own_rows(name))
    rows = own_rows(name)
    return {row["harbor"]["path"]: record for row, record in zip(rows, records, strict=True)}


def why(record: RolloutRecord) -> str:
    assert isinstance(record.outcome, Failed), record.outcome
    assert record.reward is None
    return record.outcome.fault.message


async def test_a_model_works_in_the_box_and_the_tests_judge_it(folder: Path) -> None:
    task(folder / "count")
    turns = [
        shell("ls; wc -l <data.txt >out.txt; ls /tests /solution; (sleep 100; echo late) & "),
        answer("Done."),
    ]
    (right,) = (await ran(NAME, *turns)).values()
    assert right.reward == 1.0
    assert said(right)[0] == ("user", "Count the lines of data.txt into out.txt.")
    outputs = [text for kind, text in said(right) if kind == "function_call_output"]
    assert outputs == ["<returncode>0</returncode>\n<output>\ndata.txt\n/solution:\n\n/tests:\n</output>"]
    row = result(right)
    assert row["harbor_log"] == "graded in /app\n"
    assert (row["harbor_task"], row["harbor_ended_by"]) == ("count", "agent")
    assert "gold" not in row


async def test_oracle_and_nop(folder: Path) -> None:
    task(folder / "crlf", solution=SOLUTION.replace("\n", "\r\n"))
    task(
        folder / "several",
        tests='#!/bin/sh\necho \'{"reward": 0.25, "style": -2}\' >/logs/verifier/reward.json',
    )
    oracle = await ran(f"{NAME}&play=oracle&gold=0.25", answer("-"))
    assert {name: one.reward for name, one in oracle.items()} == {"crlf": 1.0, "several": 0.25}
    assert result(oracle["several"])["reward_components"] == {"reward": 0.25, "style": -2.0}
    nop = await ran(f"{NAME}&play=nop&gold=0.25", answer("-"))
    assert {name: one.reward for name, one in nop.items()} == {"crlf": 0.0, "several": 0.25}


async def test_a_separate_verifier_gets_the_artifacts_only(folder: Path) -> None:
    separate = '[verifier]\nenvironment_mode = "separate"'
    toml = f'artifacts = ["out.txt", {{ source = "/app/logs", exclude = ["*.tmp"] }}]\n{TOML}'
    toml = toml.replace("[verifier]", separate)
    toml += '[[verifier.collect]]\ncommand = "echo kept >/logs/artifacts/state"\n'
    toml += '[[verifier.collect]]\ncommand = "exit 3"\n'
    tests = TESTS + "find /app/logs /logs/artifacts /tmp/other -type f\n"
    task(folder / "count", toml=toml, tests=tests)
    work = shell("echo 3 >out.txt; mkdir logs; touch 'logs/a b' logs/b.tmp /tmp/other")
    (record,) = (await ran(NAME, work, answer("Done."))).values()
    assert record.reward == 1.0
    found = set(result(record)["harbor_log"].splitlines())
    assert {"/app/logs/a b", "/logs/artifacts/state"} <= found
    assert not {"/app/logs/b.tmp", "/tmp/other"} & found
    assert result(record)["harbor_failed_hooks"] == ["exit 3"]


def steps(folder: Path, toml: str = STEPS) -> None:
    """A task of two steps, of which the second goes on with the files of the first."""
    task(folder, toml=TOML + toml, tests="#!/bin/sh\nexit 1\n", solution=None)
    (folder / "instruction.md").unlink()
    for step, word in (("first", "one"), ("second", "two")):
        for path, text in {
            "instruction.md": f"Say {word}.",
            "tests/test.sh": "#!/bin/sh\n. /tests/judge.sh\n",
            "solution/solve.sh": f"#!/bin/sh\necho {word} >>said\n",
            "workdir/setup.sh": f"touch begun-{step}\n",
        }.items():
            (folder / "steps" / step / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "steps" / step / path).write_text(text)
    judge = '[ "$(echo $(cat /app/said))" = "$WANTED" ] && r=1 || r=0\n'
    judge += 'echo "{\\"reward\\": $r, \\"$(ls /app | grep -c begun)\\": 1}" >/logs/verifier/reward.json\n'
    (folder / "tests" / "judge.sh").write_text(judge)


async def test_steps_are_judged_one_after_the_other(folder: Path) -> None:
    steps(folder / "mean")
    steps(folder / "final")
    final = folder / "final" / "task.toml"
    final.write_text(f'multi_step_reward_strategy = "final"\n{final.read_text()}')
    first, second = shell("echo one >>said"), shell("echo zwei >>said", "b")
    records = await ran(NAME, first, answer("First."), second, answer("Second."))
    assert {name: one.reward for name, one in records.items()} == {"mean": 0.5, "final": 0.0}
    told = [text for kind, text in said(records["mean"]) if kind == "user"]
    assert told == ["Say one.", "Say two."]
    row = result(records["mean"])
    assert row["harbor_steps"] == [
        {"name": "first", "rewards": {"reward": 1.0, "1": 1.0}},
        {"name": "second", "rewards": {"reward": 0.0, "2": 1.0}},
    ]
    assert row["reward_components"] == {"reward": 0.5, "1": 0.5, "2": 0.5}
    stopped = await ran(NAME, answer("Nothing."))
    assert [one.reward for one in stopped.values()] == [0.0, 0.0]
    assert [step["name"] for step in result(stopped["mean"])["harbor_steps"]] == ["first"]


class Store:
    """Keeps what sessions save, in memory."""

    limit_bytes = 64 << 20

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}

    async def put(self, part: bytes) -> str:
        self.parts[str(len(self.parts))] = part
        return str(len(self.parts) - 1)

    async def get(self, name: str) -> bytes:
        return self.parts[name]


async def test_a_trial_continues_in_another_box(folder: Path) -> None:
    steps(folder / "mean")
    resource, store = catalogue.environment(NAME).resource, Store()
    row = json.dumps(own_rows(NAME)[0]).encode()
    session = await resource.open(row, store=store)
    await resource.reset(session)
    for turn in (call("bash", {"command": "echo one >>said; (sleep 100) & date >/tmp/mine"}), "First."):
        await resource.step(session, make_response(turn))
    saved = await resource.saved(session)
    await resource.close(session)

    again = await resource.open(row, store=store, restore=saved)
    look = await resource.step(again, make_response(call("bash", {"command": "cat said; wc -l </tmp/mine"})))
    assert "one\\n1\\n" in bytes(look.items[0]).decode()
    await resource.step(again, make_response(call("bash", {"command": "echo two >>said"})))
    await resource.step(again, make_response("Second."))
    verdict = await resource.verify(again, make_response("Second."))
    await resource.close(again)
    assert isinstance(verdict, Verdict)
    assert [step["name"] for step in verdict.fields["harbor_steps"]] == ["first", "second"]
    assert verdict.reward == 1.0


ATTACKS = """
mkdir -p /logs/verifier; echo '{"reward": 1}' >/logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt
printf '#!/bin/sh\\necho 1 >/logs/verifier/reward.json\\n' >/tests/test.sh; chmod +x /tests/test.sh
rm -rf /logs/verifier; ln -s /app /logs/verifier; ln -s /tests /app/tests
ln -s /logs/verifier /logs/artifacts/v
echo 1 >/app/reward.json; mkdir bin; printf '#!/bin/sh\\necho 3\\n' >bin/cat; chmod +x bin/cat
export PATH=/app/bin:$PATH
(while :; do echo '{"reward": 1}' >/logs/verifier/reward.json; sleep 0.01; done) >/dev/null 2>&1 &
setsid sh -c 'while :; do echo 1 >/logs/verifier/reward.txt; sleep 0.01; done' >/dev/null 2>&1 &
kill -KILL $PPID $$
"""


@pytest.mark.parametrize(
    ("attack", "reward"),
    [
        ("kill -KILL 2", None),  # the box has ended, and nothing can be judged
        ("head -c 500000000 /dev/zero >/logs/artifacts/full; head -c 500000000 /dev/zero >/tmp/full", None),
        ("rm -rf /tmp/* /app/*; mkdir -p /app/out.txt; chmod 0 /app", None),
        ("mkdir /app/a; cd a; for i in $(seq 200); do mkdir a; cd a; done; ln -s / root", 0.0),
        ("touch -- '--checkpoint-action=exec=echo 3 >out.txt' --checkpoint=1 \"$(printf 'a\\nb')\"", 0.0),
    ],
)
async def test_what_breaks_the_box_is_no_reward(folder: Path, attack: str, reward: float | None) -> None:
    task(folder / "count")
    (record,) = (await ran(f"{NAME}&control=none&command_s=5", shell(attack), answer("Done."))).values()
    assert record.reward == reward


ENGINE = """#!/bin/sh
[ "$1" = run ] || exit 0
for image in plain judge; do
  case " $* " in *" $image "*) break ;; esac
done
while [ "$1" != $image ]; do shift; done; shift
[ $image = judge ] && set -- --ro-bind "$HOME/judge" /tests "$@"
exec bwrap --unshare-all --as-pid-1 --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin \\
  --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --chdir / "$@"
"""
"""Stands for podman: its containers are sandboxes of bubblewrap whose first process is the image's."""
FORGE = "(while :; do echo 1 >/logs/verifier/reward.txt; sleep 0.01; done) >/dev/null 2>&1 &"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "podman").write_text(ENGINE)
    (tmp_path / "bin" / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("GYM_CONTAINERS", "podman")
    monkeypatch.setenv("HOME", str(tmp_path))


async def test_tasks_with_images(folder: Path, engine: None) -> None:
    image = TOML.replace("[environment]", '[environment]\ndocker_image = "plain"\nworkdir = "/app"')
    task(folder / "shared", toml=image)
    task(folder / "separate", toml=image.replace("[verifier]", '[verifier]\nenvironment_mode = "separate"'))
    judge = f'artifacts = ["/app"]\n{image}[verifier.environment]\ndocker_image = "judge"\n'
    judge = judge.replace("[verifier]", '[verifier]\nenv = { MODE = "fast", KEY = "none" }')
    task(folder / "own-tests", toml=judge)
    (folder / "own-tests" / "tests" / "test.sh").rename(folder.parent / "test.sh")
    (folder / "own-tests" / "tests").rmdir()
    (folder.parent / "judge").mkdir()
    (folder.parent / "test.sh").rename(folder.parent / "judge" / "test.sh").chmod(0o755)
    name = "harbor:tasks?shared=true&control=none"
    solved = await ran(name, shell("echo 3 >out.txt; cp out.txt /logs/artifacts"), answer("Done."))
    assert {name: one.reward for name, one in solved.items()} == {
        "shared": 1.0,
        "separate": 0.0,
        "own-tests": 1.0,
    }
    forged = await ran(name, shell(FORGE), answer("Done."))
    assert [one.reward for one in forged.values()] == [0.0, 0.0, 0.0]
    steps(folder.parent / "steps", STEPS)
    toml = folder.parent / "steps" / "task.toml"
    toml.write_text(
        toml.read_text().replace("[environment]", '[environment]\ndocker_image = "plain"\nworkdir = "/app"')
    )
    (oracle,) = (await ran("harbor:steps?shared=true&play=oracle", answer("-"))).values()
    assert oracle.reward == 1.0


async def test_no_agent_writes_its_own_reward(folder: Path) -> None:
    task(folder / "count")
    (record,) = (await ran(NAME, shell(ATTACKS), answer("Done."))).values()
    assert record.reward == 0.0
    assert "graded" in result(record)["harbor_log"]


async def test_an_outage_of_a_grader_is_never_a_reward(folder: Path) -> None:
    write = "#!/bin/sh\necho {} >/logs/verifier/reward.{}\n"
    short = TOML.replace("timeout_sec = 30.0", "timeout_sec = 1.0")
    for name, tests, toml in (
        ("nothing", "#!/bin/sh\nexit 0\n", TOML),
        ("missing-shell", "#!/no/such/shell\n", TOML),
        ("late", "#!/bin/sh\nsleep 30; echo 1 >/logs/verifier/reward.txt\n", short),
        ("text", write.format("NaN", "txt"), TOML),
        ("overflow", write.format("'{\"reward\": 1e999}'", "json"), TOML),
        ("boolean", write.format("'{\"reward\": true}'", "json"), TOML),
        ("list", write.format("[1]", "json"), TOML),
        ("empty", "#!/bin/sh\n: >/logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt\n", TOML),
        ("link", "#!/bin/sh\necho 1 >/tmp/r; ln -s /tmp/r /logs/verifier/reward.txt\n", TOML),
        ("large", "#!/bin/sh\nhead -c 10000000 /dev/urandom >/logs/verifier/reward.txt\n", TOML),
        ("two", write.format('\'{"a": 1, "b": 1}\'', "json"), TOML),
        ("sick", TESTS, TOML.replace("[agent]", 'healthcheck = {command = "false", retries = 1}\n[agent]')),
    ):
        task(folder / name, tests=tests, toml=toml)
    records = await ran(NAME, answer("Done."))
    found = {name: why(record) for name, record in records.items()}
    for name, words in {
        "nothing": "wrote no reward file",
        "missing-shell": "wrote no reward file",
        "late": "took longer than 1 s",
        "text": "no finite number",
        "overflow": "no finite number|out of range|cannot be read",
        "boolean": "no finite number",
        "list": "no object of numbers",
        "empty": "is empty",
        "link": "is a link",
        "large": "larger than 64 KiB",
        "two": "reward_key=NAME: a, b",
        "sick": "health check fails",
    }.items():
        assert any(word in found[name] for word in words.split("|")), (name, found[name])


async def test_a_low_reward_counts_if_the_tests_work_here(folder: Path) -> None:
    broken = TESTS.replace("= 3 ]", "= 4 ]")
    task(folder / "broken", tests=broken.replace("#!/bin/sh", "#!/bin/sh\napt-get -qq install jq"))
    task(folder / "sound")
    records = await ran(NAME, answer("Done."))
    assert records["sound"].reward == 0.0
    problem = why(records["broken"])
    assert "its own solution gets 0 here and not 1" in problem
    assert "tests/test.sh: apt-get -qq install" in problem
    trusted = await ran(f"{NAME}&control=none", answer("Done."))
    assert trusted["broken"].reward == 0.0


async def test_an_agent_whose_time_is_up_is_judged(folder: Path) -> None:
    task(folder / "count", toml=TOML.replace("timeout_sec = 60.0", "timeout_sec = 8.0"))
    (record,) = (await ran(NAME, shell("echo 3 >out.txt; sleep 60"), answer("Done."))).values()
    assert isinstance(record.outcome, Truncated)
    assert record.reward == 1.0
    assert result(record)["harbor_ended_by"] == "timeout"


async def test_mcp_servers_and_skills_of_the_box_reach_the_model(folder: Path) -> None:
    """A server that is ended by the agent is started again; skills are listed, and stay in the box."""
    toml = TOML.replace("[environment]", '[environment]\nskills_dir = "skills"').replace(
        "[agent]", f'{SERVER}transport = "stdio"\ncommand = "python3"\nargs = ["/app/server.py"]\n[agent]'
    )
    skill = "---\nname: lines\ndescription: How lines are counted.\n---\nUse wc -l.\n"
    files = {"environment/server.py": COUNTER, "environment/skills/lines/SKILL.md": skill}
    task(folder / "count", toml=toml, **files)
    engine = Engine(
        answer(function_call("db__count_add", '{"amount": 2}', "c1")),
        answer(
            function_call("db__count_add", '{"amount": 1}', "c2"),
            function_call("bash", '{"command": "kill $(cat /tmp/.mcp-db/pid); echo 3 >out.txt"}', "c3"),
            function_call("db__count_add", '{"amount": 5}', "c4"),
            function_call("db__count_add", "[]", "c5"),
            function_call("db__none", "{}", "c6"),
        ),
        answer("Done."),
    )
    (record,) = (await ran(NAME, engine)).values()
    assert (record.reward, record.ending) == (1.0, "completed")
    first, _, last = [call for call, _ in engine.calls.items]
    offered = {one["name"] for one in json.loads(bytes(first.params))["tools"]}
    assert offered == {"bash", "db__count_add"}
    assert "lines: How lines are counted. (/app/skills/lines/SKILL.md)" in bytes(first.input[-1]).decode()
    items = [json.loads(bytes(raw)) for raw in last.input]
    outputs = {one["call_id"]: one["output"] for one in items if "output" in one}
    assert outputs["c1"].startswith("count 2")
    assert outputs["c2"].startswith("count 3")
    assert outputs["c4"].startswith("count 5")
    assert "not a JSON object" in outputs["c5"]
    assert outputs["c6"] == "There is one tool: bash."


async def test_a_server_that_does_not_start_fails_the_rollout(folder: Path) -> None:
    server = f'{SERVER}transport = "stdio"\ncommand = "sh"\nargs = ["-c", "echo no database >&2"]\n'
    task(folder / "count", toml=TOML.replace("[agent]", f"{server}[agent]"))
    (record,) = (await ran(NAME, answer("Done."))).values()
    assert "the MCP server 'db' has ended: no database" in why(record)


async def test_an_allowlist_is_no_network_unless_the_command_allows_one(folder: Path) -> None:
    task(folder / "count", toml=TOML.replace("no-network", "allowlist"))
    (record,) = (await ran(NAME, shell("echo 3 >out.txt"), answer("Done."))).values()
    assert record.reward == 1.0
    with pytest.raises(UsageError, match="allowlist; a box has all of a network or none"):
        catalogue.environment(f"{NAME}&network=task")


async def test_rows_belong_to_what_was_named(folder: Path) -> None:
    task(folder / "count")
    task(folder.parent / "other")
    (row,) = own_rows(NAME)
    other = {**row, "harbor": {**row["harbor"], "path": "../other"}}
    async with guest(NAME, answer("Done.")) as system:
        (elsewhere,) = await made(system, NAME, [other])
        (folder / "count" / "tests" / "test.sh").write_text("#!/bin/sh\n")
        (changed,) = await made(system, NAME, [row])
    assert "no task '../other'" in why(elsewhere)
    assert "is not as it was" in why(changed)


def test_what_a_task_asks_for_and_does_not_get_is_refused_by_name(folder: Path) -> None:
    good = task(folder / "good")
    refused = {
        "windows": TOML.replace("[environment]", '[environment]\nos = "windows"'),
        "remote": TOML.replace("[agent]", f'{SERVER}transport = "http"\nurl = "http://db/mcp"\n[agent]'),
        "twice": TOML.replace("[agent]", 2 * f'{SERVER}transport = "stdio"\ncommand = "x"\n' + "[agent]"),
        "user": TOML.replace("[agent]", '[agent]\nuser = "alice"'),
        "service": f'artifacts = [{{ source = "/db", service = "db" }}]\n{TOML}',
        "host": TOML.replace(":-none", ""),
        "workdir": TOML.replace("[environment]", '[environment]\nworkdir = "/usr/src"'),
        "gpu": TOML.replace("[environment]", "[environment]\ngpus = 1"),
    }
    for name, toml in refused.items():
        task(folder / name, toml=toml)
    task(folder / "compose", **{"environment/docker-compose.yaml": "services: {}"})
    task(folder / "network", solution=None, tests="#!/bin/sh\nuv run pytest\n")
    with pytest.raises(UsageError) as raised:
        catalogue.environment(NAME)
    lines = raised.value.message.splitlines()
    assert lines[0].startswith(f"{NAME}: 10 of 11 tasks do not run here; ?skip=true leaves these out")
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == sorted(
        [*refused, "compose", "network"]
    )
    assert "GYM_TEST_KEY of this machine: set it, and add ?variables=GYM_TEST_KEY" in raised.value.message
    assert [row["harbor"]["path"] for row in own_rows(f"{NAME}&skip=true")] == ["good"]
    (good / "environment" / "Dockerfile").unlink()
    with pytest.raises(UsageError, match="neither a docker_image nor an environment/Dockerfile"):
        catalogue.environment(f"harbor:{good}")
    with pytest.raises(UsageError, match="settings are dataset, image"):
        catalogue.environment(f"{NAME}&imag=none")
    (good / "tests" / "link").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="is a link"):
        own_rows(f"{NAME}&skip=true&play=nop")


def test_sets_of_tasks(folder: Path) -> None:
    task(folder / "b")
    task(folder / "a")
    assert [row["harbor"]["path"] for row in own_rows(NAME)] == ["a", "b"]
    assert own_rows("harbor:tasks/a?image=none")[0]["harbor"] == own_rows(NAME)[0]["harbor"]
    sets = [
        {"name": "own", "version": "1", "description": "", "tasks": [{"name": "own/b", "path": "b"}]},
        {
            "name": "far",
            "version": "1",
            "tasks": [{"name": "x", "path": "x", "git_url": "https://example.com"}],
        },
        {"name": "out", "version": "1", "tasks": [{"name": "x", "path": "../.."}]},
    ]
    (folder / "registry.json").write_text(json.dumps(sets))
    assert [row["harbor"]["path"] for row in own_rows(f"{NAME}&dataset=own@1")] == ["own/b"]
    for wanted, problem in (
        ("none", "there are: own@1, far@1, out@1"),
        ("far", "are in a git repository: clone it"),
        ("out", "no task in the registry's own folder"),
    ):
        with pytest.raises(UsageError, match=problem):
            catalogue.environment(f"{NAME}&dataset={wanted}")
