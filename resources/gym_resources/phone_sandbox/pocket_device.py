"""The telephone: its state, and the tools that read and change it.

Names, arguments and effects of the tools are those of ToolSandbox; code, descriptions and errors are our own.
The clock is the row's and stands still, times are UTC, and new records are numbered, so that the same calls
lead to the same state.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Annotated, Any, Literal

import anyio.lowlevel
import msgspec
from gym_runtime import Text, ToolError, tool

Record = dict[str, Any]
Tables = dict[str, list[Record]]
Setting = Literal["wifi", "cellular", "location_service", "low_battery_mode"]
TABLES = ("settings", "contacts", "messages", "reminders")
MOST_RECORDS, ALIKE = 300, 0.8
Phone = Annotated[str, msgspec.Meta(max_length=40)]
Line = Annotated[str, msgspec.Meta(max_length=2000)]
_PHONE = re.compile(r"\+?[0-9][0-9 ()-]{2,30}")
_UNGIVEN = msgspec.UNSET


class Device(msgspec.Struct):
    """The state of a telephone as a row gives it.

    Attributes:
        now: what its clock shows, in seconds since 1970, UTC.
    """

    wifi: bool = True
    cellular: bool = True
    location_service: bool = True
    low_battery_mode: bool = False
    latitude: float = 37.334606
    longitude: float = -122.009102
    now: float = 1_718_000_000.0
    contacts: list[Record] = []
    messages: list[Record] = []
    reminders: list[Record] = []

    def tables(self) -> Tables:
        """The state as tables, which later changes leave as they are."""
        settings = {name: getattr(self, name) for name in (*Setting.__args__, "latitude", "longitude")}
        return {
            "settings": [settings],
            **{name: [dict(one) for one in getattr(self, name)] for name in TABLES[1:]},
        }


class DeviceTools:
    """The tools of a telephone; `Device` is its state."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @tool
    def set_low_battery_mode_status(self, on: bool) -> Text:
        """Switch low battery mode on or off; on, it switches wifi, cellular and location service off."""
        self._switch("low_battery_mode", on)
        if on:
            self.device.wifi = self.device.cellular = self.device.location_service = False
        return Text("None")

    @tool
    def get_low_battery_mode_status(self) -> bool:
        """Whether low battery mode is on."""
        return self.device.low_battery_mode

    @tool
    def set_location_service_status(self, on: bool) -> Text:
        """Switch location service on or off."""
        return self._switch("location_service", on)

    @tool
    def get_location_service_status(self) -> bool:
        """Whether location service is on."""
        return self.device.location_service

    @tool
    def set_cellular_service_status(self, on: bool) -> Text:
        """Switch cellular service on or off."""
        return self._switch("cellular", on)

    @tool
    def get_cellular_service_status(self) -> bool:
        """Whether cellular service is on."""
        return self.device.cellular

    @tool
    def set_wifi_status(self, on: bool) -> Text:
        """Switch wifi on or off."""
        return self._switch("wifi", on)

    @tool
    def get_wifi_status(self) -> bool:
        """Whether wifi is on."""
        return self.device.wifi

    @tool
    def get_current_location(self) -> dict[str, float]:
        """Latitude and longitude of where the telephone is."""
        if not self.device.location_service:
            raise ToolError("PermissionError: location service is not enabled")
        return {"latitude": self.device.latitude, "longitude": self.device.longitude}

    @tool
    def add_contact(
        self, name: Line, phone_number: Phone, relationship: Line | None = None, is_self: bool = False
    ) -> Text:
        """Add a contact; its identifier."""
        _check_phone(phone_number)
        if is_self and any(one.get("is_self") for one in self.device.contacts):
            raise ToolError("DuplicateError: there is an entry for the user already")
        fields = {
            "name": name,
            "phone_number": phone_number,
            "relationship": relationship,
            "is_self": is_self,
        }
        return self._add("contacts", "person_id", fields)

    @tool
    def modify_contact(
        self,
        person_id: Line,
        name: Line | msgspec.UnsetType = _UNGIVEN,
        phone_number: Phone | msgspec.UnsetType = _UNGIVEN,
        relationship: Line | msgspec.UnsetType = _UNGIVEN,
        is_self: bool | msgspec.UnsetType = _UNGIVEN,
    ) -> Text:
        """Change fields of a contact."""
        if isinstance(phone_number, str):
            _check_phone(phone_number)
        others = [one for one in self.device.contacts if one["person_id"] != person_id]
        if is_self is True and any(one.get("is_self") for one in others):
            raise ToolError("DuplicateError: there is an entry for the user already")
        fields = {
            "name": name,
            "phone_number": phone_number,
            "relationship": relationship,
            "is_self": is_self,
        }
        return self._modify("contacts", "person_id", person_id, fields)

    @tool
    def remove_contact(self, person_id: Line) -> Text:
        """Remove a contact."""
        return self._remove("contacts", "person_id", person_id)

    @tool
    async def search_contacts(
        self,
        person_id: Line | None = None,
        name: Line | None = None,
        phone_number: Phone | None = None,
        relationship: Line | None = None,
        is_self: bool | None = None,
    ) -> list[Record]:
        """The contacts that meet all that is given; name and relationship may be similar."""
        exact = {"person_id": person_id, "phone_number": phone_number, "is_self": is_self}
        return await self._found("contacts", exact, {"name": name, "relationship": relationship})

    @tool
    def send_message_with_phone_number(self, phone_number: Phone, content: Line) -> Text:
        """Send a text message; its identifier."""
        _check_phone(phone_number)
        if not self.device.cellular:
            raise ToolError("ConnectionError: cellular service is not enabled")
        own = [one for one in self.device.contacts if one.get("is_self")]
        if len(own) != 1:
            raise ToolError("DuplicateError: the contacts must have one entry for the user")
        known = [one for one in self.device.contacts if one["phone_number"] == phone_number]
        fields = {
            "sender_person_id": own[0]["person_id"],
            "sender_phone_number": own[0]["phone_number"],
            "recipient_person_id": known[0]["person_id"] if known else None,
            "recipient_phone_number": phone_number,
            "content": content,
            "creation_timestamp": self.device.now,
        }
        return self._add("messages", "message_id", fields)

    @tool
    async def search_messages(
        self,
        message_id: Line | None = None,
        sender_person_id: Line | None = None,
        sender_phone_number: Phone | None = None,
        recipient_person_id: Line | None = None,
        recipient_phone_number: Phone | None = None,
        content: Line | None = None,
        creation_timestamp_lowerbound: float | None = None,
        creation_timestamp_upperbound: float | None = None,
    ) -> list[Record]:
        """The messages that meet all that is given; the content may be similar."""
        exact = {
            "message_id": message_id,
            "sender_person_id": sender_person_id,
            "sender_phone_number": sender_phone_number,
            "recipient_person_id": recipient_person_id,
            "recipient_phone_number": recipient_phone_number,
        }
        between = {"creation_timestamp": (creation_timestamp_lowerbound, creation_timestamp_upperbound)}
        return await self._found("messages", exact, {"content": content}, between)

    @tool
    def add_reminder(
        self,
        content: Line,
        reminder_timestamp: float,
        latitude: float | None = None,
        longitude: float | None = None,
    ) -> Text:
        """Add a reminder at a POSIX timestamp, and a place if given; its identifier."""
        fields = {
            "content": content,
            "creation_timestamp": self.device.now,
            "reminder_timestamp": reminder_timestamp,
            "latitude": latitude,
            "longitude": longitude,
        }
        return self._add("reminders", "reminder_id", fields)

    @tool
    def modify_reminder(
        self,
        reminder_id: Line,
        content: Line | msgspec.UnsetType = _UNGIVEN,
        reminder_timestamp: float | msgspec.UnsetType = _UNGIVEN,
        latitude: float | msgspec.UnsetType | None = _UNGIVEN,
        longitude: float | msgspec.UnsetType | None = _UNGIVEN,
    ) -> Text:
        """Change fields of a reminder."""
        fields = {
            "content": content,
            "reminder_timestamp": reminder_timestamp,
            "latitude": latitude,
            "longitude": longitude,
        }
        changed = self._modify("reminders", "reminder_id", reminder_id, fields)
        self._one("reminders", "reminder_id", reminder_id)["creation_timestamp"] = self.device.now
        return changed

    @tool
    async def search_reminder(
        self,
        reminder_id: Line | None = None,
        content: Line | None = None,
        creation_timestamp_lowerbound: float | None = None,
        creation_timestamp_upperbound: float | None = None,
        reminder_timestamp_lowerbound: float | None = None,
        reminder_timestamp_upperbound: float | None = None,
        latitude: float | None = None,
        longitude: float | None = None,
    ) -> list[Record]:
        """The reminders that meet all that is given; the content may be similar."""
        exact = {"reminder_id": reminder_id, "latitude": latitude, "longitude": longitude}
        between = {
            "creation_timestamp": (creation_timestamp_lowerbound, creation_timestamp_upperbound),
            "reminder_timestamp": (reminder_timestamp_lowerbound, reminder_timestamp_upperbound),
        }
        return await self._found("reminders", exact, {"content": content}, between)

    @tool
    def remove_reminder(self, reminder_id: Line) -> Text:
        """Remove a reminder."""
        return self._remove("reminders", "reminder_id", reminder_id)

    def _switch(self, setting: Setting, on: bool) -> Text:
        if on and setting != "low_battery_mode" and self.device.low_battery_mode:
            raise ToolError(f"PermissionError: {setting} cannot be switched on in low battery mode")
        if getattr(self.device, setting) == on:
            raise ToolError(f"ValueError: {setting} is already {'enabled' if on else 'disabled'}")
        setattr(self.device, setting, on)
        return Text("None")

    def _one(self, table: str, key: str, value: str) -> Record:
        for one in getattr(self.device, table):
            if one[key] == value:
                return one
        raise ToolError(f"NoDataError: there is no entry with {key} {value[:100]!r}")

    def _add(self, table: str, key: str, fields: Record) -> Text:
        records: list[Record] = getattr(self.device, table)
        if len(records) >= MOST_RECORDS:
            raise ToolError("MemoryError: the telephone is full")
        number = len(records) + 1
        while any(one[key] == f"{table[:-1]}-{number}" for one in records):
            number += 1
        records.append({key: f"{table[:-1]}-{number}", **fields})
        return Text(f"{table[:-1]}-{number}")

    def _modify(self, table: str, key: str, value: str, fields: Record) -> Text:
        given = {name: one for name, one in fields.items() if one is not _UNGIVEN}
        if not given:
            raise ToolError(f"ValueError: nothing to change was given; fields are {', '.join(fields)}")
        self._one(table, key, value).update(given)
        return Text("None")

    def _remove(self, table: str, key: str, value: str) -> Text:
        getattr(self.device, table).remove(self._one(table, key, value))
        return Text("None")

    async def _found(
        self,
        table: str,
        exact: Record,
        similar: dict[str, str | None],
        between: dict[str, tuple[float | None, float | None]] | None = None,
    ) -> list[Record]:
        bounds = {name: pair for name, pair in (between or {}).items() if pair != (None, None)}
        exact = {name: value for name, value in exact.items() if value is not None}
        alike = {name: value for name, value in similar.items() if value is not None}
        if not (exact or alike or bounds):
            raise ToolError("ValueError: nothing to search for was given")
        found: list[Record] = []
        for one in list(getattr(self.device, table)):
            await anyio.lowlevel.checkpoint()  # to compare texts of letters that repeat takes milliseconds
            if (
                all(one.get(name) == value for name, value in exact.items())
                and all(_similar(value, one.get(name)) for name, value in alike.items())
                and all(_within(one.get(name), *pair) for name, pair in bounds.items())
            ):
                found.append(dict(one))
        return found


def _check_phone(number: str) -> None:
    if not _PHONE.fullmatch(number):
        raise ToolError(f"ValueError: {number!r} is no phone number")


def _similar(query: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    wanted, text = query.casefold().strip()[:200], value.casefold()[:2000]
    return wanted in text or SequenceMatcher(None, wanted, text[:200], autojunk=False).ratio() >= ALIKE


def _within(value: Any, low: float | None, high: float | None) -> bool:
    return (
        isinstance(value, int | float) and (low is None or value >= low) and (high is None or value <= high)
    )
