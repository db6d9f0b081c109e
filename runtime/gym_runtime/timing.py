"""The delays of the runtime: unit, reason, and what needs each.

Units are seconds. The assertions state how they depend on each other; a change that breaks one breaks a
guarantee in docs/explanation/guarantees.md. Three kinds stand elsewhere: the limits of a sandbox in
`gym_sandbox`, what only the display of a command needs in `gym_runtime.cli.display`, and what belongs
to one engine or environment in its module.
"""

from __future__ import annotations

# -- liveness (`gym_runtime.rpc.watch`) -----------------------------------------------------------

MEMBER_ASKED_S = 2.5
"""How often a watcher asks a member that answers. The broker's load is inversely proportional to it: each
question is four messages, two in and two out."""

MEMBER_ANSWER_S = 1.0
"""How long a watcher waits for an answer. Longer than anything may block a worker's event loop (50 ms), with
room for a busy machine."""

MEMBER_AGAIN_S = 1.25
"""The pause before a member is asked again, after the broker answered that no process listens."""

MEMBER_MISSES = 3
"""Questions in a row without an answer until a member is gone. A worker whose connection broke is back
within `RECONNECTED_S`, and must not be declared gone before."""

MEMBER_GONE_S = MEMBER_ASKED_S + MEMBER_MISSES * MEMBER_ANSWER_S
"""The longest time until a frozen worker is declared gone: the "4 to 6 s" of the guarantees. A killed worker
is gone a little sooner; a caller that asks it notices at once, because the broker answers that no process
listens. Where a worker's watcher dies with it, the watcher's end must be noticed first, so that it takes
twice as long."""

RECONNECTED_S = 2.0
"""The longest pause before a broken connection is dialled again (`gym_runtime.bus.link`)."""

OUTAGE_S = 15.0
"""A worker that is lost so soon after its caller has connected again was probably cut off by the same outage
of the broker: no call of it is suspected to have ended it. Longer than the worker takes to connect again, and
its watcher to declare it gone."""

UNASKED_S = 5.0
"""A member that no follower asked for so long announces itself again: its announcement was lost, or it was
declared gone while it was cut off. Longer than `MEMBER_ASKED_S` plus what a change of watchers takes."""

ROLL_CALL_S = 1.0
"""How long the answers to a roll call are awaited, where no follower has the list."""

STATE_CHECKED_S = 1.0
"""How often a member compares its state with the announced one. Callers learn of draining and of new weights
up to this much later."""

SLOW_LINK_S = 0.3
"""A worker whose pings to the broker take longer gets less work, the less the longer they take. Longer than a
round trip between continents."""

CALLERS_GONE_S = 1.5
"""A worker that drains gives up its sessions when no caller has been there for so long. Longer than an
agent worker needs to connect again in the usual case."""

assert MEMBER_GONE_S <= 6.0, "the guarantees promise 6 s"
assert MEMBER_ASKED_S + (MEMBER_MISSES - 1) * MEMBER_AGAIN_S <= MEMBER_GONE_S
assert (MEMBER_MISSES - 1) * MEMBER_AGAIN_S > RECONNECTED_S, "a reconnecting worker would be declared gone"
assert UNASKED_S > MEMBER_ASKED_S + MEMBER_ANSWER_S, "members would announce themselves without need"

# -- the client of an attached run (`gym_runtime.workers.guards`) ---------------------------------

CLIENT_ASKED_S = 0.4
"""How often the client of an attached run is asked. Tasks must stop within 2 s when its process dies."""

CLIENT_MISSES = 4
"""Times in a row that the broker answers that the client does not listen, until the client counts as
lost. Silence does not count: a trainer may block its event loop for as long as a training step takes."""

CLIENT_RETURN_S = 5.0
"""After how long a task is delivered again whose client was gone. Longer than a usual reconnection."""

CLIENT_DROPPED_S = 30.0
"""A client that was gone for so long has probably left, and its tasks leave the queue for its run's own."""

CLIENT_PARKED_S = 10.0
"""How often a client looks for tasks of its run that left the queue while it was cut off."""

