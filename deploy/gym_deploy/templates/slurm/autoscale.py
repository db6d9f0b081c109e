#!/usr/bin/env python3
"""Keep as many agent workers as the queue needs: python autoscale.py LEAST MOST

Every INTERVAL_S it compares the rollouts that wait or are in flight with the slots of the workers. It submits
jobs of workers.sbatch at once, and cancels jobs only when QUIET looks in a row needed fewer. A cancelled job
drains. It looks after the jobs of the name JOBS, which are its own and stay when it ends; OTHER_SLOTS are
those of agents that it did not start, such as system.sbatch's.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time

JOBS = "@PREFIX@-autoscaled"
SLOTS = "@CONCURRENCY@"  # of each job
QUIET = 4


def wanted(demand: int, others: int, slots: int, least: int, most: int) -> int:
    """How many jobs: enough slots for what waits and is in flight, besides those of other workers."""
    return max(least, min(most, math.ceil(max(0, demand - others) / slots)))


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def demand() -> int:
    join = os.environ.get("GYM_BROKER", "gym-broker") + "/join/client.join"
    gym = os.environ.get("GYM", "gym-runtime").split()
    command = [*gym, "status", "--json", "--nats", join, "--prefix", "@PREFIX@"]
    queues = json.loads(run(*command))["queues"].values()
    return sum(queue["waiting"] + queue["in_flight"] for queue in queues)


def jobs() -> list[str]:
    """Those that run or are to run; the ones that have not started come last."""
    # A job whose node still boots is CONFIGURING, which squeue does not take for RUNNING.
    states = "--states=RUNNING,CONFIGURING,PENDING"
    listing = ["--noheader", "--array", f"--name={JOBS}", states, "--format=%t %i"]
    found = [line.split() for line in run("squeue", *listing).splitlines()]
    return [job for _, job in sorted(found, key=lambda state_and_job: state_and_job[0] != "R")]


def main(least: int, most: int) -> None:
    quiet = 0
    slots = int(SLOTS)
    others = int(os.environ.get("OTHER_SLOTS", SLOTS))
    interval_s = float(os.environ.get("INTERVAL_S", "15"))
    while True:
        try:
            have, want = jobs(), wanted(demand(), others, slots, least, most)
            quiet = quiet + 1 if want < len(have) else 0
            if want > len(have):
                more = [f"--job-name={JOBS}", f"--array=1-{want - len(have)}"]
                print(run("sbatch", *more, "workers.sbatch", "agent").strip(), flush=True)
            elif quiet >= QUIET:
                print(f"{len(have)} jobs, {want} needed: cancelling {have[want:]}", flush=True)
                run("scancel", *have[want:])
                quiet = 0
        except FileNotFoundError as error:
            sys.exit(f"{error.filename} is not in PATH: start autoscale.py on a host where it is")
        except subprocess.CalledProcessError as error:
            # Also of sbatch and scancel: a busy controller, a quota, a job that has just ended.
            print(f"not this time: {error.cmd[0]}: {error.stderr.strip()}", flush=True)
        time.sleep(interval_s)


if __name__ == "__main__":
    try:
        fewest, most = map(int, sys.argv[1:])
    except ValueError:
        sys.exit("python autoscale.py LEAST MOST: two numbers of jobs, such as 0 8")
    main(fewest, most)
