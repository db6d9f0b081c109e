"""What the authors publish: tasks, policies and databases; and the rows that are made of it.

Source: github.com/sierra-research/tau2-bench (MIT), at the tag ``pre-v1.0.1``, whose tasks of these
domains are those of 1.0 and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from gym_runtime import Asset, DatasetSource
from gym_runtime.assets import find

from gym_resources.tau2.phone import Phone
from gym_resources.tau2.shared_records import Record, Tables

TAG = "pre-v1.0.1"
FILES: dict[Domain, tuple[str, ...]] = {
    "airline": ("tasks.json", "policy.md", "db.json"),
    "retail": ("tasks.json", "policy.md", "db.json"),
    "telecom": (
        "tasks.json",
        "split_tasks.json",
        "main_policy.md",
        "tech_support_manual.md",
        "db.toml",
        "user_db.toml",
    ),
}
KEYS = {
    "plans": "plan_id",
    "customers": "customer_id",
    "lines": "line_id",
    "bills": "bill_id",
    "devices": "device_id",
}
"""The tables of the telephone company, which are published as lists, and what identifies a record."""
Domain = Literal["airline", "retail", "telecom", "banking_knowledge"]
SYSTEM = """\
<instructions>
You are a customer service agent that helps the user according to the <policy> provided below.
In each turn you can either:
- Send a message to the user.
- Make a tool call.
You cannot do both at the same time.

Try to be helpful and always follow the policy. Always make sure you generate valid JSON only.
</instructions>
<policy>
{policy}
</policy>"""
GREETING = "Hi! How can I help you today?"
STOP, TRANSFER, OUT_OF_SCOPE = SIGNALS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
GUIDELINES = f"""\
That an agent agrees to something is not enough: go on until it says that it is done, and until all that you
want has been dealt with. If you are handed over to another agent, write {TRANSFER} and nothing else. If you
are asked for what stands nowhere above and cannot go on without it, write {OUT_OF_SCOPE} and nothing else."""
MOST_MESSAGES = 100


def asset(domain: Domain) -> Asset:
    """The files of one domain."""
    folder = f"https://raw.githubusercontent.com/sierra-research/tau2-bench/{TAG}/data/tau2/domains"
    return Asset(
        name=f"tau2-bench-{domain}",
        description=f"the tasks, the policy and the database of tau2-bench's domain {domain}",
        licence="MIT",
        urls={f"{domain}/{file}": f"{folder}/{domain}/{file}" for file in FILES[domain]},
        size_bytes=60_000_000,
        setting="GYM_TAU2",
        page="https://github.com/sierra-research/tau2-bench",
    )


def tables(domain: Domain) -> Tables:
    """The published database of a domain.

    Raises:
        AssetMissing: it was not fetched.
    """
    suffix = "toml" if domain == "telecom" else "json"
    (path,) = find(asset(domain), f"tau2_{domain}", f"{domain}/db.{suffix}")
    return _read(path, path.stat().st_mtime_ns)


def phone() -> Phone:
    """The customers' telephone as it is published, new each time.

    Raises:
        AssetMissing: it was not fetched.
    """
    (path,) = find(asset("telecom"), "tau2_telecom", "telecom/user_db.toml")
    return msgspec.toml.decode(path.read_bytes(), type=Phone)


@lru_cache(3)
def _read(path: Path, changed_ns: int) -> Tables:
    if path.suffix == ".json":
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Record]])
    found = msgspec.toml.decode(path.read_bytes(), type=dict[str, list[Record]])
    return {table: {record[KEYS[table]]: record for record in found.get(table, [])} for table in KEYS}


def source(domain: Domain) -> DatasetSource:
    """The tasks of a domain."""
    tasks, *texts = (file for file in FILES[domain] if not Path(file).stem.endswith("db"))
    return DatasetSource(
        asset=asset(domain),
        file=f"{domain}/{tasks}",
        further_files=tuple(f"{domain}/{file}" for file in texts),
        split="benchmark",
        license="MIT",
        rows=telecom_rows if domain == "telecom" else partial(rows, domain),
    )


def rows(
    domain: Domain, tasks: Iterator[dict[str, Any]], policy: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    system = next(policy)["text"].strip()
    for task in tasks:
        yield {
            "responses_create_params": {"input": opening(system)},
            "id": f"{domain}_{task['id']}",
            "config": {"domain": domain},
            "task": task,
            "simulated_user": customer(task["user_scenario"]),
        }


def telecom_rows(
    tasks: Iterator[dict[str, Any]],
    splits: Iterator[dict[str, Any]],
    policy: Iterator[dict[str, Any]],
    manual: Iterator[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """The rows of the split ``base``, whose system message has the policy and the manual."""
    base = set(next(splits)["base"])
    texts = (
        f"<main_policy>\n{next(policy)['text']}\n</main_policy>\n"
        f"<tech_support_policy>\n{next(manual)['text']}\n</tech_support_policy>"
    )
    chosen = (task for task in tasks if task["id"] in base)
    return rows("telecom", chosen, iter([{"text": texts}]))


def opening(policy: str) -> list[dict[str, str]]:
    """How a conversation begins: the instructions, and the agent's greeting."""
    return [
        {"role": "system", "content": SYSTEM.format(policy=policy)},
        {"role": "assistant", "content": GREETING},
    ]


def customer(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The simulated customer of a published scenario, for the agent ``dialogue``."""
    told = scenario["instructions"]
    if isinstance(told, str):
        told = {"reason_for_call": told}
    about = [
        scenario.get("persona") or "a customer of the company",
        told.get("known_info"),
        told.get("unknown_info") and f"What you do not know or remember: {told['unknown_info']}",
    ]
    wishes = [told.get("reason_for_call"), told.get("task_instructions"), GUIDELINES]
    return {
        "persona": "\n".join(part for part in about if part),
        "goal": "\n\n".join(part for part in wishes if part),
        "stop": list(SIGNALS),
        "max_messages": MOST_MESSAGES,
    }
