"""The office behind `workplace_assistant`: its tables, and its tools, one module per application."""
