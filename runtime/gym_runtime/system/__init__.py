"""A system of processes: the private broker, the supervisor and the workers that it starts."""
