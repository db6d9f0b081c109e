"""What authors of environments, agents and adapters test with. It ships; it holds no mocks."""
