"""What ``gym-runtime new`` copies: an agent, and environments of each shape, with five example rows."""
