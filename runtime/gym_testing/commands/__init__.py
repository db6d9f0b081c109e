"""The commands that begin, test and measure environments."""

COMMANDS = {
    "Write environments": {
        "new": "Write a new environment or agent to start from: NAME.py and NAME.jsonl, which pass the "
        "contract.",
        "test": "Check an environment against the contract that all of them keep; needs no model and no "
        "broker.",
        "play": "Be the model yourself: see the conversation and the tools, answer or call, and get the "
        "verdict.",
        "audit": "Measure how often a verifier pays for wrong replies and refuses right ones, "
        "and how hard rows are.",
        "reverify": "Compute the rewards of stored rollouts again, without a model, and compare them with "
        "the recorded ones.",
        "skills": "List guides that a coding assistant can follow: new environment, new judge, audit, port "
        "from NeMo Gym.",
        "bench": "Measure what environments cost, on their example rows: verifying, tools, sessions. Needs "
        "no model.",
    },
}
