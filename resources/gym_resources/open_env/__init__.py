"""OpenEnv's protocol."""
