"""Recorded model calls: one call as it is kept, files of them, and transcripts made from them."""
