"""Assets: files that an environment needs and this project does not ship, such as databases.

An environment declares them (`asset.Asset`), ``gym-runtime prepare --assets NAME`` fetches them (`fetch`)
into the user's cache, and `cache.find` returns their checked paths, or raises an error that names the command
to fetch them. A row that needs a missing file is refused before the first model call
(`gym_runtime.environment.shapes.Task.check_assets`).
"""
