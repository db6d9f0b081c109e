"""The commands that look around."""

COMMANDS = {
    "Make rollouts": {
        "suite": "Run several environments with several models, and show one table of their scores.",
    },
    "Look around": {
        "view": "Show rollouts on a page: why this reward, which tasks carry signal, what failed, two runs "
        "compared.",
        "show": "Show one rollout in the terminal: its verdict, then its conversation.",
        "compare": "Compare two runs task by task: which is better, by how much, and which tasks flipped.",
        "top": "Watch a running system: workers, runs, engines, failures, and what limits the rate.",
        "status": "Show a running system: its workers and their load, what waits, which runs are active.",
        "metrics": "Serve the metrics of a whole running system in one place, for Prometheus.",
        "ls": "List environments (by default), agents, model providers, tool packs, recipes or runs.",
    },
    "Prepare data": {
        "export": "Write rollouts with a verdict as Parquet, with trainers' columns, as ATIF, or for inspect "
        "or Harbor.",
        "profile": "Write the statistics of each task's rollouts, with its row, beside a run's results.",
        "import-atif": "Write ATIF trajectories as result rows, which view and export read.",
    },
}
