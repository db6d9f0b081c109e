"""Software issues: write the patch that solves one (``mode`` ``eval``), or a script that reproduces one
(``mode`` ``repro-gen``).

A patch is written as SEARCH/REPLACE edits of the files in ``metadata.relevant_file_contents``, within
``<solution>`` tags (`gym_resources.swe.edits`); text before the last ``</think>`` is ignored. It is applied
in a new container, where the row's tests run: the reward is 1 if all of ``FAIL_TO_PASS`` and
``PASS_TO_PASS`` pass, 0.2 if some of the first and all of the second do. With ``partial_similarity``, a patch
that earns less than 0.2 earns 0.2 times its similarity to the perfect one. Changes of tests, and of what
configures their runner, are not applied (`gym_resources.swe.patches`).

A script is the last Python block. It must end with 2 before the perfect patch is applied and with 0 after it
(`gym_resources.swe.reproduction`); the reward is 1 or 0.

The container is made of the row's image, or, for a row with ``instance.files``, of these files in a sandbox.
A container that does not start, and a set-up that fails, fail the rollout.
Source: the rule of NeMo Gym's ``swerl_gen``, whose rows are made from SWE-Gym (github.com/SWE-Gym/SWE-Gym,
MIT); the example rows, and those that ``generate`` makes, are our own.
"""

from __future__ import annotations

import base64
from typing import Literal

import msgspec
from anyio import to_thread
from gym_runtime import Environment, Reply, Task, TaskError, Verdict, run_isolated
from gym_runtime.errors import UNREADABLE

from gym_resources.swe import edits, local_rows
from gym_resources.swe.instances import Instance
from gym_resources.swe.patch_evaluation import evaluate
from gym_resources.swe.patches import similarity
from gym_resources.swe.reproduction import reproduce

PARTIAL = 0.2
SIMILARITY_CHARS = 50_000
SIMILARITY_LIMIT_S = 20.0
OUTPUT_CHARS = 100_000
REWARDS = {"RESOLVED_FULL": 1.0, "RESOLVED_PARTIAL": PARTIAL, "RESOLVED_NO": 0.0}


class Metadata(msgspec.Struct):
    relevant_file_contents: str | dict[str, str] = {}
    image: str = ""


class SwerlTask(Task):
    instance: Instance
    metadata: Metadata
    mode: Literal["eval", "repro-gen"] = "eval"
    partial_similarity: bool = False
    relaxed_formatting: bool = False
    sandbox_timeout: float = 900.0

    @property
    def relevant_files(self) -> dict[str, str]:
        found = self.metadata.relevant_file_contents
        if not isinstance(found, str):
            return found
        try:
            return msgspec.json.decode(found, type=dict[str, str])
        except UNREADABLE as error:
            raise TaskError(f"metadata.relevant_file_contents: {error}") from error


async def verify(task: SwerlTask, reply: Reply) -> Verdict:
    text = reply.lines_text
    if task.mode == "repro-gen":
        return await verify_script(task, text)
    patch = await to_thread.run_sync(_patch, task, text)
    if patch is None:
        return Verdict(0.0, fields={"model_patch": None, "model_output": text[:OUTPUT_CHARS]})
    found = await evaluate(task.instance, task.metadata.image, patch, task.sandbox_timeout)
    reward, components = REWARDS[found.resolution], dict[str, float]()
    if task.partial_similarity and reward < PARTIAL:
        components["similarity"] = await _similarity(patch, task.instance.patch)
        reward = PARTIAL * components["similarity"]
    fields = {
        "verification_result": msgspec.to_builtins(found),
        "model_patch": patch,
        "model_output": text[:OUTPUT_CHARS],
    }
    return Verdict(reward, components, fields)


async def verify_script(task: SwerlTask, text: str) -> Verdict:
    """The verdict on a script that should reproduce the issue."""
    script = await to_thread.run_sync(edits.last_block, text.rpartition("</think>")[2])
    output = text[:OUTPUT_CHARS]
    if script is None:
        return Verdict(0.0, fields={"repro_test_info_base64": None, "model_output": output})
    ran = await reproduce(task.instance, task.metadata.image, script, task.sandbox_timeout)
    fields = {
        "verification_result": {
            "return_codes_before_patch": [ran.before],
            "return_codes_after_patch": [ran.after],
        },
        "repro_test_info_base64": base64.b64encode(script.encode("utf-8", "replace")).decode(),
        "model_output": output,
    }
    return Verdict(float(ran.reproduced), fields=fields)


def _patch(task: SwerlTask, text: str) -> str | None:
    return edits.patch_of(text, task.relevant_files, relaxed=task.relaxed_formatting)


async def _similarity(patch: str, gold: str) -> float:
    """0 where the patches are too long to be compared, or comparing them takes too long."""
    if max(len(patch), len(gold)) > SIMILARITY_CHARS:
        return 0.0
    try:
        return await run_isolated(similarity, patch, gold, timeout_s=SIMILARITY_LIMIT_S)
    except TimeoutError:
        return 0.0


environment = Environment(
    resource=verify,
    description="Solve a software issue with a patch, or reproduce it with a script; tests decide.",
    domain="coding",
    data_license="MIT",
    extra="sandbox",
    timeout_s=3600.0,
    generate=local_rows.swerl_rows,
)
