"""Recorded model calls: the record of one call, files of records, and transcripts made of them."""
