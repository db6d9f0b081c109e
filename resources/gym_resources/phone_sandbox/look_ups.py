"""The telephone's other tools: times, units, distances, and what it asks services on the network.

A service's answers stand in the row (``services``), so that no network is needed and answers stay the same.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import msgspec
from gym_runtime import ToolError, tool

from gym_resources.phone_sandbox.pocket_device import Device, DeviceTools, Line

EARTH_KM = 6371.0088
UNITS = {
    "metre": ("m", 1.0),
    "meter": ("m", 1.0),
    "m": ("m", 1.0),
    "km": ("m", 1000.0),
    "cm": ("m", 0.01),
    "kilometre": ("m", 1000.0),
    "kilometer": ("m", 1000.0),
    "mile": ("m", 1609.344),
    "mi": ("m", 1609.344),
    "inch": ("m", 0.0254),
    "foot": ("m", 0.3048),
    "feet": ("m", 0.3048),
    "ft": ("m", 0.3048),
    "yard": ("m", 0.9144),
    "centimetre": ("m", 0.01),
    "centimeter": ("m", 0.01),
    "gram": ("g", 1.0),
    "g": ("g", 1.0),
    "kilogram": ("g", 1000.0),
    "kg": ("g", 1000.0),
    "pound": ("g", 453.59237),
    "lb": ("g", 453.59237),
    "ounce": ("g", 28.349523125),
    "second": ("s", 1.0),
    "minute": ("s", 60.0),
    "hour": ("s", 3600.0),
    "day": ("s", 86400.0),
    "week": ("s", 604800.0),
    "litre": ("l", 1.0),
    "liter": ("l", 1.0),
    "gallon": ("l", 3.785411784),
    "millilitre": ("l", 0.001),
    "milliliter": ("l", 0.001),
    "cup": ("l", 0.2365882365),
}
CELSIUS = {
    "celsius": (1.0, 0.0),
    "fahrenheit": (5 / 9, -32.0),
    "kelvin": (1.0, -273.15),
}
Stamp = Annotated[float, msgspec.Meta(ge=-6e10, le=2e11)]
Few = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
Latitude = Annotated[float, msgspec.Meta(ge=-90, le=90)]
Longitude = Annotated[float, msgspec.Meta(ge=-180, le=180)]
Name = Annotated[str, msgspec.Meta(max_length=200)]


class Services(msgspec.Struct, frozen=True):
    """What the services on the network know.

    Attributes:
        places: each with ``name``, and whatever else is known; ``address`` is found by coordinates.
        weather: by day from today.
        stocks: by symbol.
        euros: what one unit of a currency is worth, by its code.
    """

    places: list[dict[str, Any]] = []
    weather: list[dict[str, Any]] = []
    stocks: dict[str, dict[str, Any]] = {}
    euros: dict[str, float] = {}


class LookUps(DeviceTools):
    def __init__(self, device: Device, services: Services) -> None:
        super().__init__(device)
        self.services = services

    @tool
    def get_current_timestamp(self) -> float:
        """The time now, as a POSIX timestamp."""
        return self.device.now

    @tool
    def timestamp_to_datetime_info(self, timestamp: Stamp) -> dict[str, int]:
        """Year, month, day, hour, minute, second and ISO weekday (1 to 7) of a POSIX timestamp, UTC."""
        at = _at(timestamp)
        return {name: getattr(at, name) for name in ("year", "month", "day", "hour", "minute", "second")} | {
            "isoweekday": at.isoweekday()
        }

    @tool
    def datetime_info_to_timestamp(
        self, year: int, month: int, day: int, hour: int, minute: int, second: int
    ) -> float:
        """The POSIX timestamp of a date and time, UTC."""
        try:
            return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
        except (ValueError, OverflowError) as error:
            raise ToolError(f"ValueError: {error}") from error

    @tool
    def shift_timestamp(
        self,
        timestamp: Stamp,
        weeks: Few = 0,
        days: Few = 0,
        hours: Few = 0,
        minutes: Few = 0,
        seconds: Few = 0,
    ) -> float:
        """A POSIX timestamp later, or earlier where numbers are negative."""
        by = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return timestamp + by.total_seconds()

    @tool
    def timestamp_diff(self, timestamp_0: Stamp, timestamp_1: Stamp) -> dict[str, int]:
        """How much later the second POSIX timestamp is, in days and seconds."""
        by = timedelta(seconds=timestamp_1 - timestamp_0)
        return {"days": by.days, "seconds": by.seconds}

    @tool
    def seconds_to_hours_minutes_seconds(self, seconds: Stamp) -> dict[str, int]:
        """A number of seconds as hours, minutes and seconds."""
        whole = int(seconds)
        return {"hour": whole // 3600, "minute": whole % 3600 // 60, "second": whole % 60}

    @tool
    def unit_conversion(self, amount: float, from_unit: Name, to_unit: Name) -> float:
        """Convert an amount of length, mass, time, volume or temperature; units by their English names."""
        old, new = (_unit(name) for name in (from_unit, to_unit))
        if old in CELSIUS and new in CELSIUS:
            (slope, shift), (back, unshift) = CELSIUS[old], CELSIUS[new]
            return round((amount + shift) * slope / back - unshift, 6)
        (kind, factor), (other, divisor) = UNITS.get(old, (old, 0.0)), UNITS.get(new, (new, 0.0))
        if not factor or not divisor:
            raise ToolError(f"UndefinedUnitError: {(new if factor else old)[:60]!r} is not a known unit")
        if kind != other:
            raise ToolError(f"ValueError: {old} cannot be converted to {new}")
        return round(amount * factor / divisor, 6)

    @tool
    def calculate_lat_lon_distance(
        self, latitude_0: Latitude, longitude_0: Longitude, latitude_1: Latitude, longitude_1: Longitude
    ) -> float:
        """The distance between two places, in kilometres."""
        south, north = math.radians(latitude_0), math.radians(latitude_1)
        east = math.radians(longitude_1 - longitude_0)
        half = (
            math.sin((north - south) / 2) ** 2 + math.cos(south) * math.cos(north) * math.sin(east / 2) ** 2
        )
        return round(2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half))), 3)

    @tool
    def search_holiday(
        self, holiday_name: Name, year: Annotated[int, msgspec.Meta(ge=1, le=9000)] | None = None
    ) -> float | None:
        """The POSIX timestamp of a federal holiday of the United States; null if it is not known."""
        self._online()
        wanted = holiday_name.casefold()
        for name, day in holidays(year or _at(self.device.now).year).items():
            if name in wanted or wanted in name:
                return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        return None

    @tool
    def search_lat_lon(self, latitude: Latitude, longitude: Longitude) -> str | None:
        """The address at a latitude and longitude; null if it is not known."""
        self._online()
        near = [one for one in self.services.places if _near(one, latitude, longitude)]
        return near[0].get("address") if near else None

    @tool
    def search_location_around_lat_lon(
        self, location: Name, latitude: Latitude | None = None, longitude: Longitude | None = None
    ) -> list[dict[str, Any]]:
        """Places of a name or kind around a latitude and longitude, or around where the telephone is."""
        self._online()
        self._here(latitude, longitude)
        wanted = location.casefold()
        texts = (
            (one, f"{one.get('name', '')} {one.get('category', '')}".casefold())
            for one in self.services.places
        )
        return [one for one, text in texts if wanted in text][:4]

    @tool
    def search_weather_around_lat_lon(
        self,
        days: Annotated[int, msgspec.Meta(ge=0, le=30)] = 0,
        latitude: Latitude | None = None,
        longitude: Longitude | None = None,
    ) -> dict[str, Any] | None:
        """The weather some days from now, around a place or where the telephone is; null if unknown."""
        self._online()
        self._here(latitude, longitude)
        return self.services.weather[days] if days < len(self.services.weather) else None

    @tool
    def search_stock(self, query: Line) -> dict[str, Any] | None:
        """A stock by its symbol or its company's name; null if it is not known."""
        self._online()
        wanted = query.casefold().strip()
        for symbol, stock in self.services.stocks.items():
            if wanted and (wanted == symbol.casefold() or wanted in str(stock.get("name", "")).casefold()):
                return {"symbol": symbol, **stock}
        return None

    @tool
    def convert_currency(self, amount: float, from_currency_code: Name, to_currency_code: Name) -> float:
        """Convert an amount of money between currencies, by their ISO 4217 codes."""
        self._online()
        codes = [code.upper() for code in (from_currency_code, to_currency_code)]
        for code in codes:
            if code not in self.services.euros:
                raise ToolError(f"ValueError: {code[:20]!r} is not a known currency code")
        return round(amount * self.services.euros[codes[0]] / self.services.euros[codes[1]], 2)

    def _online(self) -> None:
        if not self.device.wifi:
            raise ToolError("ConnectionError: wifi is not enabled")

    def _here(self, latitude: float | None, longitude: float | None) -> None:
        if (latitude is None) != (longitude is None):
            raise ToolError("ValueError: give both latitude and longitude, or neither")
        if latitude is None and not self.device.location_service:
            raise ToolError("PermissionError: location service is not enabled")


