"""Writes the office's tables, the CSV files in this folder: ``python generate.py``.

Every run writes the same files. People, companies and addresses are invented; their domains are under
``.example``, which is reserved. The present is the night of Thursday, 2023-11-30. There are as many rows of
each kind as in WorkBench (arXiv:2405.00823), so that ids of the rows made from it exist here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent
TODAY = date(2023, 11, 30)
DOMAIN = "brightmoor.example"
EMAILS, EVENTS, VISITS, TASKS, CUSTOMERS = 500, 300, 500, 300, 200

Record = dict[str, str]

PEOPLE = """
    Adaeze Nwosu|Anselm Krüger|Beatriz Moura|Bram Hoekstra|Chiara Fontana|Dagny Solberg|Dmitri Volkov
    Eilidh Fraser|Emeka Balogun|Esra Yildiz|Farah Haddad|Gareth Pugh|Hana Novotna|Hiroto Sakai|Ines Duarte
    Ivan Petkov|Jorunn Vik|Kavya Menon|Kofi Mensah|Leila Rahimi|Linh Tran|Mateus Pinto|Mirela Ionescu
    Nadia Cohen|Niall Brennan|Oksana Bondar|Omar Siddiqui|Paula Wiese|Priya Nair|Quentin Lemaire|Ravi Joshi
    Rosa Quispe|Selma Lind|Tariq Aziz|Tessa Vermeer|Tomasz Zielinski|Uma Krishnan|Viggo Dahl|Wanjiru Kamau
    Yusuf Demir|Zofia Wrona|Zubin Contractor
"""
TEAMS = {"Back end": slice(0, 7), "Front end": slice(7, 13), "Design": slice(13, 18)}
SALES = slice(18, 26)

EVENT_NAMES = """
    Sprint planning|Budget review|Design critique|One-to-one|Release rehearsal|Hiring panel|Security training
    Customer workshop|Roadmap session|Incident review|Marketing sync|Data quality review|Vendor call
    Onboarding session|Retrospective|Accessibility clinic|Pricing discussion|Quarterly forecast
"""
TASK_NAMES = {
    "Back end": """
        Speed up|Add retries to|Write tests for|Clean up|Fix the time zones in|Add metrics to
        """,
    "Front end": """
        Fix the layout of|Add keyboard control to|Translate|Show errors in|Load lazily|Add dark colours to
        """,
    "Design": """
        Draw icons for|Sketch the empty state of|Review the contrast of|Make a prototype of|Rework the flow of
        """,
}
PARTS = """
    the login page|the invoice export|the search index|the booking form|the settings page|the report builder
    the mobile menu|the notification centre|the payment service|the image upload|the help pages|the dashboard
"""
TOPICS = """
    the office move|the travel policy|the summer party|the new laptops|the training budget|the team survey
    the printer contract|the parking spaces|the product launch|the press release|the trade fair
    the partner programme
"""
MAIL_BODIES = """
    I have gone through the figures and left my comments in the shared folder.
    Could you send me your numbers by the end of the week?
    We are a little behind, but the plan still holds.
    The supplier has answered, and the price is lower than we feared.
    Please have a look when you find the time; there is no hurry.
    I will bring it up in our next meeting.
    Two people have asked me about this today, so it seems to matter.
    Let me know if anything is missing.
    The draft is ready for your review.
    Thank you for the quick help last time.
"""
CUSTOMER_FIRST_NAMES = """
    Aldo|Bela|Cora|Dario|Elif|Finn|Greta|Hugo|Ida|Jonas|Kira|Luca|Maren|Nils|Orla|Pia|Rune|Sara
"""
CUSTOMER_LAST_NAMES = """
    Abara|Brandt|Castell|Dunmore|Ekholm|Ferrante|Gallo|Hartwig|Ibsen|Jarvis|Kessler|Lorca
