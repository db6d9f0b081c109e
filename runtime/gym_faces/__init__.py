"""HTTP faces of a system: models for black-box agents, NeMo Gym's API, and recordings of both."""
