"""The delays of the runtime: unit, reason, and what needs each.

Units are seconds. The assertions state how they depend on each other; a change that breaks one breaks a
guarantee in docs/explanation/guarantees.md. Three kinds stand elsewhere: the limits of a sandbox in
`gym_sandbox`, what only the display of a command needs in `gym_runtime.cli.display`, and what belongs
to one engine or environment in its module.
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

# -- the end of a process (`gym_sandbox.processes`, `gym_sandbox`) --------------------------------

KILL_LIMIT_S = 5.0
"""How long the end of a killed process, or of a killed group of processes, is awaited."""

# -- the end of a worker (`gym_runtime.system.worker_process`) ------------------------------------------

ORPHAN_DRAIN_S = 1.0
"""How long a worker whose supervisor is gone may drain: it must not outlive its supervisor for long."""

HASTY_KILL_S = 3.0
"""When a supervisor must stop within seconds (its owner is gone): how long after the workers' pipe was closed
it kills those that still run. Longer than `ORPHAN_DRAIN_S`, so that they can give their tasks back."""

assert HASTY_KILL_S > ORPHAN_DRAIN_S, "workers would be killed before they have given their tasks back"

# -- the connection to the broker (`gym_runtime.bus.connection`) ----------------------------------------

DIAL_S = 4.0
"""How long the first connection may take, over all addresses."""

CONNECT_TIMEOUT_S = 2
"""How long one address may take to connect and greet, before the next address is tried."""

PING_INTERVAL_S = 5
"""The interval of pings. A dead peer is noticed after two unanswered ones."""

LOOP_CHECKED_S = 0.05
"""How often it is seen how late the event loop is, while a ping is under way."""

RECONNECT_S = (0.05, RECONNECTED_S)
"""The first and the longest pause between two rounds of dialling; it doubles, with jitter."""

DISCONNECT_S = 2.0
"""How long a closing connection may take to send what it has buffered."""

SETTLE_S = 2.0
"""How long an ended subscription waits for the messages that the broker had already sent to it."""

REPLICA_PAUSES_S = (0.02, 0.1, 0.3)
"""The pauses between tries to read a chunk that a replica does not have yet."""

SIGNAL_LIFE_S = 300
"""For requests, answers and signals: the other side fetches them when they arrive."""

# -- what the broker stores (`gym_runtime.bus.streams`) -------------------------------------------------

PATIENCE_S = 60.0
"""How long storing is tried while the broker is silent or full. Then the rollout or the run fails with that
reason."""

STORE_ANSWER_S = 10.0
"""How long one try to store waits for the broker's answer. A repeated try is recognised by its id."""

API_ANSWER_S = 5.0
"""How long a request to JetStream's API waits for its answer."""

PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""The pauses between tries; the last one repeats, and each has jitter."""

DUPLICATE_WINDOW_S = 75
"""How long the broker remembers the ids of what it stored: longer than anything is repeated for."""

EPHEMERAL_S = 5.0
"""An ephemeral consumer is there at once, or lies with a node that is not."""

# -- reading streams, pulling tasks (`gym_runtime.bus.puller`, `gym_runtime.bus.stream_reader`) -----------

EXPIRES_S = 30.0
"""A pull lives half as long as the wait for an acknowledgement, and this long at most: when the tasks of a
frozen worker are delivered again, its open pulls must be gone, or it would get them back."""

HEARTBEAT_S = 5.0
"""How often the broker says that an open pull is alive; without it the pull is repeated."""

PULL_TICK_S = 0.5
"""How often a puller looks for silence, and keeps its tasks alive where that is due."""

PULL_CLEANUP_S = 2.0
"""How long a puller that ends waits for the tasks that are on their way, to give them back."""

RESTORE_S = 1.0
"""The pause before a consumer that cannot be made again is tried once more."""

RELEASE_S = (0.0, 0.2, 1.0, 5.0)
"""How long a task is put back for after its 1st, 2nd, … failed delivery."""

PULL_PAUSE_S = 0.25
"""After a refusal that is not the ordinary end of a pull: asking at once would spin."""

INACTIVE_S = 60.0
"""After how long without a reader the broker removes its consumer. Longer than a reconnection takes."""

READ_PAUSE_S = 0.2
"""The pause after a fruitless read; it grows with their number."""

# -- rollouts (`gym_runtime.rollout`, `gym_runtime.workers`) --------------------------------------------

ATTEMPT_PAUSE_S = 5.0
"""The longest pause between two attempts of a rollout; it doubles up to this."""

JOURNAL_READ_S = 10.0
"""How long one read of a journal may take until its entries are counted again."""

CLOSED_TOGETHER_S = 0.02
"""Workers are told of sessions that ended within so long in one message."""

EASED_S = 1.0
"""A rollout with less time left does not wait before its result is encoded."""

SESSION_CLOSED_S = 60.0
"""How long the request that closes a session counts. The rollout's own deadline may have passed."""

