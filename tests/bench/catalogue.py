"""Each environment of the catalogue for one row with a small real model: which end with a verdict, and what
the worker that serves them all takes.

    python tests/bench/catalogue.py                          # embedded/smollm2-135m, also as each judge
    python tests/bench/catalogue.py --model scripted/message

Memory is the greatest sum of the resource worker's shares (PSS), twice a second, without what runs in
sandboxes: programs, and the fork servers of isolated verdicts. Environments that this machine cannot run are
named with the reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from gym_runtime import UsageError
from gym_runtime.environment import catalogue, examples, requirements

COMPARES = "genrm_compare"
"""It needs two rollouts of a row."""


def row_of(name: str) -> tuple[dict[str, Any] | None, set[str]]:
    """One row of an environment and the roles that it has; None with the reason printed if it cannot run."""
    try:
        environment = catalogue.environment(name)
        requirements.require(environment)
        example = examples.read(environment)[0]
    except UsageError as error:
        print(f"{name}: not here: {error.message}")
        return None, set()
    row = {key: value for key, value in json.loads(example.row).items() if key not in ("gold", "agent_ref")}
    return {**row, "agent_ref": {"name": name}}, {role.name for role in environment.resource.roles}


def memory_mb(parent: psutil.Process) -> float:
    """The resource worker's memory, without what runs in sandboxes."""
    total = 0
    for process in parent.children(recursive=True):
        try:
            above = [process, *process.parents()]
            lines = [" ".join(one.cmdline()[:6]) for one in above[:-1]]
            if any("resource" in line for line in lines) and not any("bwrap" in line for line in lines):
                total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded/smollm2-135m")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    names = given.names or sorted(catalogue.names("environments"))
    found = [(name, *row_of(name)) for name in names]
    roles = sorted({role for _, row, asked in found for role in asked if row})
    with tempfile.TemporaryDirectory() as folder:
        blend, output = Path(folder, "blend.jsonl"), Path(folder, "out.jsonl")
        blend.write_text("".join(json.dumps(row) + "\n" for _, row, _ in found if row))
        command = [sys.executable, "-m", "gym_runtime.cli.main", "run", ",".join(n for n, r, _ in found if r)]
        command += ["--input", str(blend), "--output", str(output), "--model", given.model]
        command += [
            part
            for name, row, _ in found
            if row
            for part in ("--repeats", f"{name}={2 if name == COMPARES else 1}")
        ]
        command += ["--max-output-tokens", "48", "--max-turns", "2", "--concurrency", "8", "--timeout", "240"]
        command += [part for role in roles for part in ("--role", f"{role}=policy")]
        start_s, most = time.monotonic(), 0.0
        said = Path(folder, "said")
        with said.open("w") as told, subprocess.Popen(command, stdout=told, stderr=told) as running:
            parent = psutil.Process(running.pid)
            while running.poll() is None:
                most = max(most, memory_mb(parent))
                time.sleep(0.5)
        ended: dict[str, str] = {}
        for path in (output, output.with_name("out_failures.jsonl")):
            for line in path.read_text().splitlines() if path.exists() else ():
                row = json.loads(line)
                failed = row.get("_gym", {}).get("outcome", row.get("outcome", {}))
                reason = "a verdict" if row.get("reward") is not None else json.dumps(failed)[:300]
                ended[row["agent_ref"]["name"]] = reason
        if not ended:
            print(said.read_text()[-3000:])
    for name in sorted(ended):
        if ended[name] != "a verdict":
            print(f"{name}: {ended[name]}")
    counts = Counter(reason == "a verdict" for reason in ended.values())
    print(f"{len(names)} environments: {counts[True]} verdicts, {counts[False]} failures; ", end="")
    print(f"{time.monotonic() - start_s:.0f} s; at most {most:.0f} MB")


if __name__ == "__main__":
    main()