assert CLIENT_ASKED_S * CLIENT_MISSES < 2.0, "tasks must stop within 2 s"
assert CLIENT_DROPPED_S > 4 * CLIENT_RETURN_S, "a client that returns finds its tasks"

# -- tasks (`Bus.pull`) ---------------------------------------------------------------------------------

TASK_ACK_WAIT_S = 6.0
"""A delivered task that its worker does not keep alive is delivered again after so long: the other part of
"4 to 6 s". Not shorter than `MEMBER_GONE_S`: a frozen agent worker should be known to be gone when another
one takes over its tasks."""

assert MEMBER_GONE_S <= TASK_ACK_WAIT_S

JOURNAL_READ_S = 10.0
"""How long one read of a journal, or of a run's results, may take until its entries are counted again."""

JOURNAL_FRESH_S = 6.0
"""An attempt that stored a turn within this time still has its task (`gym_runtime.rollout.journal`), because
the broker does not deliver the task again earlier. After a longer time its worker may have been frozen, and
the attempt asks the broker before its result is committed."""

assert JOURNAL_FRESH_S <= TASK_ACK_WAIT_S, "a worker that was frozen would commit a result it should check"

# -- answers that are lost (`gym_runtime.rpc.lost`) ------------------------------------------------

IN_FLIGHT_FIRST_S = 5.0
"""After how long the worker is first asked whether it works on a request. Most answers come sooner."""

# -- one request (`gym_runtime.rpc.ask`) -------------------------------------------------------------

RETRY_PAUSE_S = (0.02, 2.0)
"""The first and the longest pause before a refused request is repeated; it doubles, with jitter."""

PLACE_KEPT_S = 5.0
"""How long a worker keeps a place for a suspect call that has not arrived, and itself for a call that must be
alone there (`gym_runtime.rpc.quarantine`). Longer than the longest pause of the router that asks again."""

assert 1.5 * RETRY_PAUSE_S[1] < PLACE_KEPT_S, (
    "a suspect would lose its place before it is asked again (jitter 1.5)"
)

REPLACED_S = 10.0
"""How long a call whose worker ended with it alone waits for the worker that replaces it, to learn what ended
the lost one. A supervisor starts one within a few seconds."""

# -- sessions (`gym_runtime.workers.sessions`, `gym_runtime.workers.resource_worker`) ---------------------

SESSIONS_SWEPT_S = 15.0
"""How often a resource worker looks for sessions to close: overdue ones, and those whose rollout is over."""

# -- the end of a worker (`gym_runtime.system.worker_process`) ------------------------------------------

ORPHAN_DRAIN_S = 1.0
"""How long a worker whose supervisor is gone may drain: it must not outlive its supervisor for long."""

HASTY_KILL_S = 3.0
"""When a supervisor must stop within seconds (its owner is gone): how long after the workers' pipe was closed
it kills those that still run. Longer than `ORPHAN_DRAIN_S`, so that they can give their tasks back."""

assert HASTY_KILL_S > ORPHAN_DRAIN_S, "workers would be killed before they have given their tasks back"

# -- the connection to the broker (`gym_runtime.bus.link`) ----------------------------------------

CONNECT_TIMEOUT_S = 2
"""How long one address may take to connect and say what it is, before the next address is tried."""

GREETING_S = 5
"""How long the rest of a greeting may take. With TLS it is six round trips, which is too much for
`CONNECT_TIMEOUT_S` between continents, or where packets are lost."""

assert OUTAGE_S > CONNECT_TIMEOUT_S + GREETING_S + RECONNECTED_S + MEMBER_GONE_S, (
    "calls are suspected for an outage"
)

PING_INTERVAL_S = 5
"""The interval of pings. A dead peer is noticed after two unanswered ones."""

RECONNECT_S = (0.05, RECONNECTED_S)
"""The first and the longest pause between two rounds of dialling; it doubles, with jitter."""

# -- what the broker stores (`gym_runtime.bus.streams`) -------------------------------------------------

