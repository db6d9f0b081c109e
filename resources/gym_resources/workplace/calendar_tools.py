"""The calendar of the user. An event has one participant, a start and a duration in minutes."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from gym_resources.workplace.office import Fields
from gym_resources.workplace.shared_parts import (
    Answer,
    Desk,
    Given,
    action,
    delete_row,
    is_count,
    is_moment,
    lookup,
    moment,
    one_field,
    page_of,
)
from gym_resources.workplace.tables import ID_DIGITS

BAD_ID = "Event ID not valid: it has 8 digits."
_UPDATABLE = ("event_name", "participant_email", "event_start", "duration")


class Calendar(Desk):
    @lookup
    def calendar_get_event_information_by_id(
        self, event_id: Given = None, field: Given = None
    ) -> Fields | str:
        """Returns a field of an event: event_id, event_name, participant_email, event_start or duration."""
        return one_field(self.tables.calendar, "Event", event_id, field)

    @lookup
    def calendar_search_events(
        self,
        query: Given = None,
        time_min: Given = None,
        time_max: Given = None,
        page: int | None = None,
        page_size: int | None = None,
    ) -> Answer | str:
        """Searches events by name and participant, from time_min to time_max (YYYY-MM-DD HH:MM:SS)."""
        first, last = time_min and moment(time_min), time_max and moment(time_max)
        found = [
            row.fields
            for row in self.tables.calendar.search(query or "")
            if not (last and _start(row.fields) > last)
            and not (first and _end(_start(row.fields), row.fields["duration"] or "") < first)
        ]
        found.sort(key=_start)
        return page_of("events", found, page, page_size) if found else "No events found."

    @action
    def calendar_create_event(
        self,
        event_name: Given = None,
        participant_email: Given = None,
        event_start: Given = None,
        duration: Given = None,
    ) -> str:
        """Creates an event and returns its ID; event_start is YYYY-MM-DD HH:MM:SS, duration is in minutes."""
        if not event_name:
            return "Event name not provided."
        if not participant_email:
            return "Participant email not provided."
        if not event_start:
            return "Event start not provided."
        if not duration:
            return "Event duration not provided."
        if wrong := _wrong("event_start", event_start) or _wrong("duration", duration):
            return wrong
        return self.tables.calendar.add(
            {
                "event_name": event_name,
                "participant_email": participant_email.lower(),
                "event_start": event_start,
                "duration": duration,
            }
        )

    @action
    def calendar_delete_event(self, event_id: Given = None) -> str:
        """Deletes an event by its ID."""
        if event_id and not _is_id(event_id):
            return BAD_ID
        return delete_row(self.tables.calendar, "Event", event_id)

    @action
    def calendar_update_event(
        self, event_id: Given = None, field: Given = None, new_value: Given = None
    ) -> str:
        """Sets a field of an event: event_name, participant_email, event_start or duration."""
        if not (event_id and field and new_value):
            return "Event ID, field, or new value not provided."
        if not _is_id(event_id):
            return BAD_ID
        if field not in _UPDATABLE:
            return "Field not found."
        if wrong := _wrong(field, new_value):
            return wrong
        value = new_value.lower() if field == "participant_email" else new_value
        updated = self.tables.calendar.update(event_id, field, value)
        return "Event updated successfully." if updated else "Event not found."


def _is_id(text: str) -> bool:
    return len(text) == ID_DIGITS and text.isdigit()


def _wrong(name: str, value: str) -> str:
    """The error in a field's value; empty if it is valid."""
    if name == "event_start" and not is_moment(value):
        return "Event start not valid. Please write it as YYYY-MM-DD HH:MM:SS."
    if name == "duration" and not is_count(value):
        return "Duration must be a positive number of minutes."
    return ""


def _start(fields: Fields) -> str:
    return fields["event_start"] or ""


@lru_cache(4096)
def _end(start: str, duration: str) -> str:
    """When an event ends; its start, if the model wrote a start or a duration that makes no sense."""
    try:
        end = datetime.fromisoformat(start) + timedelta(minutes=float(duration))
        return end.isoformat(" ", "seconds")
    except (ValueError, OverflowError):
        return start
