"""Assets: files that an environment needs and this project does not ship, such as databases.

An environment declares them (`Asset`), ``gym-runtime prepare --assets NAME`` fetches them (`fetch`)
into the user's cache, and `find` gives their paths, checked, or says which command fetches them. Rows
that need a file that is not there are refused before the first model call
(`gym_runtime.environment.shapes.Task.check_assets`).
"""

from gym_runtime.assets.asset import Asset as Asset
from gym_runtime.assets.cache import cache_folder as cache_folder
from gym_runtime.assets.cache import find as find
from gym_runtime.assets.cache import folder as folder
from gym_runtime.assets.cache import missing as missing
