"""Text adventures of other projects, each game in a process of its own."""
