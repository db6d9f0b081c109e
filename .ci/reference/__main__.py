"""Writes the pages of docs/reference that are made from the code: ``python .ci/reference``.

The pages are checked in, so that a change of the public surface shows in its review.
tests/docs/test_pages.py fails when one of them is out of date.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import command_line
import environments
import files
import messages
import python_api

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
NOTICE = "<!-- Written by 'python .ci/reference'. Change the code or .ci/reference, not this page. -->\n"


def main() -> int:
    """Write the pages; with ``--check`` print what would change, and fail if anything would."""
    changed = False
    pages = {
        "command-line.md": command_line.page(),
        "python.md": python_api.page(),
        "files.md": files.page(),
        "messages.md": messages.page(),
        **environments.pages(),
    }
    for name, page in pages.items():
        path, new = FOLDER / name, NOTICE + page.rstrip() + "\n"
        old = path.read_text() if path.exists() else ""
        if new == old:
            continue
        changed = True
        if "--check" in sys.argv:
            sys.stdout.writelines(
                difflib.unified_diff(
                    old.splitlines(True), new.splitlines(True), f"docs/reference/{name}", "new"
                )
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
            print(f"wrote docs/reference/{name}")
    return int(changed and "--check" in sys.argv)


sys.exit(main())
