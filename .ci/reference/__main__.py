"""Writes what is made from the code, pages of docs/reference and a module: ``python .ci/reference``.

They are checked in, so that a change of the public surface shows in its review.
tests/docs/test_pages.py fails when one of them is out of date.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import command_line
import environments
import error_rates
import files
import keywords
import messages
import python_api

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
KEYWORDS = ROOT / "runtime" / "gym_runtime" / "messages" / "rollout_keywords.py"
WRITTEN = "Written by 'python .ci/reference'. Change the code or .ci/reference, not this"


def main() -> int:
    """Write the pages; with ``--check`` print what would change, and fail if anything would."""
    changed = False
    pages = {
        "command-line.md": command_line.page(),
        "error-rates.md": error_rates.page(),
        "python.md": python_api.page(),
        "files.md": files.page(),
        "messages.md": messages.page(),
        **environments.pages(),
    }
    made = {FOLDER / name: f"<!-- {WRITTEN} page. -->\n{page.rstrip()}\n" for name, page in pages.items()}
    made[KEYWORDS] = f"# {WRITTEN} module.\n{keywords.module()}"
    for path, new in made.items():
        old = path.read_text() if path.exists() else ""
        if new == old:
            continue
        changed, name = True, str(path.relative_to(ROOT))
        if "--check" in sys.argv:
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "new")
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
            print(f"wrote {name}")
    return int(changed and "--check" in sys.argv)


sys.exit(main())
