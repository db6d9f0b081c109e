"""One rollout: its attempts, its journal, the calls it makes and the record it ends with."""
