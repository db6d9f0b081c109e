"""Reaches the outside world for environments: pages that models name, and services such as search engines.

`Fetcher` is the one way out. It connects to public addresses only, whatever a URL, a redirect or a name's
server says; bounds time and size; keeps to the paces, quotas and keys of services; caches answers; and plays
or writes recordings. The addresses' rules also hold for what an engine is asked to fetch. Names are loaded
when they are first used, because the HTTP client is slow to import.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
