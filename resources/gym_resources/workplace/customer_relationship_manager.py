"""The customers, the employee assigned to each, and the state of the sale."""

from __future__ import annotations

from gym_resources.workplace.shared_parts import (
    EARLIEST,
    LATEST,
    Answer,
    Desk,
    Given,
    action,
    day,
    delete_row,
    lookup,
    page_of,
    quoted,
)

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")


class CustomerRelationshipManager(Desk):
    @lookup
    def customer_relationship_manager_search_customers(
        self,
        customer_name: Given = None,
        customer_email: Given = None,
        product_interest: Given = None,
        status: Given = None,
        assigned_to_email: Given = None,
        last_contact_date_min: Given = None,
        last_contact_date_max: Given = None,
        follow_up_by_min: Given = None,
        follow_up_by_max: Given = None,
        page: int | None = None,
        page_size: int | None = None,
    ) -> Answer | str:
        """Searches customers whose fields contain the given texts. Dates are YYYY-MM-DD, inclusive."""
        parts = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        dates = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }
        spans = {
            name: (day(first, EARLIEST), day(last, LATEST))
            for name, (first, last) in dates.items()
            if first or last
        }
        if not spans and not any(parts.values()):
            return "No search parameters provided. Please provide at least one parameter."
        found = [
            fields
            for fields in self.tables.customers.matching(parts)
            if all(first <= (fields[name] or "") <= last for name, (first, last) in spans.items())
        ]
        return page_of("customers", found, page, page_size)

    @action
    def customer_relationship_manager_update_customer(
        self, customer_id: Given = None, field: Given = None, new_value: Given = None
    ) -> str:
        """Sets a customer's customer_name, assigned_to_email, customer_email, customer_phone, last_contact_date, product_interest, status, notes or follow_up_by."""  # noqa: E501 - the model reads the first line
        if not (customer_id and field and new_value):
            return "Customer ID, field, or new value not provided."
        if wrong := _wrong(field, new_value):
            return wrong
        customers = self.tables.customers
        if customers.get(customer_id) is None:
            return "Customer not found."
        if field not in customers.columns:
            return f"Field not valid. Please choose from: {quoted(sorted(customers.columns))}."
        customers.update(customer_id, field, new_value.lower() if field.endswith("_email") else new_value)
        return "Customer updated successfully."

    @action
    def customer_relationship_manager_add_customer(
        self,
        customer_name: Given = None,
        assigned_to_email: Given = None,
        status: Given = None,
        customer_email: Given = None,
        customer_phone: Given = None,
        last_contact_date: Given = None,
        product_interest: Given = None,
        notes: Given = "",
        follow_up_by: Given = None,
    ) -> str:
        """Adds a customer (customer_name, assigned_to_email, status: Qualified, Won, Lost, Lead or Proposal; product_interest: Software, Hardware, Services, Consulting or Training) and returns the ID."""  # noqa: E501 - the model reads the first line
        if not (customer_name and assigned_to_email and status):
            return "Please provide all required fields: customer_name, assigned_to_email, status."
        return self.tables.customers.add(
            {
                "assigned_to_email": assigned_to_email.lower(),
                "customer_name": customer_name,
                "customer_email": customer_email.lower() if customer_email else customer_email,
                "customer_phone": customer_phone,
                "last_contact_date": last_contact_date,
                "product_interest": product_interest,
                "status": status,
                "follow_up_by": follow_up_by,
                "notes": notes,
            }
        )

    @action
    def customer_relationship_manager_delete_customer(self, customer_id: Given = None) -> str:
        """Deletes a customer by its ID."""
        return delete_row(self.tables.customers, "Customer", customer_id)


def _wrong(name: str, value: str) -> str:
    """The error in a field's value; empty if it is valid."""
    if name == "status" and value not in STATUSES:
        return f"Status not valid. Please choose from: {quoted(STATUSES)}."
    if name == "product_interest" and value not in PRODUCTS:
        return f"Product interest not valid. Please choose from: {quoted(PRODUCTS)}."
    return ""
