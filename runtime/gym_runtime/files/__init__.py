"""Files at the two ends of a run: dataset rows in; result rows, failures and metrics out.

    rows ──▶ expansion ──▶ (the queue) ──▶ results
     diagnosis  │                           │ appender, lock
                └─ resume ◀── manifest ─────┤
                     keys                   └─▶ metrics ──▶ profile

Everything streams: per rollout a run keeps a few bytes per metric, never its row. Nothing here awaits.
"""
