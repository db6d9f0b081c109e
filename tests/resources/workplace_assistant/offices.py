"""Rows of offices and what changes in them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from resources.workplace.office import (
    CRM,
    NO_SUCH,
    PM,
    RAVI,
    Call,
    resource,
)

SEND = ("email_send_email", {"recipient": RAVI, "subject": "Tea", "body": "At four?"})


REMOVE = (f"{CRM}_delete_customer", {"customer_id": "00000003"})


DROP = (f"{PM}_delete_task", {"task_id": "00000003"})


IDS = st.sampled_from(["00000000", "00000001", "00000300", "00000500", NO_SUCH])


TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["Backlog", "Design", "Lead", "Software", "2023-11-30", "12:00", "Won", RAVI, "notes"]),
)


@st.composite
def calls(draw: st.DrawFn, names: tuple[str, ...] = tuple(resource().tools)) -> Call:
    """A call that is mostly in order."""
    name = draw(st.sampled_from(names))
    arguments: dict[str, Any] = {}
    for parameter in resource().tools[name].definition()["parameters"]["properties"]:
        if parameter.startswith("page"):
            values: st.SearchStrategy[Any] = st.integers(-1, 3)
        elif parameter.endswith("_id"):
            values = IDS
        elif parameter == "field":
            values = st.sampled_from(["status", "board", "list_name", "duration", "notes", "task_id"])
        else:
            values = TEXTS
        if draw(st.integers(0, 9)):
            arguments[parameter] = draw(st.one_of(values, st.none()))
    return name, arguments
