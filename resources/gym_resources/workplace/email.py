"""The mailbox of the user. Sending adds a row to the outbox, dated at the fixed present."""

from __future__ import annotations

from gym_resources.workplace.office import Fields
from gym_resources.workplace.shared_parts import (
    EARLIEST,
    LATEST,
    NOW,
    Answer,
    Desk,
    Given,
    action,
    day,
    delete_row,
    is_address,
    lookup,
    one_field,
    page_of,
)


class Email(Desk):
    @lookup
    def email_get_email_information_by_id(self, email_id: Given = None, field: Given = None) -> Fields | str:
        """Returns an email's email_id, inbox/outbox, sender/recipient, subject, sent_datetime or body."""
        return one_field(self.tables.email, "Email", email_id, field)

    @lookup
    def email_search_emails(
        self,
        query: Given = None,
        date_min: Given = None,
        date_max: Given = None,
        page: int | None = None,
        page_size: int | None = None,
    ) -> Answer | str:
        """Searches emails, newest first: each word of query must occur. Dates are YYYY-MM-DD, inclusive."""
        first, last = day(date_min, EARLIEST), day(date_max, LATEST)
        found = [
            row.fields
            for row in self.tables.email.search(query or "")
            if first <= (row.fields["sent_datetime"] or "")[:10] <= last
        ]
        found.sort(key=lambda fields: fields["sent_datetime"] or "", reverse=True)
        return page_of("emails", found, page, page_size) if found else "No emails found."

    @action
    def email_send_email(self, recipient: Given = None, subject: Given = None, body: Given = None) -> str:
        """Sends an email to the recipient's address."""
        if not (recipient and subject and body):
            return "Recipient, subject, or body not provided."
        if not is_address(recipient):
            return "Invalid recipient email address."
        self._send(recipient, subject, body)
        return "Email sent successfully."

    @action
    def email_delete_email(self, email_id: Given = None) -> str:
        """Deletes an email by its ID."""
        return delete_row(self.tables.email, "Email", email_id)

    @action
    def email_forward_email(self, email_id: Given = None, recipient: Given = None) -> str:
        """Forwards an email to the recipient's address."""
        if not (email_id and recipient):
            return "Email ID or recipient not provided."
        if not is_address(recipient):
            return "Invalid recipient email address."
        email = self.tables.email.get(email_id)
        if email is None:
            return "Email not found."
        self._send(recipient, f"FW: {email['subject']}", email["body"])
        return "Email forwarded successfully."

    @action
    def email_reply_email(self, email_id: Given = None, body: Given = None) -> str:
        """Replies to an email by its ID."""
        if not (email_id and body):
            return "Email ID or body not provided."
        email = self.tables.email.get(email_id)
        if email is None:
            return "Email not found."
        self._send(email["sender/recipient"] or "", f"RE: {email['subject']}", body)
        return "Email replied successfully."

    def _send(self, recipient: str, subject: str, body: str | None) -> None:
        self.tables.email.add(
            {
                "inbox/outbox": "outbox",
                "sender/recipient": recipient.lower(),
                "subject": subject,
                "sent_datetime": NOW,
                "body": body,
            }
        )
