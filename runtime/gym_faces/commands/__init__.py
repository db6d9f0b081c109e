"""The commands that serve a running system to other programs, and read their configurations."""

COMMANDS = {
    "Make rollouts": {
        "gateway": "Serve a running system's models to agents that know only the APIs of OpenAI, Anthropic "
        "or Google.",
        "mcp": "Serve the tools of one session over MCP, on standard input and output.",
        "gym-server": "Serve a running system to programs that know NeMo Gym's servers: NeMo RL, TRL, "
        "verifiers, its own.",
        "openenv-server": "Serve an environment of a running system to clients of OpenEnv: TRL, SkyRL, "
        "verifiers, its own.",
    },
    "Prepare data": {
        "import-config": "Read YAML configurations of NeMo Gym into files and commands here.",
    },
}
