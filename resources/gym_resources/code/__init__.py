"""Programs that a model wrote, run against tests; shared by the environments that grade code."""
