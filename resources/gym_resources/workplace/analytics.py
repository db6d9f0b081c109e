"""The website's analytics. The visits never change; a session's effects are its plots."""

from __future__ import annotations

from collections.abc import Callable

from gym_resources.workplace.office import Fields
from gym_resources.workplace.shared_parts import EARLIEST, LATEST, Desk, Given, action, day, lookup, quoted

_VALUES = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
_PLOT_TYPES = ("bar", "line", "scatter", "histogram")


class Analytics(Desk):
    @lookup
    def analytics_get_visitor_information_by_id(self, visitor_id: Given = None) -> list[Fields] | str:
        """Returns all visits of a visitor."""
        if not visitor_id:
            return "Visitor ID not provided."
        visits = self.tables.office.records["visits"]
        return [visit for visit in visits if visit["visitor_id"] == visitor_id] or "Visitor not found."

    @action
    def analytics_create_plot(
        self,
        time_min: Given = None,
        time_max: Given = None,
        value_to_plot: Given = None,
        plot_type: Given = None,
    ) -> str:
        """Plots total_visits, session_duration_seconds, user_engaged, visits_direct, visits_referral, visits_search_engine or visits_social_media from YYYY-MM-DD to YYYY-MM-DD as bar, line, scatter or histogram."""  # noqa: E501 - the model reads the first line
        if not time_min:
            return "Start date not provided."
        if not time_max:
            return "End date not provided."
        if value_to_plot not in _VALUES:
            return f"Value to plot must be one of {quoted(_VALUES)}."
        if plot_type not in _PLOT_TYPES:
            return f"Plot type must be one of {quoted(_PLOT_TYPES)}."
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.tables.plots.add({"file_path": path})
        return path

    @lookup
    def analytics_total_visits_count(self, time_min: Given = None, time_max: Given = None) -> dict[str, int]:
        """Counts the visits of each day, from YYYY-MM-DD to YYYY-MM-DD (inclusive)."""
        return self._daily(time_min, time_max, lambda visit: 1)

    @lookup
    def analytics_engaged_users_count(self, time_min: Given = None, time_max: Given = None) -> dict[str, int]:
        """Counts the engaged users of each day, from YYYY-MM-DD to YYYY-MM-DD (inclusive)."""
        return self._daily(time_min, time_max, lambda visit: int(visit["user_engaged"] == "True"))

    @lookup
    def analytics_traffic_source_count(
        self, time_min: Given = None, time_max: Given = None, traffic_source: Given = None
    ) -> dict[str, int]:
        """Counts each day's visits from a traffic_source: direct, referral, search engine or social media."""
        source = (traffic_source or "").lower()
        return self._daily(time_min, time_max, lambda visit: int(source in ("", visit["traffic_source"])))

    @lookup
    def analytics_get_average_session_duration(
        self, time_min: Given = None, time_max: Given = None
    ) -> dict[str, float]:
        """Returns the average session duration in seconds of each day, from YYYY-MM-DD to YYYY-MM-DD."""
        visits = self._daily(time_min, time_max, lambda visit: 1)
        seconds = self._daily(time_min, time_max, lambda visit: int(visit["session_duration_seconds"] or 0))
        return {date: seconds[date] / visits[date] for date in visits}

    def _daily(self, time_min: Given, time_max: Given, worth: Callable[[Fields], int]) -> dict[str, int]:
        """The sum over the visits of each day; days without visits are left out."""
        first, last = day(time_min, EARLIEST), day(time_max, LATEST)
        sums: dict[str, int] = {}
        for visit in self.tables.office.records["visits"]:
            date = visit["date_of_visit"] or ""
            if first <= date <= last:
                sums[date] = sums.get(date, 0) + worth(visit)
        return sums