PATIENCE_S = 60.0
"""How long storing is tried while the broker is silent or full. Then the rollout or the run fails with that
reason."""

STORE_LOOK_S = 5.0
"""How often a broker of ours is asked whether it stores, to be started again when there is space."""

API_ANSWER_S = 5.0
"""How long a request to JetStream's API waits for its answer."""

# -- reading streams, pulling tasks (`gym_runtime.bus.puller`, `gym_runtime.bus.stream_reader`) -----------

EXPIRES_S = 30.0
"""A pull lives half as long as the wait for an acknowledgement, and this long at most: when the tasks of a
frozen worker are delivered again, its open pulls must be gone, or it would get them back."""

HEARTBEAT_S = 5.0
"""How often the broker says that an open pull is alive; without it the pull is repeated."""

RELEASE_S = (0.0, 0.2, 1.0, 5.0)
"""How long a task is put back for after its 1st, 2nd, … failed delivery."""

# -- rollouts (`gym_runtime.rollout`, `gym_runtime.workers`) --------------------------------------------

GIVE_BACK_S = 2.0
"""How long a worker that stops may take to note that it gives a task back."""

# -- clients (`gym_runtime.client`) ---------------------------------------------------------------------

WORKERS_LOOK_S = 1.0
"""The interval at which a client checks whether the workers that it commanded are alive, or back."""

WORKERS_BACK_S = 600.0
"""How long a trainer waits for engines that died; loading a large model takes minutes."""

CLIENT_ANSWER_S = 2.0
"""How long another client is given to answer that it still has a run."""

FLUSH_S = 0.2
"""How long a row may be in memory before it is written to its file."""

# -- processes (`gym_runtime.system`, `gym_sandbox.processes`) ------------------------------------------

STAND_IN_S = 1.0
"""After how long a thread answers for a blocked event loop (`gym_runtime.system.watchdogs`)."""

assert STAND_IN_S + MEMBER_ANSWER_S < MEMBER_MISSES * MEMBER_ANSWER_S, (
    "a worker would be declared gone before its stand-in answers"
)

EXPORT_STOP_S = 2.0
"""How long the end of a process waits for a collector of traces."""

# -- the gateway's HTTP (`gym_faces.gateway`) ---------------------------------------------------------

RETRY_AFTER_S = 1.0
"""What `Retry-After` says when the gateway is full."""

HEADERS_S = 30.0
"""How long a connection may stay without the whole headers of its next request. Longer than clients keep an
idle connection (aiohttp 15 s, httpx 5 s), so that they close it and no request meets a closed one."""

WRITE_S = 60.0
"""How long a client may leave a stream unread."""

# -- trainers' own engines (`gym_trainers`) ------------------------------------------------------

TRAINER_DRAIN_S = 1800.0
"""How long a trainer that is asked to leave may go on with the rollouts that it has begun: as long as a
rollout may take by default. No other worker can answer for its engine."""

# -- NeMo Gym's HTTP face (`gym_faces.gym_server`) -----------------------------------------------------

RUN_KEPT_S = 60.0
"""How long the result of ``/run`` is kept for a client that asks again, and a rollout goes on whose client
has left. NeMo Gym's clients ask again after half a second; a longer time could hand a rollout of old weights
to a trainer that has given up a step and asks for the same row again."""

# -- waits and what is looked at (`gym_runtime.bus`, `gym_runtime.rpc`) ---------------------------------

EXACT_S = 5.0
"""Each wait up to this has its own timer. Longer ones end up to `OVERDUE_S` late: a timer for each would
cost a tenth of a request, and almost none is ever due."""

OVERDUE_S = 0.25
"""The interval at which longer waits are checked."""

# -- leaving gently (`gym_runtime.system`, `gym_deploy`) ----------------------------------------

DRAIN_S = 25.0
"""How long stopping workers may take together. Kubernetes and Slurm kill 30 s after they have asked a process
to stop."""

SIGNALLED_S = 1.0
"""Within this time a signal to all processes has reached this one, too."""

# -- the end of a sandbox's processes (`gym_sandbox.processes.cgroups`) ---------------------------------