def holidays(year: int) -> dict[str, date]:
    """The federal holidays of the United States, by their names in lower case."""

    def nth(month: int, weekday: int, number: int) -> date:
        first = date(year, month, 1)
        return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (number - 1))

    memorial = date(year, 5, 31)
    return {
        "new year's day": date(year, 1, 1),
        "martin luther king": nth(1, 0, 3),
        "washington's birthday": nth(2, 0, 3),
        "presidents' day": nth(2, 0, 3),
        "memorial day": memorial - timedelta(days=memorial.weekday()),
        "juneteenth": date(year, 6, 19),
        "independence day": date(year, 7, 4),
        "labor day": nth(9, 0, 1),
        "columbus day": nth(10, 0, 2),
        "veterans day": date(year, 11, 11),
        "thanksgiving": nth(11, 3, 4),
        "christmas": date(year, 12, 25),
    }


def _at(timestamp: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=timestamp)


def _unit(name: str) -> str:
    lower = name.casefold().strip().replace("degrees ", "").replace("degree ", "")
    known = UNITS | CELSIUS
    return lower if lower in known or lower.removesuffix("s") not in known else lower.removesuffix("s")


def _near(place: dict[str, Any], latitude: float, longitude: float) -> bool:
    at = place.get("latitude"), place.get("longitude")
    return all(
        isinstance(one, int | float) and abs(one - wanted) < 0.001
        for one, wanted in zip(at, (latitude, longitude), strict=True)
    )
