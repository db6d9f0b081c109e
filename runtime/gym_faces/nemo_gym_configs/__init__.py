"""NeMo Gym's YAML configurations, read into the runtime's own files and commands."""
