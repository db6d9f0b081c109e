"""What can be typed: every command as a function whose parameters are its options and whose text is its help.

Each body only hands over to the module of `gym_runtime.cli.commands` that bears the command's name, which is
imported when the command runs, so that help is shown at once.
"""
