"""What ``deploy init`` writes is accepted by the programs it is for, and starts commands that exist."""

from __future__ import annotations

import configparser
import os
import py_compile
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from gym_deploy.written import Values, write
from gym_runtime.cli.app import application
from gym_runtime.cli.config import load_config
from gym_runtime.cli.main import run
from gym_runtime.errors import UsageError

VALUES = Values(
    environments=("mcqa", "reasoning_gym"),
    model="openai/Qwen/Qwen3-4B",
    model_urls=("http://10.0.0.7:8000/v1", "http://10.0.0.8:8000/v1"),
    concurrency=64,
    prefix="lab",
)


def accepted(arguments: list[str]) -> bool:
    """Whether the command line of ``gym-runtime`` takes these arguments."""
    application().parse_args(arguments, exit_on_error=False, print_error=False)
    return True


@pytest.mark.parametrize("platform", ["slurm", "kubernetes", "compose", "systemd"])
def test_every_value_is_filled_in_and_files_are_kept(platform: Any, tmp_path: Path) -> None:
    paths = write(platform, tmp_path, VALUES)
    assert paths
    assert not [path for path in paths if re.search(r"@[A-Z_]+@", path.read_text())]
    with pytest.raises(UsageError, match="exists; --overwrite replaces it"):
        write(platform, tmp_path, VALUES)
    assert write(platform, tmp_path, VALUES, overwrite=True) == paths


def test_what_pip_compiled_at_installation_is_no_template(tmp_path: Path) -> None:
    template = Path(str(files("gym_deploy"))) / "templates" / "slurm" / "autoscale.py"
    compiled = py_compile.compile(str(template), doraise=True)
    assert compiled
    try:
        names = {path.name for path in write("slurm", tmp_path, VALUES)}
    finally:
        Path(compiled).unlink()
        Path(compiled).parent.rmdir()
    assert names == {"system.sbatch", "workers.sbatch", "autoscale.py"}


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", "init", "systemd", "--dir", str(tmp_path / "here")]) == 0
    written = capsys.readouterr().out.splitlines()
    assert all(Path(line).exists() for line in written)
    assert run(["deploy", "init", "systemd", "--dir", str(tmp_path), "--model", "a b"]) == 2


def test_environments_may_be_named_with_commas(tmp_path: Path) -> None:
    several = ("--environment", "mcqa,xstest", "--environment", "code_gen")
    assert run(["deploy", "init", "compose", "--dir", str(tmp_path), *several]) == 0
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert services["gym-server"]["command"][:4] == ["gym-server", "mcqa", "xstest", "code_gen"]


def test_values_that_a_shell_would_run_are_refused(tmp_path: Path) -> None:
    for value in ("$(id)", "a;b", "a b", 'a"', "`id`", "a\nb", "@MODEL@|"):
        with pytest.raises(UsageError, match="letters, digits"):
            write("slurm", tmp_path, Values(model=value))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("environment", "mcqa,", "--environment '': letters"),
        (
            "environment",
            "mcqa,xtest",
            "installed, too; did you mean 'xstest'?",
        ),
        ("environment", "ours", "there is no environment 'ours' here, where its package must be"),
        (
            "model",
            "opnai/x",
            "there is no model provider 'opnai' here, ",
        ),
        ("image", "", "--image '': letters"),
        ("model", "", "--model '': letters"),
        ("model", "policy", "--model policy: it is PROVIDER/NAME"),
        ("model", "openai/", "--model openai/: it is PROVIDER/NAME"),
        ("prefix", "", "prefix '': tokens of letters"),
        ("prefix", "lab/1", "prefix 'lab/1': tokens of letters"),
    ],
)
def test_values_with_which_no_system_starts_are_refused(
    option: str, value: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["deploy", "init", "slurm", "--dir", str(tmp_path / "jobs"), f"--{option}", value]) == 2
    complaint = capsys.readouterr().err
    assert (said in complaint, complaint.count("\n")) == (True, 1)
    assert not (tmp_path / "jobs").exists()


def test_services_start_commands_that_exist(tmp_path: Path) -> None:
    write("systemd", tmp_path, VALUES)
    for path in tmp_path.glob("*.service"):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(path)
        service = unit["Service"]
        assert accepted(shlex.split(service["ExecStart"].replace("%i", "agent"))[1:])
        assert float(service["TimeoutStopSec"]) >= 30
    config = load_config(tmp_path / "system.toml")
    assert [pool.kind for pool in config.pools] == ["agent", "resource", "model"]
    assert config.pools[2].model is not None
    assert config.pools[2].model.urls == VALUES.model_urls


def test_the_image_has_the_python_that_made_the_wheels(tmp_path: Path) -> None:
    write("compose", tmp_path, VALUES)
    base = re.search(r"^ARG BASE=(.*)$", (tmp_path / "Containerfile").read_text(), re.M)
    assert base
    assert base[1].endswith(f"/python:{sys.version_info.major}.{sys.version_info.minor}-slim")


