"""Parts for the tests of authors of environments, agents and adapters. They are fakes, not mocks."""
