"""114 customers whose telephones do not work, each played by a model that operates one (tau2-bench, telecom).

The customer has tools as well, thirty of them: what the agent asks for is done on a telephone whose state
follows from its settings, the surroundings, and what the company knows of the line. Agent, roles, reward and
score are those of `tau2_airline`; most of these tasks are decided by ``ENV_ASSERTION``, that is by functions
such as ``assert_mobile_data_status`` that must answer as the task says. The customer's calls are part of the
state, but not of the transcript: only the agent is trained. The limit of 100 answers of the agent stands for
the authors' 200 steps of both; a customer that calls twenty tools in a row is a failure.

Rows are those of the split ``base``, with the policy and the manual of technical support. Different on
purpose: a customer's new draft of a bill has a name of its own, not a random one, so that databases can be
compared. Source: see `tau2_airline`; the example rows and their small database are our own.
"""

from __future__ import annotations

from msgspec.structs import replace

from gym_resources.benchmarks import tau2_airline
from gym_resources.tau2 import published
from gym_resources.tau2.telecom import Telecom

environment = replace(
    tau2_airline.environment,
    resource=Telecom,
    description="Help customers whose telephones do not work, and who operate them (tau2-bench).",
    agent="step_loop",
    assets=(published.asset("telecom"),),
    datasets=(published.source("telecom"),),
)
