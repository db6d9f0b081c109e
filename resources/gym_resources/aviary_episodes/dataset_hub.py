"""Whether the hub of data sets is there, before a library waits for it.

The libraries repeat each request for up to two minutes, and say nothing meanwhile. So the hub is tried first,
for seconds; where it is not there, data sets are read from the cache only.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager

from gym_runtime import ServiceUnavailable

TRY_S = 3.0
GONE_S = 30.0
"""For how long a hub that was not there is not tried again."""
_gone: dict[str, float] = {}


@contextmanager
def hub() -> Generator[None]:
    """Load data sets within this context, and in one thread at a time.

    Raises:
        ServiceUnavailable: the hub is not there, and loading from the cache failed.
    """
    from datasets import config
    from huggingface_hub import constants

    place = constants.ENDPOINT
    if config.HF_HUB_OFFLINE or is_there(place):
        yield
        return
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    except (OSError, ValueError) as error:
        raise ServiceUnavailable(
            f"the hub {place} cannot be reached, and the data set is not in the cache: {error}",
            retryable=True,
        ) from error
    finally:
        config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = False


def is_there(place: str) -> bool:
    """Whether a server answers within `TRY_S` seconds, whatever it says; proxies are used."""
    if time.monotonic() - _gone.get(place, -GONE_S) < GONE_S:
        return False
    try:
        with urllib.request.urlopen(urllib.request.Request(place, method="HEAD"), timeout=TRY_S):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, http.client.HTTPException):
        _gone[place] = time.monotonic()
        return False
