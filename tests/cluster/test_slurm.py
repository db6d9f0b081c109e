"""The jobs that ``deploy init slurm`` writes, on a real Slurm: a system, more workers in mid-run, and fewer.

It takes a minute and root, so it runs when it is asked for:

    GYM_TEST_SLURM=1 pytest tests/cluster      # apt install slurm-wlm munge iproute2
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.namespaces import cluster, lacking
from cluster.slurm import PROGRAMS, Slurm, slurm
from gym_deploy.written import Values, write
from runtime.cli.started import SCRIPT
from stubs.stub_engine import COMMAND

WHY_NOT = (
    "set GYM_TEST_SLURM=1 to start Slurm in network namespaces"
    if not os.environ.get("GYM_TEST_SLURM")
    else lacking(*PROGRAMS)
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

NAME = "example_session_state_mgmt"
ROW = b"""{"responses_create_params": {"input": [{"role": "user", "content": "add 1, add 2, get the count"}],
"tools": [{"type": "function", "name": "increment_counter", "strict": true, "parameters": {"type": "object",
"properties": {"count": {"type": "integer"}}, "required": ["count"], "additionalProperties": false}}]},
"initial_count": 3, "expected_count": 4, "number": %d}"""
ROLLOUTS = 800
SLOTS = 8


def until(what: Callable[[], bool], within_s: float = 60.0) -> None:
    give_up = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.2)


class System:
    """What the jobs have started, as a client on the controller's host sees it."""

    def __init__(self, jobs: Slurm, folder: Path) -> None:
        self._jobs = jobs
        self._join = str(folder / "gym-broker" / "join" / "client.join")

    def ask(self, *command: str) -> str:
        return self._jobs.run(SCRIPT, *command, "--nats", self._join)

    def agents(self) -> list[int]:
        """The rollouts in flight of each agent worker."""
        try:
            workers = json.loads(self.ask("status", "--json"))["workers"]
        except AssertionError:
            return []
        kinds = Counter(worker["kind"] for worker in workers)
        ready = kinds["resource"] and kinds["model"]
        return [worker["in_use"] for worker in workers if worker["kind"] == "agent"] if ready else []


def test_workers_come_and_go_with_jobs_and_every_rollout_is_made_once(tmp_path: Path) -> None:
    values = Values(
        environments=(NAME,), model="openai/stub", model_urls=("http://n2:8000/v1",), concurrency=SLOTS
    )
    write("slurm", tmp_path, values)
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(re.sub(rb"\n", b" ", ROW) % index + b"\n" for index in range(ROLLOUTS)))
    with (
        cluster(tmp_path, "head", "n0", "n1", "n2") as hosts,
        slurm(hosts, tmp_path / "slurm", GYM=SCRIPT, GYM_BROKER=str(tmp_path / "gym-broker")) as jobs,
    ):
        engine = subprocess.Popen(
            hosts.command("n2", *COMMAND, "--host", "0.0.0.0", "--port", "8000", "--latency-s", "0.3"),
            stdout=subprocess.PIPE,
        )
        try:
            assert engine.stdout is not None
            assert engine.stdout.readline()
            system = System(jobs, tmp_path)
            jobs.run("sbatch", str(tmp_path / "system.sbatch"))
            until(lambda: len(system.agents()) == 1)
            hosts.run("n2", "curl", "-s", "-X", "POST", "http://127.0.0.1:8000/stats")
            run = system.ask("publish", str(rows), "--environment", NAME).split()[-1]
            until(lambda: system.agents() == [SLOTS])
            jobs.run("sbatch", "--array=1-2", str(tmp_path / "workers.sbatch"), "agent")
            until(lambda: system.agents() == [SLOTS] * 3)
            [*_, last] = jobs.jobs("gym-workers")
            jobs.run("scancel", last)
            until(lambda: last not in jobs.jobs("gym-workers"), within_s=30)
            system.ask("collect", run, "-o", str(tmp_path / "out.jsonl"))
            stats = json.loads(hosts.run("n2", "curl", "-s", "http://127.0.0.1:8000/stats"))
        finally:
            engine.kill()
            engine.wait()
            assert engine.stdout is not None
            engine.stdout.close()
    made = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len({row["_gym"]["rollout_id"] for row in made}) == len(made) == ROLLOUTS
    assert {row["_gym"]["attempt"] for row in made} == {1}
    assert stats["requests"] == sum(row["_gym"]["turns"] for row in made)


