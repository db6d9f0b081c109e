"""What every environment costs without a model: ``python tests/bench/environments.py [seconds per one]``."""

from __future__ import annotations

import sys

from gym_runtime.cli import main

if __name__ == "__main__":
    seconds = sys.argv[1] if len(sys.argv) > 1 else "1"
    sys.exit(main.run(["bench", "--all", "--seconds", seconds]))
