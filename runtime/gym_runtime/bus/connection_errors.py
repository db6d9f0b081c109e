"""Why a broker is not to be had, as an error that says what to do."""

from __future__ import annotations

import ssl

from gym_runtime.bus.handshake import Refused
from gym_runtime.bus.identity import CREDENTIALS
from gym_runtime.bus.protocol import OutOfStep
from gym_runtime.errors import BrokerError

# NATS's default is 1 MB; some brokers of others take half of it.
MIN_MAX_PAYLOAD = 512 * 1024


def is_final(error: Exception) -> bool:
    """Whether another attempt to connect would end the same way."""
    return isinstance(error, Refused | OutOfStep | ssl.SSLError)


def unreachable(where: str, error: Exception | None) -> BrokerError:
    """Connecting failed, with the last error; None if nothing answered in time."""
    text = "" if error is None else str(error).strip()
    if isinstance(error, Refused) and "authorization" in text.lower():
        return BrokerError(
            f"the broker at {where} refuses the credentials: check user and password in its URL, or the file "
            f"that {CREDENTIALS} names",
            final=True,
        )
    if error is not None and is_final(error):
        return BrokerError(f"cannot connect to the broker at {where}: {text}", final=True)
    return BrokerError(
        f"no broker at {where} ({text or 'no answer'}): start a system with 'gym-runtime start', or a broker "
        "alone with 'nats-server -js', or correct the URL",
        silent=True,
    )


def too_small(where: str, max_payload: int) -> BrokerError:
    """It takes messages of less than `MIN_MAX_PAYLOAD` bytes only."""
    return BrokerError(
        f"the broker at {where} takes messages up to {max_payload} bytes only, at "
        f"least {MIN_MAX_PAYLOAD} are needed: put 'max_payload: 8MB' into its configuration"
    )


def unheard(where: str, inbox: str) -> BrokerError:
    """We may not listen where we are answered."""
    return BrokerError(
        f"the broker at {where} does not let these credentials listen on {inbox}: "
        "they are for another kind of worker, or for another prefix"
    )
