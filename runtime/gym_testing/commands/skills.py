"""``skills``: guides for coding assistants."""

from __future__ import annotations

from pathlib import Path

from gym_runtime.cli import terminal
from gym_runtime.errors import UsageError

from gym_testing.skills import skills as found


def skills(name: str = "", /, *, write: Path | None = None) -> None:
    """List guides that a coding assistant can follow: new environment, new judge, audit, port from NeMo Gym.

    Args:
        name: Print this guide.
        write: Put all guides into this folder, as NAME/SKILL.md, such as .claude/skills or .codex/skills.
            Guides of these names that are there are replaced.
    """
    guides = {skill.name: skill for skill in found()}
    console = terminal.output()
    if name:
        skill = guides.get(name) or guides.get(f"gym-runtime-{name}")
        if skill is None:
            raise UsageError(f"there is no guide '{name}'; there are {', '.join(guides)}")
        print(skill.text, end="")
        return
    for skill in guides.values():
        if write is None:
            console.print(f"{skill.name}: {skill.description}", soft_wrap=True)
            continue
        path = write / skill.name / "SKILL.md"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(skill.text, "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        console.print(f"wrote {path}", soft_wrap=True)
