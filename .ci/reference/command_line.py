"""The command line, from the application itself."""

from __future__ import annotations

import re

from gym_runtime.cli.app import application

INTRODUCTION = """# Command line

Exit status: 0 it worked; 1 it did not; 2 something was asked that cannot be (an option, a name, a file, a
row, a broker that does not answer or refuses the password); 130 Ctrl-C.
Errors are one line on standard error.
`--json` prints one JSON document for programs. Every command has `--help`.
`gym-runtime --install-completion` sets up completion in bash, zsh and fish.
"""


def page() -> str:
    """The page."""
    text = application().generate_docs(output_format="markdown")
    text = text[text.index("**Make rollouts**") :]
    text = re.sub(r"## gym-runtime --install-completion\n.*?(?=## gym-runtime run)", "", text, flags=re.S)
    text = re.sub(r"\n {4}(?=\S)", " ", text)  # a help text in several lines is one paragraph
    text = text.replace("## gym-runtime ", "## ").replace("#gym-runtime-", "#")
    text = re.sub(r" \*\[default: (?:False|\(\))\]\*", "", text)
    return INTRODUCTION + "\n" + text
