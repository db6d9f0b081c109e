"""The airports of the airline, with their cities."""

from __future__ import annotations

AIRPORTS = {
    line[:3]: line[4:]
    for line in """\
SFO San Francisco
JFK New York
LAX Los Angeles
ORD Chicago
DFW Dallas
DEN Denver
SEA Seattle
ATL Atlanta
MIA Miami
BOS Boston
PHX Phoenix
IAH Houston
LAS Las Vegas
MCO Orlando
EWR Newark
CLT Charlotte
MSP Minneapolis
DTW Detroit
PHL Philadelphia
LGA LaGuardia""".splitlines()
}
