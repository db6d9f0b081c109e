"""Workers: the processes that host agents, resources and models, and the way between them.

`router` is the caller's side of a hop, `service` the server's; `agent`, `resource` and `model` are what
each kind of worker does; `process` is the life of one worker process.
"""
