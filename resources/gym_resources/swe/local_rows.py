"""Rows of local repositories, in the forms of both environments; the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_resources.swe.making import Repository, repositories

STATEMENT = """\
{report}

For example, `{call}` {wrong}, but it should return `{value}`.
The function is in the package `{package}`.
"""
EVAL = """\
An issue was reported for a Python repository. Solve it by changing the code below.

<issue>
{statement}
</issue>

<code>
{code}
</code>

Find the cause first. Then write your changes as edits within <solution> and </solution>: for each changed
file one block that begins with ```python, whose first line is ### and the file's path. An edit is a line
<<<<<<< SEARCH, lines that stand in the file exactly like this, a line =======, the lines that take their
place, and a line >>>>>>> REPLACE. Keep the indentation.
"""
REPRODUCE = """\
An issue was reported for a Python repository.

<issue>
{statement}
</issue>

<relevant_files>
{code}
</relevant_files>

Write a Python script that shows whether the issue is there. It is run in the repository's folder, and must
end with exit code 2 while the issue is there, and with exit code 0 when it is solved: call sys.exit. Write
the script as one block that begins with ```python.
"""


def swerl_rows(size: int, seed: int, mode: str = "") -> Iterator[dict[str, Any]]:
    """Rows of ``swerl_gen``; ``mode`` is ``eval``, ``repro-gen``, or "" for both in turn."""
    for number, repository in enumerate(repositories(size, seed)):
        chosen = mode or ("eval", "repro-gen")[number % 2]
        relevant = {repository.module: repository.files[repository.module]}
        code = "\n".join(f"[start of {path}]\n{text}[end of {path}]" for path, text in relevant.items())
        prompt = EVAL if chosen == "eval" else REPRODUCE
        content = _filled(prompt, statement=_statement(repository), code=code)
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": content}]},
            "instance": _instance(repository),
            "metadata": {"relevant_file_contents": relevant},
            "mode": chosen,
            "agent_ref": {"type": "responses_api_agents", "name": "swerl_gen_simple_agent"},
        }


def agent_rows(size: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of ``mini_swe_agent``."""
    for repository in repositories(size, seed):
        yield {
            "responses_create_params": {"input": []},
            **_instance(repository),
            "subset": "local",
            "agent_ref": {"type": "responses_api_agents", "name": "mini_swe_simple_agent"},
        }


def _instance(repository: Repository) -> dict[str, Any]:
    return {
        "instance_id": repository.name,
        "repo": repository.name,
        "problem_statement": _statement(repository),
        "patch": repository.patch,
        "FAIL_TO_PASS": repository.fail_to_pass,
        "PASS_TO_PASS": repository.pass_to_pass,
        "files": repository.files,
        "checks": repository.checks,
    }


def _statement(repository: Repository) -> str:
    check = repository.checks[repository.fail_to_pass[0]]
    return _filled(
        STATEMENT,
        report=repository.report,
        call=repository.call,
        wrong=_shown(repository.returned),
        value=repr(check["value"]),
        package=check["call"].rpartition(".")[0],
    ).strip()


def _shown(returned: Any) -> str:
    if isinstance(returned, dict) and "raised" in returned:
        return f"raises {returned['raised']}"
    return f"returns `{returned!r}`"


def _filled(template: str, **values: str) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template
