"""The functions of TRL's NeMo Gym example (TRL 0.28 to 1.5), unchanged; the trainer around them is left out.

    python trl_example.py EXAMPLE.py HEAD_PORT ROWS.jsonl GENERATIONS    prints what the trainer would get

EXAMPLE.py is ``examples/scripts/nemo_gym/train_multi_environment.py`` of TRL's repository, before 1.6.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

example, port, rows, generations = sys.argv[1:]


class Unused:
    """A name that the example imports for its `main`."""


for name, attributes in (
    ("trl", ("GRPOConfig", "GRPOTrainer")),
    ("transformers", ("AutoTokenizer",)),
    ("datasets", ("Dataset", "load_dataset")),
):
    module = ModuleType(name)
    for attribute in attributes:
        setattr(module, attribute, Unused)
    sys.modules[name] = module

spec = importlib.util.spec_from_file_location("trl_nemo_gym", example)
assert spec is not None
assert spec.loader is not None
trl: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trl)

lines = Path(rows).read_text().splitlines()
trainer = SimpleNamespace(
    model=SimpleNamespace(training=True),
    train_dataset=[{"metadata": line} for line in lines],
    eval_dataset=None,
    processing_class=SimpleNamespace(eos_token_id=1),
    log=lambda figures: None,
    args=SimpleNamespace(
        num_generations=int(generations),
        num_generations_eval=None,
        agent_servers=trl.get_agent_servers("127.0.0.1", int(port)),
        request_timeout=60,
        max_completion_length=64,
        temperature=1.0,
        top_p=1.0,
    ),
)
found = trl.nemo_gym_rollout_func([str(index) for index in range(len(lines))], trainer)
print("RESULT " + json.dumps(found))
