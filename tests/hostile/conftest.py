"""The services that some environments need."""

from __future__ import annotations

from stubs.services import aviary_server as aviary_server
from stubs.services import lean_server as lean_server
