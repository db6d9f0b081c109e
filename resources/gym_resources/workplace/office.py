"""The data of an office: of the shipped one, or of the one that NeMo Gym's rows use.

Files are read once per process and shared by all sessions.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gym_runtime import Asset, assets

DATA = Path(__file__).parent / "data"
COMMIT = "5675816c20454ea9449eb47ea3935605b4d7461e"
SHIPPED = {
    "emails": "emails.csv",
    "events": "calendar_events.csv",
    "tasks": "project_tasks.csv",
    "customers": "customers.csv",
    "visits": "analytics.csv",
    "addresses": "company_directory.csv",
}
NEMO_GYM = {
    "emails": "processed/emails.csv",
    "events": "processed/calendar_events.csv",
    "tasks": "processed/project_tasks.csv",
    "customers": "processed/customer_relationship_manager_data.csv",
    "visits": "processed/analytics_data.csv",
    "addresses": "raw/email_addresses.csv",
}
TABLES = Asset(
    name="workplace-assistant-tables",
    description="the office's tables that NeMo Gym's rows are made on",
    licence="Apache-2.0",
    urls={
        file: f"https://raw.githubusercontent.com/NVIDIA-NeMo/Gym/{COMMIT}"
        f"/resources_servers/workplace_assistant/csv_data/{file}"
        for file in NEMO_GYM.values()
    },
    size_bytes=20_000_000,
    setting="GYM_WORKPLACE_DATA",
    page="https://github.com/NVIDIA-NeMo/Gym",
)
Name = Literal["brightmoor", "nemo_gym"]
Fields = dict[str, str | None]


class Office:
    """Tables by their names in `SHIPPED`; an empty cell of a file is None.

    Attributes:
        addresses: all e-mail addresses, in lower case.
        made: rows that `gym_resources.workplace.tables` makes of the records, once.
    """

    def __init__(self, files: Mapping[str, Path], *, directory_has_header: bool) -> None:
        self.records = {name: _read(path) for name, path in files.items() if name != "addresses"}
        with files["addresses"].open(encoding="utf-8", newline="") as file:
            lines = [line[0].strip().lower() for line in csv.reader(file) if line]
        self.addresses = lines[1:] if directory_has_header else lines
        self.made: dict[str, list[Any]] = {}


def office(name: Name) -> Office:
    """An office, read once per process.

    Raises:
        AssetMissing: its files are missing.
    """
    if name == "brightmoor":
        return _office(tuple(DATA / file for file in SHIPPED.values()), True)
    return _office(tuple(assets.find(TABLES, "workplace_assistant", *NEMO_GYM.values())), False)


@cache
def _office(paths: tuple[Path, ...], directory_has_header: bool) -> Office:
    return Office(dict(zip(SHIPPED, paths, strict=True)), directory_has_header=directory_has_header)


def _read(path: Path) -> list[Fields]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: value or None for name, value in line.items()} for line in csv.DictReader(file)]
