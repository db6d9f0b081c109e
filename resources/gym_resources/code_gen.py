"""Programming problems: a Python program must give the right output on every test.

The program is the text between the last two lines with three backticks in the model's text; without two such
lines the program is missing. ``verifier_metadata.unit_tests`` holds ``inputs`` and ``outputs``: of a program
its standard input and output, or, with ``fn_name``, of that function (or method of ``Solution``) the
arguments as JSON, one a line, and the returned value. Outputs are compared line by line without the space
around them, as text or else as decimal numbers; values by `gym_resources.code.output_comparison.same_value`.
The reward is 1 if all tests pass, each within 10 seconds, all n within 11 n + 5. A text with ``<think>`` or
``</think>`` in it (reasoning that the engine did not separate) scores 0.

Rows, limits and rewards are those of NeMo Gym's environment of this name. Here the program runs in a sandbox.
A process runs several tests, as a new program each; a test that fails there decides nothing, and is repeated
in a process of its own, so that no effect of another test can fail it. It runs as a script, so that global
variables, `sys.stdout.buffer`, threads and exit handlers work; without a sandbox the rollout fails.
Source: the rule of NeMo Gym's ``code_gen``, after LiveCodeBench (MIT); the rows are our own.
"""

from __future__ import annotations

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict, published

TEST_LIMIT_S = 10.0
FENCE = "```"
TAGS = ("<think>", "</think>")
MALFORMED_REWARD = 0.0


class UnitTests(msgspec.Struct):
    inputs: list[str]
    outputs: list[str]
    fn_name: str | None = None

    def __post_init__(self) -> None:
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise ValueError(f"{len(self.inputs)} inputs and {len(self.outputs)} outputs")


class VerifierMetadata(msgspec.Struct):
    unit_tests: UnitTests


class CodeTask(Task):
    verifier_metadata: VerifierMetadata


def last_block(text: str) -> str:
    """The lines between the last two with a fence; empty without two."""
    end = text.rfind("\n", 0, max(text.rfind(FENCE), 0)) + 1
    opening = text.rfind(FENCE, 0, end)
    return text[text.find("\n", opening) + 1 : max(end - 1, 0)] if opening >= 0 else ""


async def verify(task: CodeTask, reply: Reply) -> Verdict:
    from gym_resources.code.program_tests import Case, run_tests

    text, tests = reply.joined_text, task.verifier_metadata.unit_tests
    code = last_block(text)
    if any(tag in text for tag in TAGS):
        return Verdict(MALFORMED_REWARD, fields={"extracted_model_code": code, "result": "malformed"})
    if not code.strip():
        return Verdict(0.0, fields={"extracted_model_code": None, "result": "no code"})
    outcome = await run_tests(
        code,
        [Case(given, expected) for given, expected in zip(tests.inputs, tests.outputs, strict=True)],
        function=tests.fn_name,
        test_limit_s=TEST_LIMIT_S,
        packages=("numpy",),
    )
    return Verdict(
        float(outcome.status == "passed"),
        fields={"extracted_model_code": code, "result": outcome.status, "tests_passed": outcome.passed},
    )


environment = Environment(
    resource=verify,
    description="Programming problems, graded by running the program on tests in a sandbox.",
    domain="coding",
    data_license="CC-BY-4.0 (OpenCodeReasoning), MIT (LiveCodeBench)",
    extra="sandbox",
    datasets=published(
        "nvidia/Nemotron-RL-coding-competitive_coding",
        "CC-BY-SA-4.0",
        train="opencodereasoning_filtered_25k_train.jsonl",
        validation="",
    ),
)
