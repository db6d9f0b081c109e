"""What the commands do: ``NAME_command.py`` holds the function of the command NAME."""
