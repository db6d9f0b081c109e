"""SQL that a model wrote, executed on SQLite and compared with what was wanted.

Queries run on databases that they can only read, with limits on their time, their memory and their result.
They run synchronously, so they belong in a process that can be killed.
"""
