"""What holds for any tool: definitions, pages, errors, null, and sessions that stay apart."""

from __future__ import annotations

from typing import Any

import pytest
from gym_resources.workplace.shared_parts import ACTIONS
from gym_resources.workplace_assistant import Workplace
from resources.workplace.office import CRM, EVENT, RAVI, answer, call, fresh, opened, resource


def test_all_27_tools_have_a_description_and_plain_types() -> None:
    definitions = [tool.definition() for tool in resource().tools.values()]
    assert len(definitions) == 27
    assert all(definition["description"] for definition in definitions)
    assert all(definition["parameters"]["required"] == [] for definition in definitions)


def test_only_actions_can_change_a_table() -> None:
    lookups = {
        name for name in resource().tools if any(word in name for word in ("_get_", "_search_", "_find_"))
    }
    counts = {name for name in resource().tools if name.endswith("_count")}
    assert set(resource().tools) - lookups - counts == ACTIONS


@pytest.mark.parametrize(
    ("name", "kind", "arguments"),
    [
        ("email_search_emails", "emails", {"query": "trade fair"}),
        ("calendar_search_events", "events", {"query": "review"}),
        (f"{CRM}_search_customers", "customers", {"status": "Lead"}),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 300])
def test_pages_cover_everything_once(
    office: Workplace, name: str, kind: str, arguments: dict[str, Any], size: int
) -> None:
    everything = call(office, name, **arguments, page_size=300)
    pages = everything["pagination"][f"total_{kind}"] // size + 2
    found: list[Any] = []
    for page in range(1, pages + 1):
        answered = call(office, name, **arguments, page=page, page_size=size)
        assert answered["pagination"]["page"] == page
        found += answered[kind]
    assert found == everything[kind]
    assert -(-len(found) // size) == answered["pagination"]["total_pages"]
    assert len(call(office, name, **arguments)[kind]) == 5


@pytest.mark.parametrize("wrong", [{"page": 0}, {"page_size": -1}, {"page": 10**30}])
def test_tool_that_raises_answers_with_the_reason(office: Workplace, wrong: dict[str, int]) -> None:
    said = call(office, "email_search_emails", **wrong)
    assert (
        said == "Error executing tool 'email_search_emails': page and page_size must be between 1 and 10000"
    )


def test_bad_date_answers_with_the_reason(office: Workplace) -> None:
    said = call(office, "analytics_total_visits_count", time_min="last week")
    assert said.startswith("Error executing tool 'analytics_total_visits_count': ")


def test_unknown_tool_answers_with_an_error(office: Workplace) -> None:
    assert call(office, "email_burn_email") == (
        "Error executing tool 'email_burn_email': there is no such tool"
    )


def test_null_is_as_good_as_nothing(office: Workplace) -> None:
    name = "email_search_emails"
    assert call(office, name, query="tea", date_min=None, page=None) == call(office, name, query="tea")


def test_wrong_type_is_refused_with_the_reason(office: Workplace) -> None:
    said = answer(office, "calendar_create_event", {**EVENT, "duration": [30]})
    assert "$.duration" in said
    assert office.tables.differing(fresh()) == []


def test_number_is_as_good_as_its_text(office: Workplace) -> None:
    other = opened()
    answer(office, "calendar_create_event", {**EVENT, "duration": 30})
    answer(other, "calendar_create_event", {**EVENT, "duration": "30"})
    assert office.tables.differing(fresh()) == ["calendar"]
    assert office.tables.differing(other.tables) == []


def test_unknown_argument_is_refused_and_changes_nothing(office: Workplace) -> None:
    said = answer(office, "calendar_create_event", {**EVENT, "color": "red"})
    assert "Error executing tool 'calendar_create_event'" in said
    assert "color" in said
    assert office.tables.differing(fresh()) == []


def test_sessions_do_not_see_each_other() -> None:
    first, second = opened(), opened()
    call(first, "email_delete_email", email_id="00000001")
    call(second, "email_send_email", recipient=RAVI, subject="Hi", body="Hi")
    assert second.tables.email.get("00000001") is not None
    assert first.tables.email.get("500") is None
