"""The delays that guarantees depend on, or that two parts must agree on: unit, reason, and what needs each.

Units are seconds. The assertions state how they depend on each other; a change that breaks one breaks a
guarantee in docs/explanation/guarantees.md.
"""

from __future__ import annotations

# -- liveness (`gym_runtime.rpc.members`) -----------------------------------------------------------

MEMBER_ASKED_S = 2.5
"""How often a watcher asks a member that answers. The broker's load is inversely proportional to it: each
question is four messages, two in and two out."""

MEMBER_ANSWER_S = 1.0
"""How long a watcher waits for an answer. Longer than anything may block a worker's event loop (50 ms), with
room for a busy machine."""

MEMBER_AGAIN_S = 1.25
"""The pause before a member is asked again that the broker does not know."""

MEMBER_MISSES = 3
"""Questions in a row without an answer until a member is gone. A worker whose connection broke is back
within `RECONNECTED_S`, and must not be declared gone before."""

MEMBER_GONE_S = MEMBER_ASKED_S + MEMBER_MISSES * MEMBER_ANSWER_S
"""The longest time until a frozen worker is declared gone: the "4 to 6 s" of the guarantees. A killed worker
is gone a little sooner; a caller that asks it notices at once, because the broker answers that no process
listens. Where a worker's watcher dies with it, the watcher's end must be noticed first, so that it takes
twice as long."""

RECONNECTED_S = 2.0
"""The longest pause before a broken connection is dialled again (`gym_runtime.bus.connection`)."""

STATE_CHECKED_S = 1.0
"""How often a member compares its state with the one that it announced. Draining and a new version of the
weights are known to callers this much later."""

UNASKED_S = 5.0
"""A member that no follower asked for so long announces itself again: its announcement was lost, or it was
declared gone while it was cut off. Longer than `MEMBER_ASKED_S` plus what a change of watchers takes."""

LISTS_COMPARED_S = 60.0
"""How often a follower compares its list with another follower's, for announcements that the connection
lost. Every comparison moves the whole list, so it is rare."""

ROLL_CALL_S = 1.0
"""How long the answers to a roll call are awaited, where no follower has the list."""

CALLS_ANSWERED_S = 0.25
"""The shortest time between two answers of a member to roll calls: one serves all followers that start
together, and a hundred of them cause no hundred announcements of every member."""

LOAD_FRESH_S = 10.0
"""How long the load that came with an answer counts. Without a limit, a worker that was full once would
never be chosen again."""

CALLERS_GONE_S = 1.5
"""A worker that drains gives up its sessions when no caller has been there for so long. Longer than an
agent worker needs to connect again in the usual case."""

assert MEMBER_GONE_S <= 6.0, "the guarantees promise 6 s"
assert MEMBER_ASKED_S + (MEMBER_MISSES - 1) * MEMBER_AGAIN_S <= MEMBER_GONE_S
assert (MEMBER_MISSES - 1) * MEMBER_AGAIN_S > RECONNECTED_S, "a reconnecting worker would be declared gone"
assert UNASKED_S > MEMBER_ASKED_S + MEMBER_ANSWER_S, "members would announce themselves without need"

# -- the client of an attached run (`gym_runtime.workers.client_watch`) ---------------------------------

CLIENT_ASKED_S = 0.4
"""How often the client of an attached run is asked. Tasks must stop within 2 s when its process dies."""

CLIENT_MISSES = 4
"""Times in a row that the broker answers that the client does not listen, until the client counts as
lost. Silence does not count: a trainer may block its event loop for as long as a training step takes."""

CLIENT_RETURN_S = 5.0
"""After how long a task is delivered again whose client was gone. Longer than a usual reconnection."""

CLIENT_DROPPED_S = 30.0
"""A client that was gone for so long has left, and its tasks are dropped."""

assert CLIENT_ASKED_S * CLIENT_MISSES < 2.0, "tasks must stop within 2 s"
assert CLIENT_DROPPED_S > 4 * CLIENT_RETURN_S, "a client that returns finds its tasks"

