"""The command that prepares data."""

COMMANDS = {
    "Prepare data": {
        "prepare": "Get rows, check every one, blend them, and write them with their metrics.",
    },
}
