"""One rollout: its attempts, its journal, its calls to models and resources, and its record."""
