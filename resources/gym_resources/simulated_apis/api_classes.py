"""Which classes simulate services, and where they are.

A class has ``_load_scenario(config, long_context=...)``, which sets its state; its public methods are the
functions that a model may call, and its public attributes the state that is compared. Those of the Berkeley
Function Calling Leaderboard are in the package bfcl-eval (Apache-2.0). It is installed without what it
depends on, which these classes do not need: engines, vector stores and clients, several GB of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from gym_runtime import UsageError

_THEIRS = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 mpmath"
MODULES = {
    "GorillaFileSystem": f"{_THEIRS}.gorilla_file_system",
    "MathAPI": f"{_THEIRS}.math_api",
    "MessageAPI": f"{_THEIRS}.message_api",
    "TwitterAPI": f"{_THEIRS}.posting_api",
    "TicketAPI": f"{_THEIRS}.ticket_api",
    "TradingBot": f"{_THEIRS}.trading_bot",
    "TravelAPI": f"{_THEIRS}.travel_booking",
    "VehicleControlAPI": f"{_THEIRS}.vehicle_control",
    "HarbourAPI": "gym_resources.simulated_apis.harbour_api",
}
STATELESS = frozenset({"MathAPI"})


def modules(names: Iterable[str]) -> tuple[str, ...]:
    """The modules of some classes.

    Raises:
        UsageError: they are not installed; with the command that installs them.
    """
    found = tuple(MODULES[name] for name in names)
    theirs = [name for name in names if MODULES[name].startswith(_THEIRS)]
    if theirs and any(find_spec(name) is None for name in ("bfcl_eval", "mpmath")):
        raise UsageError(f"{', '.join(theirs)} of the row: the classes are not installed: {INSTALL}")
    return found