NOTE_S = 1.0
"""How often an agent worker looks for rollouts whose time must be noted (`gym_runtime.rollout.account`)."""

GIVE_BACK_S = 2.0
"""How long a worker that stops may take to note that it gives a task back."""

CONVERSATION_IDLE_S = 30.0
"""A conversation that was not continued for so long is dropped; its next turn sends the whole again."""

ENGINE_FIRST_PAUSE_S = 0.25
"""The pause before a failed call at an engine is repeated; it doubles, with jitter."""

ENGINE_LONGEST_PAUSE_S = 30.0
"""The longest such pause."""

NEWS_EVERY_S = 10.0
"""A model worker logs an engine's errors at most this often."""

SESSION_IDLE_S = 60.0
"""After how long without a call a session's rollout is looked up, in case it is over."""

CLOSE_LIMIT_S = 5.0
"""How long a session's `close` may take; then it is abandoned, with a warning."""

# -- requests that wait (`gym_runtime.rpc`) -------------------------------------------------------------

LEAVE_S = 1.0
"""How long a member that leaves may take to announce it."""

MEMBER_TICK_S = 0.1
"""Changes that come within this time are handled together, so that a thousand joins do not cost a thousand
new assignments."""

SAME_DEATH_S = 2.0
"""Concurrent calls of one rollout that lose the same worker within this time count as one death."""

LIST_S = 2.0
"""How long a follower may take to send its list of members."""

STALL_S = 60.0
"""A worker that keeps requests waiting for longer is named in the log."""

STALL_LOOK_S = 10.0
"""How often an agent worker looks for such requests."""

# -- clients (`gym_runtime.client`) ---------------------------------------------------------------------

CONTROL_S = 600.0
"""How long a command to model workers, such as new weights, may take by default."""

WORKERS_LOOK_S = 1.0
"""How often it is looked whether workers that were commanded are alive, or back."""

WORKERS_BACK_S = 600.0
"""How long a trainer waits for engines that died; loading a large model takes minutes."""

CANCEL_GRACE_S = 2.0
"""How long a cancelled run's client waits for the records of rollouts that were ending."""

CLIENT_ANSWER_S = 2.0
"""How long another client is given to answer that it still has a run."""

LATE_S = (0.1, 0.4)
"""When a cancelled run is looked at again: what was on its way to the broker when its worker was told has
arrived."""

ABANDONED_S = 24 * 3600
"""A run without a client is closed by others after so long."""

TIDIED_S = 60.0
"""How often a client that begins one run after the other looks for what others have left. It looks at every
run that the broker remembers, which costs as much as several rollouts."""

CLIENT_RECONNECT_S = 5.0
"""How long a client may take to reconnect: its pauses and attempts, see `gym_runtime.bus.connection`."""

FLUSH_S = 0.2
"""How long a row may be in memory before it is written to its file."""

SYNC_S = 5.0
"""How often a file of rows is flushed to the disk."""

FILES_CLOSE_S = 15.0
"""How long a recorded run that is left early may take to stop its work and close its files."""

ENGINE_LOOK_S = 2.0
"""How often `run` asks whether the engine returns only errors."""

START_NOTE_S = 2.0
"""After how long `run` prints that it is still starting."""

# -- processes (`gym_runtime.system`, `gym_sandbox.processes`) ------------------------------------------

BROKER_START_S = 10.0
"""How long the private broker may take to start."""

BROKER_STOP_S = 5.0
"""How long it may take to end after SIGTERM, until it is killed."""

