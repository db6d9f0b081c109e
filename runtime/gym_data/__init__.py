"""Data from outside: datasets that are prepared, assets that are fetched, the guarded way to the web."""