def test_an_engine_is_a_step_with_the_gpus_of_the_job(tmp_path: Path) -> None:
    values = Values(environments=(NAME,), model="openai/stub", model_urls=("http://n0:8000/v1",))
    write("slurm", tmp_path, values)
    engine = tmp_path / "engine.sh"
    serving = shlex.join([*COMMAND, "--host", "0.0.0.0", "--port", "8000"])
    engine.write_text(f"#!/bin/bash\necho $CUDA_VISIBLE_DEVICES > {tmp_path}/seen\nexec {serving}\n")
    engine.chmod(0o755)
    variables = {
        # In the place of 'apptainer exec IMAGE.sif gym-runtime'.
        "GYM": f"env WRAPPED=1 {SCRIPT}",
        "GYM_BROKER": str(tmp_path / "gym-broker"),
        "GYM_ENGINE": str(engine),
        "GYM_GPUS": "2",
    }
    with (
        cluster(tmp_path, "head", "n0") as hosts,
        slurm(hosts, tmp_path / "slurm", **variables) as jobs,
    ):
        jobs.run("sbatch", "--gres=gpu:2", str(tmp_path / "system.sbatch"))
        system = System(jobs, tmp_path)
        until(lambda: len(system.agents()) == 1)
    assert (tmp_path / "seen").read_text() == "0,1\n"


def test_a_system_whose_broker_cannot_start_is_a_failed_job(tmp_path: Path) -> None:
    write("slurm", tmp_path, Values(environments=(NAME,)))
    with (
        cluster(tmp_path, "head", "n0") as hosts,
        slurm(hosts, tmp_path / "slurm", GYM_BROKER=str(tmp_path / "gym-broker"), GYM=SCRIPT) as jobs,
    ):
        server = subprocess.Popen(hosts.command("n0", sys.executable, "-m", "http.server", "4222"))
        try:
            until(lambda: bool(hosts.run("n0", "ss", "--no-header", "--listening", "--tcp", "sport", "4222")))
            jobs.run("sbatch", str(tmp_path / "system.sbatch"))
            until(lambda: "JobState=FAILED" in jobs.run("scontrol", "show", "job", "1"))
        finally:
            server.kill()
            server.wait()
        said = (tmp_path / "slurm" / "gym-system-1.log").read_text()
    assert "address already in use" in said