BROKER_POLL_S = 0.001
"""How often its files are looked at while it starts."""

RESTART_WINDOW_S = 60.0
"""The time in which a worker's restarts are counted, until its slot gives up."""

RESTART_FIRST_PAUSE_S = 0.05
"""The pause before a worker is started again; it doubles."""

RESTART_LONGEST_PAUSE_S = 1.6
"""The longest such pause."""

HASTY_S = 1.0
"""How long workers may drain when the supervisor's owner is gone."""

CALLERS_LOOK_S = 0.25
"""How often a draining worker looks for callers (`CALLERS_GONE_S`)."""

BLOCKED_S = 2.0
"""A step of the event loop that takes longer is reported: no other rollout of the worker runs meanwhile."""

UNSERVED_CHECKED_S = 1.0
"""How often a thread looks whether its worker serves (`gym_runtime.system.unserved`)."""

UNSERVED_S = 15.0
"""A worker whose service has ended, and which has not ended after so long, is ended. Longer than the 10 s
that a resource worker has to close its sessions."""

STAND_IN_S = 1.0
"""After how long a thread answers for a blocked event loop (`gym_runtime.system.stand_in`)."""

STOOD_IN_AT_MOST_S = 60.0
"""How long it does so. Then the worker counts as gone, as one that is frozen does."""

STAND_IN_LOOK_S = 0.05
"""How often it looks whether the loop goes on."""

assert STAND_IN_S + MEMBER_ANSWER_S < MEMBER_MISSES * MEMBER_ANSWER_S, (
    "a worker would be declared gone before its stand-in answers"
)

REMOVAL_PAUSE_S = 0.005
"""The pause between two tries to remove a control group whose processes are ending."""

LIMIT_SIGNAL_S = 0.5
"""How often the signal of a reached limit is repeated: some libraries catch every exception."""

EXPORT_STOP_S = 2.0
"""How long the end of a process waits for a collector of traces."""

# -- the gateway's HTTP (`gym_faces.gateway`) ---------------------------------------------------------

BODY_S = 60.0
"""How long a client may take to send a request's body."""

RETRY_AFTER_S = 1.0
"""What `Retry-After` says when the gateway is full."""

LONGEST_WAIT_S = 3600
"""The longest `Retry-After` that is passed on from an engine."""

GATEWAY_STOP_S = 5.0
"""How long calls in progress may take when the gateway stops."""

HEADERS_S = 30.0
"""How long a connection may stay without the whole headers of its next request. Longer than clients keep an
idle connection (aiohttp 15 s, httpx 5 s), so that they close it and no request meets a closed one."""

LINGER_S = 2.0
"""How long a refused body is still read, so that the client reads the refusal."""

QUIET_S = 15.0
"""How often a stream that waits for the engine sends a comment, so that proxies keep it open."""

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

RUNS_SWEPT_S = 5.0
"""How often such results and rollouts are looked at."""

SEEDED_SWEPT_S = 15.0
"""How often sessions are looked for whose time is over."""

# -- waits and what is looked at (`gym_runtime.bus`, `gym_runtime.rpc`) ---------------------------------

EXACT_S = 5.0
"""Waits up to this have a timer of their own. Longer ones end up to `OVERDUE_S` late: a timer for each would
cost a tenth of a request, and almost none is ever due."""

OVERDUE_S = 0.25
"""How often longer waits are looked at."""

PROBE_S = 1.0
"""How often a queue that was empty is asked again, while other queues use the worker's slots."""

KEEN_S = 0.5
"""Without a task for so long, unused credits say that the queue is empty."""

DRAIN_ANSWER_S = 5.0
"""How long a worker may take to answer that it drains."""

# -- clients' sessions and standing runs (`gym_runtime.client`) -----------------------------------------

DECLARED_S = 10.0
"""How long a resource worker may take to say what its environment declares."""

CLIENT_CLOSE_S = 2.0
"""How long a client that leaves may take to close a session."""

APPEAR_S = 5.0
"""How long a worker may take to appear: one that was lost is being started again."""

APPEAR_LOOK_S = 0.2
"""How often it is looked for meanwhile."""

