"""114 customers of a shop, each played by a model, whom an agent helps with tools (tau2-bench, retail).

Agent, roles, reward and score are those of `tau2_airline`. Many of these tasks have statements that a judge
checks. Different on purpose: if several items of a pending order are exchanged at once, each gets the price
and the options of its own new variant, where the authors' program gives all of them those of the last one.
Source: see `tau2_airline`; the example rows and their small database are our own.
"""

from __future__ import annotations

from msgspec.structs import replace

from gym_resources.benchmarks import tau2_airline
from gym_resources.tau2 import published
from gym_resources.tau2.retail import Retail

environment = replace(
    tau2_airline.environment,
    resource=Retail,
    description="Serve customers of a shop with tools and a policy; a model plays them (tau2-bench).",
    assets=(published.asset("retail"),),
    datasets=(published.source("retail"),),
)
