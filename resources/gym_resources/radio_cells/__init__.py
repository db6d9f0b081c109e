"""A small model of radio cells under congestion, the controls of an operator, and what they are worth."""
