"""97 customers of a bank, whose rules and tools stand in 698 documents (tau2-bench, banking_knowledge).

The fourth domain of tau2-bench, also called tau3 or tau-Knowledge. Agent, roles and score are those of
`tau2_telecom`; what decides is almost always the database. The customer has tools of its own, such as an
application for a credit card. Most of the bank's tools stand in the documents only: the agent unlocks one by
its name and calls it through another tool, or gives one to the customer. These calls are part of the state;
calls that only read are noted where the task expects them.

A row's ``config.retrieval_config`` says how the agent gets at the documents, by the authors' names:
``bm25_grep`` (the default), ``bm25``, ``grep_only``, ``terminal_use`` (a shell in a sandbox; nothing that it
writes stays), ``golden_retrieval`` and ``full_kb`` (in the prompt), ``no_knowledge``. ``prepare
tau2_banking:NAME`` makes the rows of another one than the default. Those that need a model of embeddings, a
language model that ranks, or a shell that keeps what it writes are refused; ``--set retrieval=NAME`` runs
such a row in another way. NeMo Gym's rows, which say only in ``task.user_scenario`` who the customer is,
run as they are.

Tools, names, conditions and effects are those of the authors' program, version 1.0.1; code, descriptions and
answers are our own, as JSON. A call that the bank refuses is no failed call, as for the authors. Different on
purpose: arguments are checked against the declared types, and a number or truth value written as a text
counts as such; a search shows documents that share a word with the query only, and says no time; a shell
begins in the folder each time. The
published tasks, documents and prompts were not played: they are in the authors' repository only.
Source: see `gym_resources.tau2.banking_published` (MIT). The example rows, their documents and their small
database are our own.
"""

from __future__ import annotations

from msgspec.structs import replace

from gym_resources.benchmarks import tau2_telecom
from gym_resources.tau2 import banking_published
from gym_resources.tau2.banking import Banking

environment = replace(
    tau2_telecom.environment,
    resource=Banking,
    description="Serve customers of a bank by a library of documents that also names the tools (tau2-bench).",
    assets=(banking_published.ASSET,),
    datasets=banking_published.sources(),
)
