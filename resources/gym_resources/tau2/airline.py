"""The airline: reservations of flights, with the tools, rules and prices of tau2-bench.

What the tools allow is less than what the policy does: keeping to the policy is the model's part.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import date as calendar_date
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from gym_runtime import Text

from gym_resources.tau2.airports import AIRPORTS
from gym_resources.tau2.customer_service import Service
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record
from gym_resources.tau2.task import ServiceTask

NOW = "2024-05-15T15:00:00"
NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
BAG, INSURANCE = 50, 30
Cabin = Literal["business", "economy", "basic_economy"]


class FlightInfo(msgspec.Struct, frozen=True):
    flight_number: str
    date: str


class Passenger(msgspec.Struct, frozen=True):
    first_name: str
    last_name: str
    dob: str


class Payment(msgspec.Struct, frozen=True):
    payment_id: str
    amount: int


FEW = msgspec.Meta(max_length=50)
Flights = Annotated[list[FlightInfo], FEW]
Passengers = Annotated[list[Passenger], FEW]
Payments = Annotated[list[Payment], FEW]


class AirlineTask(ServiceTask, kw_only=True):
    served = "airline"


class Airline(Service[AirlineTask]):
    @tool
    def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: Literal["round_trip", "one_way"],
        cabin: Cabin,
        flights: Flights,
        passengers: Passengers,
        payment_methods: Payments,
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Literal["yes", "no"],
    ) -> Record:
        """Book flights for a user; the payments must add up to the price of seats, bags and insurance."""
        user = self.find("users", user_id, "user")
        number = next((one for one in NEW_RESERVATIONS if not self.records.find("reservations", one)), None)
        if number is None:
            raise error("no more reservations can be made")
        legs = [self._leg(flight, cabin, len(passengers)) for flight in flights]
        price = len(passengers) * (sum(leg["price"] for leg in legs) + INSURANCE * (insurance == "yes"))
        price += BAG * nonfree_baggages
        if len({payment.payment_id for payment in payment_methods}) < len(payment_methods):
            raise error("each payment method can be used once")
        for payment in payment_methods:
            method = _method(user, payment.payment_id)
            if method["source"] != "credit_card" and method["amount"] < payment.amount:
                raise error(f"payment method {payment.payment_id} does not cover {payment.amount}")
        paid = sum(payment.amount for payment in payment_methods)
        if paid != price:
            raise error(f"the payments add up to {paid}, but the price is {price}")
        user = self.records.change("users", user_id)
        for payment in payment_methods:
            method = _method(user, payment.payment_id)
            if method["source"] == "gift_card":
                method["amount"] -= payment.amount
            elif method["source"] == "certificate":
                del user["payment_methods"][payment.payment_id]
        for flight in flights:
            record = self.records.change("flights", flight.flight_number)
            record["dates"][flight.date]["available_seats"][cabin] -= len(passengers)
        reservation = {
            "reservation_id": number,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": legs,
            "passengers": msgspec.to_builtins(passengers),
            "payment_history": msgspec.to_builtins(payment_methods),
            "created_at": NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
            "status": None,
        }
        self.records.add("reservations", number, reservation)
        user["reservations"].append(number)
        return reservation

    @tool
    def cancel_reservation(self, reservation_id: str) -> Record:
        """Cancel a whole reservation; what was paid is paid back."""
        self.find("reservations", reservation_id, "reservation")
        reservation = self.records.change("reservations", reservation_id)
        history = reservation["payment_history"]
        history += [{"payment_id": one["payment_id"], "amount": -one["amount"]} for one in history]
        reservation["status"] = "cancelled"
        return reservation

    @tool
    def get_reservation_details(self, reservation_id: str) -> Record:
        """Show a reservation, such as 'ZFA04Y'."""
        return self.find("reservations", reservation_id, "reservation")

    @tool
    def get_user_details(self, user_id: str) -> Record:
        """Show a user, such as 'sara_doe_496', with payment methods and the numbers of reservations."""
        return self.find("users", user_id, "user")

    @tool
    def list_all_airports(self) -> list[dict[str, str]]:
        """List all airports with their cities."""
        return [{"iata": iata, "city": city} for iata, city in AIRPORTS.items()]

    @tool
    def search_direct_flight(self, origin: str, destination: str, date: str) -> list[Record]:
        """Find the direct flights with seats between two airports, such as 'JFK', on a date (YYYY-MM-DD)."""
        return self._available(date, origin=origin, destination=destination)

    @tool
    def search_onestop_flight(self, origin: str, destination: str, date: str) -> list[list[Record]]:
        """Find the pairs of flights with one stop between two airports on a date (YYYY-MM-DD)."""
        found: list[list[Record]] = []
        for first in self._available(date, origin=origin):
            arrival, _, next_day = first["scheduled_arrival_time_est"].partition("+")
            onward = _following(date) if next_day else date
            for second in self._available(onward, first["destination"], destination, arrival):
                found.append([{**first, "date": date}, {**second, "date": onward}])
        return found

    @tool
    def send_certificate(self, user_id: str, amount: int) -> Text:
        """Give a user a certificate over an amount, in dollars."""
        methods = self.find("users", user_id, "user")["payment_methods"]
        name = next((one for one in NEW_CERTIFICATES if one not in methods), None)
        if name is None:
            raise error("no more certificates can be sent")
        user = self.records.change("users", user_id)
        user["payment_methods"][name] = {"source": "certificate", "id": name, "amount": amount}
        return Text(f"Certificate {name} over {amount} added to user {user_id}.")

    @tool
    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Record:
        """Set the numbers of a reservation's bags; further ones that are not free are paid for."""
        reservation = self.find("reservations", reservation_id, "reservation")
        self._settle(
            reservation, payment_id, BAG * max(0, nonfree_baggages - reservation["nonfree_baggages"])
        )
        reservation = self.records.change("reservations", reservation_id)
        reservation["total_baggages"] = total_baggages
        reservation["nonfree_baggages"] = nonfree_baggages
        return reservation

    @tool
    def update_reservation_flights(
        self, reservation_id: str, cabin: Cabin, flights: Flights, payment_id: str
    ) -> Record:
        """Set the cabin and all flights of a reservation, also those that stay; the difference is settled."""
        reservation = self.find("reservations", reservation_id, "reservation")
        count = len(reservation["passengers"])
        legs: list[Record] = []
        for flight in flights:
            kept = next(
                (
                    leg
                    for leg in reservation["flights"]
                    if (leg["flight_number"], leg["date"]) == (flight.flight_number, flight.date)
                    and reservation["cabin"] == cabin
                ),
                None,
            )
            legs.append(deepcopy(kept) if kept else self._leg(flight, cabin, count))
        old = sum(leg["price"] for leg in reservation["flights"])
        self._settle(reservation, payment_id, count * (sum(leg["price"] for leg in legs) - old))
        reservation = self.records.change("reservations", reservation_id)
        reservation |= {"flights": legs, "cabin": cabin}
        return reservation

    @tool
    def update_reservation_passengers(self, reservation_id: str, passengers: Passengers) -> Record:
        """Set the passengers of a reservation; their number stays."""
        reservation = self.find("reservations", reservation_id, "reservation")
        if len(passengers) != len(reservation["passengers"]):
            raise error("the number of passengers cannot be changed")
        reservation = self.records.change("reservations", reservation_id)
        reservation["passengers"] = msgspec.to_builtins(passengers)
        return reservation

    @tool
    def get_flight_status(self, flight_number: str, date: str) -> Text:
        """Show the status of a flight on a date (YYYY-MM-DD)."""
        return Text(self._on(flight_number, date)["status"])

    def _on(self, flight_number: str, date: str) -> Record:
        found = self.find("flights", flight_number, "flight")["dates"].get(date)
        if found is None:
            raise error(f"flight {flight_number} does not go on {date[:20]!r}")
        return found

    def _leg(self, flight: FlightInfo, cabin: Cabin, passengers: int) -> Record:
        """A flight as a part of a reservation, if there are seats."""
        record, day = self.find("flights", flight.flight_number, "flight"), self._on(*_key(flight))
        if day["status"] != "available":
            raise error(f"flight {flight.flight_number} is not available on {flight.date}")
        if day["available_seats"][cabin] < passengers:
            raise error(f"flight {flight.flight_number} does not have enough seats on {flight.date}")
        return {
            "origin": record["origin"],
            "destination": record["destination"],
            "flight_number": flight.flight_number,
            "date": flight.date,
            "price": day["prices"][cabin],
        }

    def _available(
        self, date: str, origin: str, destination: str | None = None, after: str = ""
    ) -> list[Record]:
        found: list[Record] = []
        for flight in self.records.all("flights"):
            day = flight["dates"].get(date, {"status": ""})
            if (
                flight["origin"] == origin
                and destination in (None, flight["destination"])
                and day["status"] == "available"
                and flight["scheduled_departure_time_est"] >= after
            ):
                found.append({name: value for name, value in flight.items() if name != "dates"} | day)
        return found

    def _settle(self, reservation: Record, payment_id: str, amount: int) -> None:
        """Charge an amount, or pay it back, and note it in the reservation."""
        method = _method(self.find("users", reservation["user_id"], "user"), payment_id)
        if method["source"] == "certificate":
            raise error("a certificate cannot pay for a change")
        if method["source"] == "gift_card":
            if method["amount"] < amount:
                raise error(f"gift card {payment_id} does not cover {amount}")
            user = self.records.change("users", reservation["user_id"])
            user["payment_methods"][payment_id]["amount"] -= amount
        if amount:
            changed = self.records.change("reservations", reservation["reservation_id"])
            changed["payment_history"].append({"payment_id": payment_id, "amount": amount})


def _key(flight: FlightInfo) -> tuple[str, str]:
    return flight.flight_number, flight.date


def _method(user: Record, payment_id: str) -> Record:
    found = user["payment_methods"].get(payment_id)
    if found is None:
        raise error(f"the user has no payment method {payment_id[:100]!r}")
    return found


def _following(date: str) -> str:
    """The day after."""
    return str(calendar_date.fromisoformat(date) + timedelta(days=1))
