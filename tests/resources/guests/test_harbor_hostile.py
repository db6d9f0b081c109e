"""Hostile tasks in Harbor's format, and hostile MCP servers in boxes: they block no loop."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from gym_resources.harbor_tasks import box_servers, task_file, task_folder
from gym_resources.harbor_tasks.box_servers import BoxServers
from gym_resources.harbor_tasks.task_trial import Settings, Trial
from gym_runtime.environment.blocked_loop import watching
from gym_runtime.errors import UsageError
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from resources.guests.harbor_folders import TOML, task
from resources.guests.mcp_servers import COUNTER

pytestmark = pytest.mark.anyio
BLOCKED_S = 0.25
"""Five times the 50 ms of a worker, because the machine may be busy."""
SERVER = '[[environment.mcp_servers]]\nname = "db"\ntransport = "stdio"\ncommand = "python3"\n'
CALLED = '    elif asked["method"] == "tools/call":\n'
LINES = '        sys.stdout.write("{{}}\\n" * {}); sys.stdout.flush()\n'


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_lines_of_a_server_in_the_box_do_not_block_the_loop(tmp_path: Path) -> None:
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    flood = COUNTER.replace(
        CALLED, f'{CALLED}        many = asked["params"]["arguments"]["amount"]\n{LINES.format("many")}'
    )
    toml = TOML.replace("[agent]", f'{SERVER}args = ["/app/server.py"]\n[agent]')
    task(tmp_path / "task", toml=toml, **{"environment/server.py": flood})
    (found,) = task_folder.find(tmp_path / "task")
    trial, servers = Trial(found, Settings(image="none")), BoxServers()
    blocked: list[str] = []
    try:
        await trial.open()
        await servers.begin(trial.box, found.file.environment.mcp_servers, None)
        async with watching(BLOCKED_S, lambda place, _: blocked.append(place)):
            said = await servers.call("db__count_add", '{"amount": 500}', trial.box, None)
            assert str(said).startswith("count 500")
            said = await servers.call("db__count_add", '{"amount": 700000}', trial.box, None)
            assert "10,000 messages, and not its answer" in str(said)
    finally:
        await trial.close()
    assert not blocked


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_a_server_that_hangs_leaves_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait used to be cancelled within a command of the box, which ended the box."""
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    waits = (
        "        if asked['params']['arguments']['amount'] == 7:\n            import time; time.sleep(600)\n"
    )
    toml = TOML.replace("[agent]", f'{SERVER}args = ["/app/server.py"]\n[agent]')
    hanging = COUNTER.replace(CALLED, CALLED + waits)
    task(tmp_path / "task", toml=toml, **{"environment/server.py": hanging})
    (found,) = task_folder.find(tmp_path / "task")
    trial, servers = Trial(found, Settings(image="none")), BoxServers()
    try:
        await trial.open()
        await servers.begin(trial.box, found.file.environment.mcp_servers, None)
        monkeypatch.setattr(box_servers, "ANSWER_LIMIT_S", 1.0)
        monkeypatch.setattr(box_servers, "_READ", f"sleep 0.7\n{box_servers._READ}")
        said = await servers.call("db__count_add", '{"amount": 7}', trial.box, None)
        assert str(said).endswith("the MCP server 'db' did not answer for 1 s")
        assert (await trial.box.run("echo here", timeout_s=10)).stdout == b"here\n"
    finally:
        await trial.close()


def test_long_instructions_and_keys_cost_no_time(tmp_path: Path) -> None:
    where = task(tmp_path / "task", instruction="#canary\n" * 130_000 + "Do it.\n")
    begun_s = time.thread_time()
    (found,) = task_folder.find(where)
    assert found.instruction == "Do it."
    (where / "instruction.md").write_text("a" * (task_folder.MAX_TEXT_BYTES + 1))
    with pytest.raises(UsageError, match="more than 1024 KiB"):
        _ = found.instruction
    for text in ("[" + "a." * 20_000 + "a]", "a." * 20_000 + "a = 1", "#" * 200_000):
        with pytest.raises(UsageError, match="more than 128 KiB, or a line of more than 500 dots"):
            task_file.parse(text, "task.toml")
    task_file.parse("\n".join(f"[{'a.' * 490}b{n}]" for n in range(100)), "task.toml")
    assert time.thread_time() - begun_s < 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('memory = "-5G"', "no size above 0"),
        ('storage = "0M"', "no size above 0"),
        ('memory = "nanG"', "NaN"),
        ('memory = "infG"', "infinity"),
        ('memory = "1e30G"', "no size above 0 and up to 1024 TiB"),
        ("storage_mb = 9223372036854775807", "<= 1073741824"),
        ("cpus = nan", "Expected `float`"),
        ("build_timeout_sec = inf", "Expected `float`"),
        ('docker_image = "a\\u0000b"', "no image of a registry"),
        ('docker_image = "docker-archive:/home/x.tar"', "no image of a registry"),
        ('docker_image = "--help"', "no image of a registry"),
    ],
)
def test_values_that_no_box_can_have(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        task_file.parse(f"[environment]\n{text}\n", "task.toml")


@pytest.mark.parametrize(
    "least", ["nan", "inf", "-inf", "{ speed = nan }", "{ reward = 0.5, speed = 1e400 }"]
)
def test_a_reward_to_reach_is_a_finite_number(least: str) -> None:
    with pytest.raises(UsageError, match=r"min_reward of step 'one' is .*, and no finite number"):
        task_file.parse(f'[[steps]]\nname = "one"\nmin_reward = {least}\n', "task.toml")


def test_a_digest_is_that_of_all_files(tmp_path: Path) -> None:
    where = task(tmp_path / "task", **{".harborignore": "tests\n", "tests/.harborignore": "*.log\n"})
    (found,) = task_folder.find(where)
    digests = {found.digest()}
    for path in ("tests/test.sh", "tests/.harborignore", ".harborignore", "tests/a.log"):
        with (where / path).open("a") as file:
            file.write("# more\n")
        digests.add(found.digest())
    assert len(digests) == 5


def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    where = task(tmp_path / "task")
    (found,) = task_folder.find(where)
    (where / "tests" / "å\u200d").touch()
    assert found.digest()
    Path(os.fsdecode(os.fsencode(where) + b"/tests/\xff")).touch()
    for read in (found.digest, lambda: found.packed("tests", "")):
        with pytest.raises(UsageError, match=r"tests/\\udcff' has a name that is not UTF-8; rename it"):
            read()
