"""For each instruction: arguments, texts that follow it, and texts that do not."""

from __future__ import annotations

from resources.instructions.ifbench_cases import IFBENCH_CASES
from resources.instructions.ifeval_cases import IFEVAL_CASES
from resources.instructions.iftrain_cases import IFTRAIN_CASES
from resources.instructions.verifif_cases import VERIFIF_CASES

CASES = {**IFEVAL_CASES, **IFTRAIN_CASES, **IFBENCH_CASES, **VERIFIF_CASES}
