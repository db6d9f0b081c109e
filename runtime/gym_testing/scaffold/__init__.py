"""What ``gym-runtime new`` copies: one environment of each shape, with five example rows."""