def test_composed_services_are_commands_that_exist(tmp_path: Path) -> None:
    write("compose", tmp_path, VALUES)
    composed = yaml.safe_load((tmp_path / "compose.yaml").read_text())
    services = composed["services"]
    assert set(services) == {"broker", "resource", "model", "agent", "metrics", "gym-server"}
    for service in services.values():
        assert accepted([str(argument) for argument in service["command"]])
    assert {services[name]["stop_grace_period"] for name in ("broker", "resource", "model", "agent")} == {
        "30s"
    }
    assert services["resource"]["security_opt"] == ["seccomp=unconfined", "systempaths=unconfined"]
    assert services["gym-server"]["profiles"] == ["gym-server"]
    for name in ("metrics", "gym-server"):
        assert services[name]["environment"]["GYM_NATS_URL"] == "/join/client.join"
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])


def test_jobs_are_scripts_that_bash_reads(tmp_path: Path) -> None:
    write("slurm", tmp_path, VALUES)
    for name in ("system.sbatch", "workers.sbatch"):
        subprocess.run(["bash", "-n", str(tmp_path / name)], check=True)
    autoscale = runpy.run_path(str(tmp_path / "autoscale.py"))
    wanted = autoscale["wanted"]
    assert (autoscale["JOBS"], autoscale["SLOTS"]) == ("lab-autoscaled", "64")
    assert [wanted(demand, 64, 64, 0, 4) for demand in (0, 64, 65, 128, 129, 10_000)] == [0, 0, 1, 1, 2, 4]
    assert wanted(0, 64, 64, 2, 4) == 2


def test_the_job_of_a_system_ends_with_its_broker(tmp_path: Path) -> None:
    write("slurm", tmp_path, VALUES)
    # The workers stay, as those that wait for a broker do.
    commands = {"scontrol": "echo n0", "srun": 'case "$*" in *" broker "*) exit 2;; esac; exec sleep 600'}
    variables = {**with_commands(tmp_path, commands), "SLURM_JOB_NODELIST": "n0"}
    job = subprocess.Popen(["bash", "system.sbatch"], cwd=tmp_path, env=variables, start_new_session=True)
    try:
        assert job.wait() == 2
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def with_commands(folder: Path, commands: dict[str, str]) -> dict[str, str]:
    """An environment in which these commands are found first; each is a shell script, by its name."""
    for name, does in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(("preempted", "requeued"), [("2026-11-28T12:00:00", True), ("None", False)])
def test_a_job_of_workers_is_queued_again_after_a_preemption_only(
    tmp_path: Path, preempted: str, requeued: bool
) -> None:
    write("slurm", tmp_path, VALUES)
    told = tmp_path / "told"
    commands = {
        "scontrol": f"echo $* >>{told}; echo PreemptEligibleTime=2026-11-28T11:00:00 PreemptTime={preempted}",
        "srun": f"trap 'exit 3' TERM; echo srun >>{told}; while :; do sleep 0.1; done",
    }
    variables = {**with_commands(tmp_path, commands), "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", "workers.sbatch"], cwd=tmp_path, env=variables, start_new_session=True)
    try:
        while not told.exists():
            assert job.poll() is None
            time.sleep(0.02)
        os.killpg(job.pid, signal.SIGTERM)  # as Slurm does, to every process of the job
        assert job.wait() == 3
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert told.read_text().splitlines() == ["srun", "show job 7", *(["requeue 7"] if requeued else [])]


@pytest.mark.parametrize("numbers", [(), ("1",), ("0", "many"), ("0", "8", "9")])
def test_the_autoscaler_says_what_it_takes(numbers: tuple[str, ...], tmp_path: Path) -> None:
    write("slurm", tmp_path, VALUES)
    done = subprocess.run(
        [sys.executable, "autoscale.py", *numbers], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = "python autoscale.py LEAST MOST: two numbers of jobs, such as 0 8\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_the_autoscaler_without_slurm_ends_with_one_line(tmp_path: Path) -> None:
    write("slurm", tmp_path, VALUES)
    done = subprocess.run(
        [sys.executable, "autoscale.py", "0", "4"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = "squeue is not in PATH: start autoscale.py on a host where it is\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_the_autoscaler_goes_on_when_a_command_of_slurm_fails(tmp_path: Path) -> None:
    write("slurm", tmp_path, VALUES)
    asked = tmp_path / "asked"
    status = '{"queues": {"tool_loop": {"waiting": 500, "in_flight": 0}}}'
    commands = {
        "squeue": "",
        "gym-runtime": f"echo '{status}'",
        # The second time it works.
        "sbatch": f'echo "$@" >> {asked}; test $(wc -l < {asked}) -gt 1 || {{ echo timed out >&2; exit 1; }}',
    }
    variables = {**with_commands(tmp_path, commands), "INTERVAL_S": "0.1"}
    command = [sys.executable, "autoscale.py", "1", "4"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "not this time: sbatch: timed out\n"
            assert running.stdout.readline() == "\n", "it asks again"
        finally:
            running.kill()
    assert set(asked.read_text().splitlines()) == {
        "--job-name=lab-autoscaled --array=1-4 workers.sbatch agent"
    }
