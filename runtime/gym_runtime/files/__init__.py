"""Files at the two ends of a run: dataset rows in; result rows, failures and metrics out.

    dataset ──▶ rows ──▶ (the queue) ──▶ results ──▶ OUT.jsonl, OUT_failures.jsonl, OUT_run.json
   row_reader    ▲                        appender
                 │                           │
               resume ◀──────────────────────┼──▶ index (of the page ``gym-runtime view``)
                keys                         │
                                        run_metrics ──▶ OUT_aggregate_metrics.json
                                       sample, scores, token_use

Everything streams: per rollout a run keeps a few bytes per metric, never its row. Nothing here awaits.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
