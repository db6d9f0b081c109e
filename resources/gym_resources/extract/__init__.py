"""Finding answers in a model's text: extraction rules that several environments share.

Pure functions over strings; all take linear time in the text, except regular expressions
that come with a row, which run in a process under a time limit (`patterns`).
"""
