"""Guests that are Python code: they are played in sandboxed forks, never in the worker.

`episode.PlayedEpisode` is the worker's side. For each turn it has a new fork play the whole rollout from its
start (`script.Script`), with the answers that models have given so far. A fork that needs one more answer
tells what it asks and ends. So the answers are the only state: a session that is lost with its worker is
rebuilt from the journal, a text that takes over its fork finds no other rollout there, and the event loop
waits for no guest.
"""
