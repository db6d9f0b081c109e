"""Which hop is the limit of a system, in one sentence, and what would make it faster."""

from __future__ import annotations

from gym_runtime.plurals import counted

from gym_view.live import View, WorkerView

_SERVING = (
    ("model", "The engines of model", "more engines"),
    ("resource", "The workers of environment", "more of these workers"),
)
_AWAITED = {
    "model": ("the model", "faster engines"),
    "tool": ("tools", "faster tools"),
    "verify": ("the verification", "a faster verifier"),
}
FULL = 0.95
CPU_BOUND = 0.9
MOSTLY = 0.5


def limit(view: View) -> str:
    """The sentence. Later stages of a rollout are checked first, because earlier ones wait for them."""
    held = [run.run for run in view.runs if run.state == "paused"]
    active = [run for run in view.runs if run.state == "active"]
    waiting = sum(depth for depth, _ in view.queues.values())
    if not view.workers:
        return "No worker is alive: 'gym-runtime start' starts some."
    refused = next((one.refused for one in view.workers if one.refused), "")
    if refused:
        return (
            f"The broker stores nothing ({refused}): make room on its disk, and restart it unless "
            "gym-runtime started it."
        )
    if view.unserved:
        kind, name = view.unserved[0]
        noun = {"resource": "environment"}.get(kind, kind)
        remedy = "model --model PROVIDER/NAME" if (kind, name) == ("model", "policy") else f"{kind}:{name}"
        return f"No worker serves {noun} '{name}', for which rollouts wait: gym-runtime start {remedy}."
    paused = [one for one in view.workers if one.state == "paused" and one.pools]
    if paused:
        return f"Model '{paused[0].pools[0]}' is paused: rollouts wait until its weights are resumed."
    if held and not active:
        return f"Run '{held[0]}' is paused: 'gym-runtime resume {held[0]}' lets it go on."
    if not active and not waiting:
        return "Nothing waits: no run is active."
    if not waiting and all(run.total and run.done == run.total for run in active):
        which = active[0].run
        return (
            f"Nothing waits: every rollout is finished; 'gym-runtime collect {which} -o FILE' fetches them."
        )
    for pool, workers in _pools([one for one in view.workers if one.kind == "model"]).items():
        if all(one.held for one in workers):
            return f"Rollouts wait for the engines of model '{pool}': {workers[0].held}."
    by_kind = {
        kind: [one for one in view.workers if one.kind == kind] for kind in ("model", "resource", "agent")
    }
    for kind, noun, remedy in _SERVING:
        for pool, workers in _pools(by_kind[kind]).items():
            if _full(workers):
                return f"{noun} '{pool}' are the limit, {_used(workers)}: {remedy} would help."
    for kind in ("resource", "agent", "model"):
        bound = [one for one in by_kind[kind] if one.busy is not None and one.busy >= CPU_BOUND]
        if bound and len(bound) >= len(by_kind[kind]) / 2:
            return (
                f"The processor is the limit: {kind} worker {bound[0].worker} uses {bound[0].busy:.0%} of a "
                f"core; more {kind} processes (--workers) would help."
            )
    suspects = sum(one.suspects for one in by_kind["agent"])
    if suspects > MOSTLY * sum(one.in_use for one in by_kind["agent"]):
        return (
            f"{_wait(suspects)} to start again after the loss of an agent worker: one of them may have ended "
            "it, so each other worker starts a few, and the next when these have finished a turn."
        )
    if _full(by_kind["agent"]):
        hop, share = _longest(view)
        if share >= MOSTLY:
            what, remedy = _AWAITED[hop]
            return (
                f"All agents are full, {_used(by_kind['agent'])}. {share:.0%} of the time they wait for "
                f"{what}, which could take more: more --concurrency or {remedy} would help."
            )
        return f"The agents are the limit, {_used(by_kind['agent'])}: more --concurrency would help."
    slow = [one for one in by_kind["agent"] if one.state == "slow link"]
    if waiting and slow:
        return (
            f"The link of agent worker {slow[0].worker} on {slow[0].host} to the broker is slow, "
            f"{slow[0].round_trip_s:.1f} s there and back: it gets less work, and {_wait(waiting)}."
        )
    in_progress = sum(depth for _, depth in view.queues.values())
    for run in active:
        if waiting and run.most is not None and in_progress >= FULL * run.most:
            return (
                f"{_wait(waiting)}: run '{run.run}' may have {counted(run.most, 'rollout')} in progress, as "
                f"was set; 'gym-runtime set {run.run} concurrency=null' takes that back."
            )
    if waiting:
        said = f"{_wait(waiting)} while the agents have free places, {_used(by_kind['agent'])}"
        busiest = max(view.workers, key=lambda one: one.busy or 0.0)
        if busiest.busy:
            which = f"{busiest.kind} worker {busiest.worker}"
            said += f". The busiest process is {which}, at {busiest.busy:.0%} of a core"
        return f"{said}."
    return f"The client is the limit: nothing waits in the queue, and the agents have places.{_mostly(view)}"


def _wait(waiting: int) -> str:
    return counted(waiting, "rollout waits", "rollouts wait")


def _longest(view: View) -> tuple[str, float]:
    """The hop that agents wait for longest, and its share of their time."""
    return max(view.shares.items(), key=lambda one: one[1], default=("", 0.0))


def _mostly(view: View) -> str:
    hop, share = _longest(view)
    if share < MOSTLY:
        return ""
    return f" What is in progress waits for {_AWAITED[hop][0]} {share:.0%} of the time."


def _pools(workers: list[WorkerView]) -> dict[str, list[WorkerView]]:
    found: dict[str, list[WorkerView]] = {}
    for one in workers:
        for pool in one.pools:
            found.setdefault(pool, []).append(one)
    return found


def _full(workers: list[WorkerView]) -> bool:
    """Whether hardly a place is free, or what serves says itself that it is full."""
    if not workers:
        return False
    free = sum(max(0, one.capacity - one.in_use) for one in workers)
    return (
        free <= (1 - FULL) * sum(one.capacity for one in workers) or min(one.load for one in workers) >= FULL
    )


def _used(workers: list[WorkerView]) -> str:
    used, capacity = sum(one.in_use for one in workers), sum(one.capacity for one in workers)
    return f"{used:,} of {counted(capacity, 'place')} taken"
