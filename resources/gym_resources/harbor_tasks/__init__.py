"""Tasks in Harbor's format: their files, their boxes, and what their tests say."""
