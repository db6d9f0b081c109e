"""What adapters share for OpenAI's two APIs: HTTP, errors, and the conversion in both directions."""
