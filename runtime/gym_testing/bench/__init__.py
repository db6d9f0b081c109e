"""What this installation costs: a system, an engine that answers at once, and a bare loop to compare with."""
