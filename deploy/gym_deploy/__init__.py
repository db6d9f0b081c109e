"""For systems on several machines: a broker that others can reach, and files for the platforms of workers."""