ROLLOUT_CANCEL_S = 2.0
"""How long the cancellation of one rollout of a standing run may take."""

REFILL_S = 0.02
"""How long free places are gathered until rollouts are published into them (`gym_runtime.client.window`)."""

# -- leaving gently (`gym_runtime.system`, `gym_deploy`) ----------------------------------------

DRAIN_S = 25.0
"""How long stopping workers may take together. Kubernetes and Slurm kill 30 s after they have asked a process
to stop."""

ALONE_S = 0.5
"""A worker that was asked to leave is taken to be the only one after so long: a signal to all processes
reaches the supervisor sooner."""

WAIT_PAUSE_S = 1.0
"""The pause before a broker or an engine that is awaited (`--wait`) is tried again."""

BROKER_AGAIN_S = 0.5
"""How often a broker looks for its streams, and for workers that are still there."""

SIGNALLED_S = 1.0
"""Within this time a signal to all processes has reached this one, too."""

SERVER_STOP_S = 20.0
"""How long a broker for others may take to end after it was asked to."""

BROKER_LINGER_S = 28.0
"""How long it stays for workers that finish their work: a little longer than `DRAIN_S`, and less than
platforms wait."""

# -- figures, logs and trackers (`gym_view.metrics`, `gym_view.trackers`) -------------------------

GATHER_S = 2.0
"""How often the workers' figures are gathered."""

FORGOTTEN_S = 600.0
"""A worker that has been silent for so long is added to those that are gone, and only its name is kept."""

STALE_S = 30.0
"""Figures that are older are not served: Prometheus then says that this target is down."""

METRICS_STOP_S = 1.0
"""How long requests in progress may take when the endpoint stops."""

LOG_EXPORT_S = 2.0
"""How long one export of logs may take; the end of a process waits for a collector so long at most."""

TRACK_EVERY_S = 5.0
"""How often a tracker is told of a run's aggregates."""

TABLE_EVERY_S = 60.0
"""How often it gets a new table of examples."""

TRACKER_OPENING_S = 60.0
"""How long a tracker may take to begin a run; then the run is refused."""

TRACKER_CLOSING_S = 60.0
"""How long it may take to store what it was told."""

# -- assets (`gym_data.prepare.fetch`) ---

FETCH_SILENCE_S = 60.0
"""How long a server may send nothing while a file is fetched."""

# -- the outside world (`gym_data.web`) --------------------------------------------------------------

RESOLVE_S = 5.0
"""How long a name may take to be resolved."""

HTTP_CONNECT_S = 10.0
"""How long connecting may take, where the whole exchange may take longer."""

OUTSIDE_DIAL_S = 3.0
"""How long a host is tried that may be out of reach: offline must fail within seconds."""

OUTSIDE_DIALLED_S = 10.0
"""For how long the result of that counts."""

SERVICE_PAUSES_S = (1.0, 2.0, 4.0)
"""Between the tries of a service; each is shortened or lengthened by up to a half, by chance."""

SERVICE_LONGEST_PAUSE_S = 30.0
"""A service that asks for a longer one counts as unavailable now."""

SERVICE_RESTS_S = 900.0
"""How long a key is not used that is used up or was not taken."""

SERVICE_RESTS_LONGEST_S = 24 * 3600.0
"""A ledger's time to wait that is longer counts as an error of the clock, which was set back."""

HOST_PAUSE_S = 0.2
"""Between two pages of one host."""

ANSWER_KEPT_S = 7 * 24 * 3600.0
"""How long a stored answer is used in place of the service's."""

INDEX_KEPT_S = 30 * 24 * 3600.0
"""How long an index of the viewer is kept after it was last written; it can be made again at any time."""

# -- checks (`gym_testing.checks`) ----------------------------------------------------------------------

CHECK_BLOCKED_S = 0.5
"""How long one step of the event loop may take in ``gym-runtime test``: ten times the 50 ms of a worker,
because the machine may be busy."""

# -- the end of a sandbox's processes (`gym_sandbox.processes.cgroups`) ---------------------------------

SWEEP_LIMIT_S = 1.0
"""How long the removal of a control group waits for the end of its members."""

SWEEP_PAUSE_S = 0.005
"""Between two looks at that."""
