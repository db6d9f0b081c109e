"""The NeMo Gym taskset that verifiers ships (prime-rl trains on it): its own HTTP, tools and rewards.

    python verifiers_taskset.py RESOURCES_URL ROWS.jsonl 'CALLS' ANSWER    prints the reward

CALLS is a JSON list of [tool, arguments]; ANSWER is the model's last message.
"""

import asyncio
import json
import sys
from pathlib import Path

from verifiers.v1.graph import MessageNode
from verifiers.v1.tasksets.nemo_gym import NeMoGymConfig, NeMoGymTaskConfig, NeMoGymTaskset
from verifiers.v1.tasksets.nemo_gym.toolset import NeMoGymState
from verifiers.v1.trace import Trace
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, UserMessage

url, rows, calls, answer = sys.argv[1:]


async def main() -> None:
    config = NeMoGymConfig(dataset=Path(rows), task=NeMoGymTaskConfig(resources_url=url))
    (task,) = NeMoGymTaskset(config).load()
    trace = Trace.model_construct(state=NeMoGymState(), id="t1", nodes=[], rewards={}, metrics={}, info={})

    def say(message, sampled=False) -> None:
        parent = len(trace.nodes) - 1 if trace.nodes else None
        trace.nodes.append(MessageNode(parent=parent, message=message, sampled=sampled))

    say(UserMessage(content="go"))
    await task.setup(trace, None)
    for number, (name, arguments) in enumerate(json.loads(calls)):
        call = ToolCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))
        say(AssistantMessage(content=None, tool_calls=[call]), sampled=True)
        output = await trace.state.post(name, arguments)
        say(ToolMessage(tool_call_id=call.id, content=output.text))
    say(AssistantMessage(content=answer), sampled=True)
    reward = await task.nemo_gym(trace)
    print("RESULT " + json.dumps({"reward": reward, "metrics": trace.metrics}))


asyncio.run(main())