# -- tasks (`Bus.pull`) ---------------------------------------------------------------------------------

TASK_ACK_WAIT_S = 6.0
"""A delivered task that its worker does not keep alive is delivered again after so long: the other part of
"4 to 6 s". Not shorter than `MEMBER_GONE_S`: a frozen agent worker should be known to be gone when another
one takes over its tasks."""

assert MEMBER_GONE_S <= TASK_ACK_WAIT_S

JOURNAL_FRESH_S = 6.0
"""An attempt that stored a turn within this time still has its task (`gym_runtime.rollout.journal`), because
the broker does not deliver the task again earlier. After a longer time its worker may have been frozen, and
the attempt asks the broker before its result is committed."""

assert JOURNAL_FRESH_S <= TASK_ACK_WAIT_S, "a worker that was frozen would commit a result it should check"

# -- answers that are lost (`gym_runtime.rpc.in_flight`) ------------------------------------------------

IN_FLIGHT_LOOK_S = 2.0
"""How often a router looks for requests that have waited for long."""

IN_FLIGHT_FIRST_S = 5.0
"""After how long the worker is first asked whether it works on a request. Most answers come sooner."""

IN_FLIGHT_LONGEST_S = 60.0
"""The longest interval between two such questions; it doubles from `IN_FLIGHT_FIRST_S`."""

IN_FLIGHT_ANSWER_S = 5.0
"""How long the worker may take to say so."""

IN_FLIGHT_MISSES = 2
"""Looks in a row at which the worker did not know a request, until its answer is lost. Two, because an
answer may be on its way during the first."""

# -- one request (`gym_runtime.rpc.router`) -------------------------------------------------------------

NO_WORKER_GRACE_S = 30.0
"""How long a request waits for any worker of its pool: a supervisor starts a worker again within a few
seconds, a model server within half a minute."""

SESSION_GRACE_S = 1.0
"""How long a call to a session waits for a worker that the broker does not know: after a restart of the
broker a worker is back a moment later than its callers."""

RETRY_PAUSE_S = (0.02, 2.0)
"""The first and the longest pause before a refused request is repeated; it doubles, with jitter."""

PLACE_KEPT_S = 5.0
"""How long a worker keeps a place for a suspect call that has not arrived, and itself for a call that must be
alone there (`gym_runtime.rpc.suspects`). Longer than the longest pause of the router that asks again."""

assert 1.5 * RETRY_PAUSE_S[1] < PLACE_KEPT_S, (
    "a suspect would lose its place before it is asked again (jitter 1.5)"
)

# -- sessions (`gym_runtime.workers.sessions`, `gym_runtime.workers.resource_worker`) ---------------------

SESSION_KEPT_S = 30.0
"""How long after its rollout's deadline a session is closed that its rollout has not closed."""

SESSIONS_SWEPT_S = 15.0
"""How often a resource worker looks for sessions to close: overdue ones, and those whose rollout is over."""

# -- a dead engine (`gym_runtime.workers.model_worker`) --------------------------------------------------

ENGINE_ONLY_ERRORS_S = 6.0
"""How long an engine may answer only errors after its start until its worker reports it as dead. The client
asks the workers every 2 s, so that a run stops within 15 s."""

# -- the end of a process (`gym_runtime.processes`, `gym_runtime.sandbox`) --------------------------------

KILL_LIMIT_S = 5.0
"""How long the end of a killed process, or of a killed group of processes, is awaited."""

# -- the end of a worker (`gym_runtime.system.worker_process`) ------------------------------------------

ORPHAN_DRAIN_S = 1.0
"""How long a worker whose supervisor is gone may drain: it must not outlive its supervisor for long."""

HASTY_KILL_S = 3.0
"""When a supervisor must stop within seconds (its owner is gone): how long after the workers' pipe was closed
it kills those that still run. Longer than `ORPHAN_DRAIN_S`, so that they can give their tasks back."""

assert HASTY_KILL_S > ORPHAN_DRAIN_S, "workers would be killed before they have given their tasks back"
