"""Why a page cannot be had. These are answers for the model that asked for it, not failures of a rollout."""

from __future__ import annotations


class PageUnavailable(Exception):
    """A page cannot be had; the message is for the model that asked for it."""


class Unreachable(PageUnavailable):
    """The connection failed, or the answer did not arrive: it may be the network's fault as well."""
