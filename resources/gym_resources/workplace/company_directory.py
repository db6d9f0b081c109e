"""The company directory: the employees. It never changes."""

from __future__ import annotations

from gym_resources.workplace.shared_parts import Desk, Given, lookup


class CompanyDirectory(Desk):
    @lookup
    def company_directory_find_email_address(self, name: Given = None) -> list[str] | str:
        """Finds the email addresses that contain a name or a part of one, in any case."""
        if not name:
            return "Name not provided."
        return [address for address in self.tables.office.addresses if name.lower() in address]
