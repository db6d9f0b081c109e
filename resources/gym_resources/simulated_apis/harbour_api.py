"""A harbour with berths and a ledger: a small service of our own, for example rows and tests."""

from __future__ import annotations

from typing import Any


class HarbourAPI:
    """Ships lie at numbered berths; their fees stand in a ledger."""

    def __init__(self) -> None:
        self.berths: dict[str, str] = {}
        self.ledger: dict[str, int] = {}
        self.fee = 0
        self._notes: list[str] = []

    def _load_scenario(self, config: dict[str, Any], *, long_context: bool = False) -> None:
        self.berths = dict(config.get("berths", {}))
        self.ledger = dict(config.get("ledger", {}))
        self.fee = int(config.get("fee", 20))
        if long_context:
            self.berths |= {str(number): "" for number in range(100, 400)}

    def list_berths(self) -> dict[str, Any]:
        """The berths with their ships; an empty name is a free berth."""
        return {"berths": self.berths}

    def moor(self, ship: str, berth: int) -> dict[str, Any]:
        """Give a ship a free berth."""
        if self.berths.get(str(berth)) != "":
            return {"error": f"Berth {berth} is not free."}
        self.berths[str(berth)] = ship
        return {"moored": ship, "berth": berth}

    def charge(self, ship: str, nights: int = 1) -> dict[str, Any]:
        """Write a ship's fee into the ledger."""
        self.ledger[ship] = self.ledger.get(ship, 0) + self.fee * nights
        return {"ship": ship, "owes": self.ledger[ship]}

    def note(self, text: str) -> str:
        """Keep a note, which is no part of the state."""
        self._notes.append(text)
        return f"{len(self._notes)} notes"
