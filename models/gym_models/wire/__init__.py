"""What adapters share to speak OpenAI's dialects: HTTP, errors, and both ways between the two dialects."""