"""
COMPANIES = "northquay|silverpine|redtower|bluecanal|oldmill|greyharbour|goldleaf|stonebridge"
NOTES = ["Had a call.", "Met at the trade fair.", "Sent a quote.", "Asked for a demo.", "Wants a discount."]
STATUSES = ["Qualified", "Won", "Lost", "Lead", "Proposal"]
PRODUCTS = ["Software", "Hardware", "Services", "Consulting", "Training"]
SOURCES = ["direct", "referral", "search engine", "social media"]


def _choices(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split("|")]


def directory() -> list[str]:
    """The address of each person, in the order of `PEOPLE`."""
    plain = str.maketrans("ü", "u")
    return [f"{name.lower().translate(plain).replace(' ', '.')}@{DOMAIN}" for name in _choices(PEOPLE)]


def emails(random: Random) -> Iterator[Record]:
    bodies = _choices(MAIL_BODIES)
    openings = ["Update on", "Question about", "Reminder:", "Next steps for", "Your view on"]
    for number in random.sample(range(EMAILS), EMAILS):
        sender = random.choice(directory())
        name = sender.split(".")[0].capitalize()
        sent = datetime.combine(_workday(random, -90, 0), datetime.min.time()) + timedelta(
            minutes=random.randrange(8 * 60, 18 * 60), seconds=random.randrange(60)
        )
        outgoing = random.random() < 0.25
        signature = "Sam" if outgoing else name
        yield {
            "email_id": f"{number:08}",
            "inbox/outbox": "outbox" if outgoing else "inbox",
            "sender/recipient": sender,
            "subject": f"{random.choice(openings)} {random.choice(_choices(TOPICS))}",
            "sent_datetime": sent.isoformat(" "),
            "body": f"{' '.join(random.sample(bodies, random.randint(1, 3)))} {signature}",
        }


def events(random: Random) -> Iterator[Record]:
    """Meetings between 9 and 18 o'clock on workdays; no two overlap."""
    taken: set[datetime] = set()
    numbers = random.sample(range(EVENTS), EVENTS)
    while numbers:
        slots = random.choice([1, 1, 1, 2, 2, 3, 4])
        first = random.randint(18, 36 - slots)
        midnight = datetime.combine(_workday(random, -60, 45), datetime.min.time())
        start = midnight + timedelta(minutes=30 * first)
        slot_times = {start + timedelta(minutes=30 * slot) for slot in range(slots)}
        if slot_times & taken:
            continue
        taken |= slot_times
        yield {
            "event_id": f"{numbers.pop():08}",
            "event_name": random.choice(_choices(EVENT_NAMES)),
            "participant_email": random.choice(directory()),
            "event_start": start.isoformat(" "),
            "duration": str(30 * slots),
        }


def visits(random: Random) -> Iterator[Record]:
    for _ in range(VISITS):
        views = random.randint(1, 20)
        yield {
            "date_of_visit": (TODAY - timedelta(days=random.randrange(90))).isoformat(),
            "visitor_id": f"{random.randrange(1000, 1400)}",
            "page_views": str(views),
            "session_duration_seconds": str(views * random.randint(1, 5)),
            "traffic_source": random.choice(SOURCES),
            "user_engaged": str(random.random() < 0.3),
        }


def tasks(random: Random) -> Iterator[Record]:
    people = directory()
    for number in random.sample(range(TASKS), TASKS):
        board = random.choice(list(TEAMS))
        list_name = random.choice(["Backlog", "In Progress", "In Review", "Completed"])
        due = _workday(random, -40, 0) if list_name == "Completed" else _workday(random, -5, 25)
        yield {
            "task_id": f"{number:08}",
            "task_name": f"{random.choice(_choices(TASK_NAMES[board]))} {random.choice(_choices(PARTS))}",
            "assigned_to_email": random.choice(people[TEAMS[board]]),
            "list_name": list_name,
            "due_date": due.isoformat(),
            "board": board,
        }


def customers(random: Random) -> Iterator[Record]:
    names = [
        f"{first} {last}"
        for first in _choices(CUSTOMER_FIRST_NAMES)
        for last in _choices(CUSTOMER_LAST_NAMES)
    ]
    numbers = random.sample(range(CUSTOMERS), CUSTOMERS)
    for number, name in zip(numbers, random.sample(names, CUSTOMERS), strict=True):
        domain = f"{random.choice(_choices(COMPANIES))}.example"
        contact = _workday(random, -75, 0)
        noted = contact - timedelta(days=random.randrange(20))
        yield {
            "customer_id": f"{number:08}",
            "assigned_to_email": random.choice(directory()[SALES]),
            "customer_name": name,
            "customer_email": f"{name.lower().replace(' ', '.')}@{domain}",
            "customer_phone": f"{random.randrange(200, 999)}-555-01{random.randrange(100):02}",
            "last_contact_date": contact.isoformat(),
            "product_interest": random.choice(PRODUCTS),
            "status": random.choice(STATUSES),
            "follow_up_by": (contact + timedelta(days=random.randrange(10, 60))).isoformat(),
            "notes": f"{noted}: {random.choice(NOTES)}",
        }


def _workday(random: Random, first: int, last: int) -> date:
    """A day from Monday to Friday, so many days from today."""
    while (day := TODAY + timedelta(days=random.randint(first, last))).weekday() > 4:
        pass
    return day


def main(folder: Path = FOLDER) -> None:
    """Write all tables."""
    made = {
        "emails": sorted(emails(Random(1)), key=lambda row: row["email_id"]),
        "calendar_events": sorted(events(Random(2)), key=lambda row: row["event_id"]),
        "analytics": sorted(visits(Random(3)), key=lambda row: row["date_of_visit"]),
        "project_tasks": sorted(tasks(Random(4)), key=lambda row: row["task_id"]),
        "customers": sorted(customers(Random(5)), key=lambda row: row["customer_id"]),
        "company_directory": [{"email_address": address} for address in sorted(directory())],
    }
    for name, rows in made.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
