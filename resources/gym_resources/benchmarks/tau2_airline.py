"""50 customers of an airline, each played by a model, whom an agent helps with tools (tau2-bench, airline).

A model in the role ``user`` plays the customer (agent ``dialogue``). The agent has the authors' policy as its
system message and tools that read and change a database of flights, users and reservations. A published task
says in its ``reward_basis`` what must hold at the end, and the reward is 1 if all of it does, else 0:

- ``DB``: the database is as the task's ``actions`` leave it, whatever way led there;
- ``COMMUNICATE``: each text of ``communicate_info`` stands in a message to the customer;
- ``ACTION``: each of ``actions`` is among the calls;
- ``NL_ASSERTION``: a model in the role ``judge`` finds each of ``nl_assertions`` true.

As for the authors, it is 0 too if the conversation did not end by the customer's signal, or if ten calls
failed; a call with an argument that its tool does not have fails. Here a judge is asked one statement at a
time, and only where the rest holds; without one, ``--set use_judge=false`` leaves its part out, as NeMo Gym
does. The score is the authors' pass^k, of four attempts at each task. The limit of 100 answers stands for
theirs of 200 steps.

Tools, names and effects are those of the authors' program; code, descriptions and errors are our own, and the
customer's instructions are theirs in our own words. Different on purpose: a connection whose second flight is
on the next day is found on every date; a record leaves out what is not set; a customer also hears what
the agent says beside a call. Not here: speech, and tasks that begin with a ``message_history`` or
``initialization_data``, which are refused.
Source: Barres et al. 2025, arXiv:2506.07982, github.com/sierra-research/tau2-bench (MIT), see
`gym_resources.tau2.published`. The example rows and their small database are our own.
"""

from __future__ import annotations

from gym_runtime import Benchmark, Environment, Role

from gym_resources.benchmarks.scoring.reliability import pass_hat
from gym_resources.tau2 import published
from gym_resources.tau2.airline import Airline

environment = Environment(
    resource=Airline,
    description="Serve customers of an airline with tools and a policy; a model plays them (tau2-bench).",
    domain="agent",
    agent="dialogue",
    max_turns=100,
    repeats=4,
    roles=("user", Role(name="judge", optional=True)),
    benchmark=Benchmark(score=pass_hat),
    data_license="MIT",
    agent_refs=("tau2_agent", "tau2_benchmark_agent"),  # the rows say which domain is theirs
    assets=(published.asset("airline"),),
    datasets=(published.source("airline"),),
)
