"""The commands for systems on several machines."""

COMMANDS = {
    "Make rollouts": {
        "broker": "Run a broker for the machines of a system: TLS, an identity for each role, the streams, "
        "join files.",
        "deploy": "Write out the files that start a system on a platform, filled in, to be read and changed.",
    },
}
