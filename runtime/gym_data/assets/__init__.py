"""Assets are fetched here; what an environment declares and finds is in `gym_runtime.environment.assets`."""
