"""Bodies that move under a law: integrated by the velocity form of Verlet's method.

Source: the choice of systems is NewtonBench's (arXiv 2510.07172); their details are our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from gym_resources.newton.controls import Controls
from gym_resources.newton.laws import Law

Measured = float | dict[str, float | list[float] | list[list[float]] | str]
CHARGE_DECAY_S = (10.0, 5.0)
MAINS_HZ = 50.0


def fall(law: Law, given: Controls, random: Random) -> Measured:
    """A mass on a line through a fixed one that attracts it."""
    first, second = given["mass1"], given["mass2"]

    def pull(time_s: float, x: float) -> float:
        return -math.copysign(law(first, second, abs(x)), x) / second

    times = given.times(5.0, 0.01)
    places, speeds = _line(times, given["distance"], given.get("initial_velocity", 0.0), pull)
    return {"time": times, "position": places, "velocity": speeds}


def orbit(law: Law, given: Controls, random: Random) -> Measured:
    """A mass in the plane around a fixed one; without a velocity of its own it starts on a circle."""
    first, second, radius = given["mass1"], given["mass2"], given["distance"]
    times = given.times(10.0, 0.1)
    step = times[1] if len(times) > 1 else 0.0

    def pull(x: float, y: float) -> tuple[float, float]:
        away = math.hypot(x, y)
        size = law(first, second, away) / second
        return -size * x / away, -size * y / away

    x, y, vx, vy = radius, 0.0, 0.0, 0.0
    vy = given.get("initial_velocity", math.sqrt(law(first, second, radius) * radius / second))
    places, speeds = [[x, y]], [[vx, vy]]
    ax, ay = pull(x, y)
    for _ in times[1:]:
        x, y = x + vx * step + ax * step**2 / 2, y + vy * step + ay * step**2 / 2
        bx, by = pull(x, y)
        vx, vy = vx + (ax + bx) * step / 2, vy + (ay + by) * step / 2
        ax, ay = bx, by
        places.append([x, y])
        speeds.append([vx, vy])
    return {"time": times, "position": places, "velocity": speeds}


def repelled(law: Law, given: Controls, random: Random) -> Measured:
    """The speed at which two free charges part, which lose their charge."""
    times, speeds = _parting(law, given)
    return {"time": times, "velocity": speeds}


def repelled_energy(law: Law, given: Controls, random: Random) -> Measured:
    """The kinetic energy of these two charges together."""
    times, speeds = _parting(law, given)
    one, other = given.get("m1", 1.0), given.get("m2", 1.0)
    reduced = one * other / (one + other)
    return {"time": times, "kinetic_energy": [reduced * speed**2 / 2 for speed in speeds]}


def attracted_wire(law: Law, given: Controls, random: Random) -> Measured:
    """A wire that a parallel one attracts, by its distance."""
    first, second, mass = given["current1"], given["current2"], given.get("mass_wire", 0.1)

    def pull(time_s: float, x: float) -> float:
        return -math.copysign(law(first, second, abs(x)), x) / mass

    times = given.times(1.0, 0.05)
    places, speeds = _line(times, given["distance"], given.get("initial_velocity", 0.0), pull)
    return {"time": times, "distance": places, "velocity": speeds}


def alternating(law: Law, given: Controls, random: Random) -> Measured:
    """The force on a wire over one period, while the current of the other alternates."""
    times = [number / (20 * MAINS_HZ) for number in range(20)]
    forces: list[float] = []
    for time_s in times:
        current = given["current1"] * math.sin(2 * math.pi * MAINS_HZ * time_s)
        forces.append(math.copysign(law(abs(current), given["current2"], given["distance"]), current))
    return {"time": times, "force": forces}


def _parting(law: Law, given: Controls) -> tuple[list[float], list[float]]:
    one, other = given.get("m1", 1.0), given.get("m2", 1.0)
    q1, q2 = given["q1"], given["q2"]

    def push(time_s: float, x: float) -> float:
        left, right = (math.exp(-time_s / tau) for tau in CHARGE_DECAY_S)
        return law(q1 * left, q2 * right, x) * (1 / one + 1 / other)

    times = given.times(5.0, 0.05)
    return times, _line(times, given["distance"], 0.0, push)[1]


def _line(
    times: Sequence[float], x: float, speed: float, acceleration: Callable[[float, float], float]
) -> tuple[list[float], list[float]]:
    """Places and speeds at the times."""
    places, speeds = [x], [speed]
    now = acceleration(0.0, x)
    for before, after in pairwise(times):
        step = after - before
        x += speed * step + now * step**2 / 2
        then = acceleration(after, x)
        speed += (now + then) * step / 2
        now = then
        places.append(x)
        speeds.append(speed)
    return places, speeds
