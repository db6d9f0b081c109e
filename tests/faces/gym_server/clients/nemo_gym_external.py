"""Run by NeMo Gym's own Python: its parser, head server and collector, with our agents as external ones.

That is what NeMo RL does (`nemo_rl.environments.nemo_gym`), except that it starts further servers.

    python nemo_gym_external.py AGENTS.yaml ROWS.jsonl    prints each result as a line of JSON
"""

import asyncio
import json
import socket
import sys
from pathlib import Path

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import HeadServer
from omegaconf import OmegaConf

agents, rows = sys.argv[1:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    head = {"host": "127.0.0.1", "port": free.getsockname()[1]}
model = {"policy_base_url": "", "policy_api_key": "", "policy_model_name": ""}
get_global_config_dict(
    global_config_dict_parser_config=GlobalConfigDictParserConfig(
        skip_load_from_cli=True,
        skip_load_from_dotenv=True,
        initial_global_config_dict=OmegaConf.create({"config_paths": [agents], "head_server": head, **model}),
    )
)
server, thread, _ = HeadServer.run_webserver()

examples = [json.loads(line) for line in Path(rows).read_text().splitlines()]


async def main() -> None:
    results = RolloutCollectionHelper().run_examples(
        examples=examples, head_server_config=BaseServerConfig(**head)
    )
    for future in results:
        row, result = await future
        print("RESULT " + json.dumps({"row": row["_rowidx"], "result": result}), flush=True)


while not server.started:
    thread.join(0.01)
asyncio.run(main())
server.should_exit = True
thread.join()
