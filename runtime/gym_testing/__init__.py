"""What authors of environments, agents and adapters test with: `small_system`, a memory bus, virtual time."""
