"""The command line. `main` is light; each command imports what it needs when it runs."""