def written(folder: Path, engine: str) -> Path:
    """The jobs' files, with the engine on this host, in a folder; and their rows."""
    urls = (f"http://{engine}:8000/v1",)
    values = Values(environments=(NAME,), model="openai/stub", model_urls=urls, concurrency=SLOTS)
    write("slurm", folder, values)
    rows = folder / "rows.jsonl"
    rows.write_bytes(b"".join(re.sub(rb"\n", b" ", ROW) % index + b"\n" for index in range(ROLLOUTS // 2)))
    return rows


def check_all_once(folder: Path) -> None:
    made = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert len({row["_gym"]["rollout_id"] for row in made}) == len(made) == ROLLOUTS // 2


def test_a_system_goes_on_without_the_node_of_an_agent(tmp_path: Path) -> None:
    rows = written(tmp_path, "head")
    with (
        cluster(tmp_path, "head", "n0", "n1") as hosts,
        slurm(hosts, tmp_path / "slurm", GYM=SCRIPT, GYM_BROKER=str(tmp_path / "gym-broker")) as jobs,
    ):
        serving = (*COMMAND, "--host", "0.0.0.0", "--port", "8000", "--latency-s", "0.3")
        engine = subprocess.Popen(hosts.command("head", *serving), stdout=subprocess.DEVNULL)
        try:
            system = System(jobs, tmp_path)
            jobs.run("sbatch", "--nodes=2", str(tmp_path / "system.sbatch"))
            until(lambda: len(system.agents()) == 2)
            run = system.ask("publish", str(rows), "--environment", NAME).split()[-1]
            until(lambda: system.agents() == [SLOTS] * 2)
            hosts.kill("n1")
            jobs.run("scontrol", "update", "nodename=n1", "state=down", "reason=lost")
            system.ask("collect", run, "-o", str(tmp_path / "out.jsonl"))
            assert jobs.jobs("gym-system") == ["1"]
        finally:
            engine.kill()
            engine.wait()
    check_all_once(tmp_path)


PREEMPTED = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n1 PriorityTier=1 PreemptMode=REQUEUE GraceTime=25 State=UP
PartitionName=high Nodes=n1 PriorityTier=2 State=UP
"""


def test_a_preempted_worker_that_drains_within_the_grace_time_is_queued_again(tmp_path: Path) -> None:
    rows = written(tmp_path, "n0")
    variables = {
        "GYM": SCRIPT,
        "GYM_BROKER": str(tmp_path / "gym-broker"),
        "GYM_ENGINE": shlex.join([*COMMAND, "--host", "0.0.0.0", "--port", "8000", "--latency-s", "0.3"]),
    }
    with (
        cluster(tmp_path, "head", "n0", "n1") as hosts,
        slurm(hosts, tmp_path / "slurm", more=PREEMPTED, **variables) as jobs,
    ):
        system = System(jobs, tmp_path)
        jobs.run("sbatch", "--nodelist=n0", "--gres=gpu:1", str(tmp_path / "system.sbatch"))
        until(lambda: len(system.agents()) == 1)
        run = system.ask("publish", str(rows), "--environment", NAME).split()[-1]
        jobs.run("sbatch", "--partition=low", str(tmp_path / "workers.sbatch"), "agent")
        until(lambda: system.agents() == [SLOTS] * 2)
        jobs.run("sbatch", "--partition=high", "--exclusive", "--wrap=sleep 600")
        until(lambda: len(system.agents()) == 1)
        until(lambda: "wrap R" in jobs.run("squeue", "--format=%j %t"))
        assert "gym-workers PD" in jobs.run("squeue", "--format=%j %t")
        system.ask("collect", run, "-o", str(tmp_path / "out.jsonl"))
    check_all_once(tmp_path)


def test_the_autoscaler_looks_after_its_own_jobs_only(tmp_path: Path) -> None:
    rows = written(tmp_path, "n0")
    serving = shlex.join([*COMMAND, "--host", "0.0.0.0", "--port", "8000", "--latency-s", "0.3"])
    variables = {
        "GYM": SCRIPT,
        "GYM_BROKER": str(tmp_path / "gym-broker"),
        "GYM_ENGINE": serving,
        "INTERVAL_S": "1",
    }
    # Jobs are CONFIGURING meanwhile, as when nodes boot.
    boots = tmp_path / "boots"
    boots.write_text("#!/bin/sh\nsleep 4\n")
    boots.chmod(0o755)
    with (
        cluster(tmp_path, "head", "n0", "n1") as hosts,
        slurm(hosts, tmp_path / "slurm", more=f"PrologSlurmctld={boots}\n", **variables) as jobs,
    ):
        system = System(jobs, tmp_path)
        jobs.run("sbatch", "--gres=gpu:1", str(tmp_path / "system.sbatch"))
        jobs.run("sbatch", str(tmp_path / "workers.sbatch"), f"resource:{NAME}")
        until(lambda: len(system.agents()) == 1)
        with (tmp_path / "autoscale.log").open("wb") as log:
            autoscaler = subprocess.Popen(
                hosts.command("head", sys.executable, "autoscale.py", "0", "2"),
                env=jobs.variables,
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        try:
            run = system.ask("publish", str(rows), "--environment", NAME).split()[-1]
            until(lambda: len(jobs.jobs("gym-autoscaled")) >= 2)
            system.ask("collect", run, "-o", str(tmp_path / "out.jsonl"))
            assert len(jobs.jobs("gym-autoscaled")) <= 2
            until(lambda: not jobs.jobs("gym-autoscaled"))
            assert len(jobs.jobs("gym-workers")) == 1
            assert autoscaler.poll() is None
        finally:
            autoscaler.kill()
            autoscaler.wait()
    check_all_once(tmp_path)
    assert "2 jobs, 0 needed: cancelling" in (tmp_path / "autoscale.log").read_text()
