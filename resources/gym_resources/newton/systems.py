"""Experiments that do not move: heat, light, decay, oscillation, sound, springs, radiation.

Source: the choice of systems is NewtonBench's (arXiv 2510.07172); their details are our own.
"""

from __future__ import annotations

import math
from random import Random

from gym_resources.newton.controls import Controls, spread
from gym_resources.newton.laws import Law
from gym_resources.newton.motions import Measured

LIGHT_M_S = 3e8
DETECTED = 0.7
DAMPING_PER_S = 3.0
RETENTION_M = 0.02
END_CORRECTION = 0.3
HEAT_PER_S = 100.0
BAND_STEPS = 200


def temperatures(law: Law, given: Controls, random: Random) -> Measured:
    """The temperature along a wall through which heat flows."""
    k, area, delta, depth = (given[name] for name in ("k", "A", "delta_T", "d"))
    power = law(k, area, delta, depth)
    places = spread(depth, given.points())
    return {"depth": places, "temperature": [delta - power / (k * area) * x for x in places]}


def heat_fluxes(law: Law, given: Controls, random: Random) -> Measured:
    """The heat flux along a wall whose temperature falls exponentially."""
    k, area, delta, depth = (given[name] for name in ("k", "A", "delta_T", "d"))
    power = law(k, area, delta, depth)
    places = spread(depth, given.points())
    fluxes = [power / area * math.exp(-x * power / (k * area * delta)) for x in places]
    return {"depth": places, "heat_flux": fluxes}


def refraction_by_speed(law: Law, given: Controls, random: Random) -> Measured:
    """The angle of refraction, where the speeds of light are set instead of the indices."""
    first, second = (LIGHT_M_S / given[name] for name in ("speed_medium1", "speed_medium2"))
    return {"refraction_angle": law(first, second, given["incidence_angle"])}


def three_layers(law: Law, given: Controls, random: Random) -> Measured:
    """The angle after two refractions."""
    indices = [given[f"refractive_index_{number}"] for number in (1, 2, 3)]
    between = _folded(law(indices[0], indices[1], given["incidence_angle"]))
    last = _folded(law(indices[1], indices[2], between))
    return {"final_refraction_angle": "invalid" if math.isnan(last) else last}


def _folded(angle: float) -> float:
    """An angle between a ray and a surface's normal: from 0 to 90 degrees."""
    turned = abs(angle) % 180
    return min(turned, 180 - turned)


def activity(law: Law, given: Controls, random: Random) -> Measured:
    """What a detector that misses some sees of a decay, up to a time."""
    points = given.points()
    times = [given["t"] * (number + 1) / points for number in range(points)]
    seen = [DETECTED * law(given["N0"], given["lambda_constant"], time_s) for time_s in times]
    return {"time": times, "measured_activity": seen}


def isotope_ratio(law: Law, given: Controls, random: Random) -> Measured:
    """How many of one isotope are left for one of another."""
    one, other = (law(given[f"N0{name}"], given[f"lambda_{name}"], given["t"]) for name in "ab")
    return {"ratio": one / other}


def period(law: Law, given: Controls, random: Random) -> Measured:
    """The period of an oscillation."""
    return {"period": 2 * math.pi / _frequency(law, given)}


def oscillation(law: Law, given: Controls, random: Random) -> Measured:
    """Two periods of an oscillation that is damped as by a friction of a known size."""
    omega, amplitude = _frequency(law, given), given.get("initial_amplitude", 1.0)
    times = spread(4 * math.pi / omega, 20)
    places = [amplitude * math.exp(-DAMPING_PER_S * t) * math.cos(omega * t) for t in times]
    return {"time": times, "displacement": places}


def _frequency(law: Law, given: Controls) -> float:
    return law(given["k_constant"], given["mass"], given["b_constant"])


def transmission(law: Law, given: Controls, random: Random) -> Measured:
    """The share of the light that a polariser lets through."""
    return {"transmission": law(given["I_0"], given["theta"]) / given["I_0"]}


def two_polarisers(law: Law, given: Controls, random: Random) -> Measured:
    """What a second polariser at the same angle leaves, less what came in."""
    once = law(given["I_0"], given["theta"])
    return {"intensity_difference": law(once, given["theta"]) - given["I_0"]}


def echo(law: Law, given: Controls, random: Random) -> Measured:
    """The time in which an echo comes back."""
    return {"echo_time": 2 * given["distance"] / _sound(law, given)}


def resonance(law: Law, given: Controls, random: Random) -> Measured:
    """The first two lengths at which a tube with one closed end resounds."""
    wave = _sound(law, given) / given["driving_frequency"]
    correction = END_CORRECTION * given["tube_diameter"]
    return {
        "first_length": max(0.0, wave / 4 - correction),
        "second_length": max(0.0, 3 * wave / 4 - correction),
    }


def _sound(law: Law, given: Controls) -> float:
    return law(given["adiabatic_index"], given["temperature"], given["molar_mass"])


def launch(law: Law, given: Controls, random: Random) -> Measured:
    """What a spring gives a mass: its energy and a drag that grows with the stretch."""
    stored = law(given["x"])
    speed = math.sqrt(2 * stored / given["m"])
    return {"energy": given["m"] * speed**2 / 2 + 0.2 * given["x"] * speed**2}


def lossy_launch(law: Law, given: Controls, random: Random) -> Measured:
    """The speed of a mass behind a spring that loses some of it."""
    return {"velocity": math.exp(-given["x"] / RETENTION_M) * math.sqrt(2 * law(given["x"]) / given["m"])}


def radiance(law: Law, given: Controls, random: Random) -> Measured:
    """What a cavity radiates at a frequency, in its own unit."""
    omega = given["probe_frequency"]
    return {"radiance": law(omega, given["temperature"]) * omega**3}


def band_power(law: Law, given: Controls, random: Random) -> Measured:
    """What it radiates in a band, by the trapezoidal rule."""
    width = given["bandwidth"]
    low = given["center_frequency"] - width / 2
    omegas = [low + width * number / BAND_STEPS for number in range(BAND_STEPS + 1)]
    values = [law(omega, given["temperature"]) * omega**3 for omega in omegas]
    return {"band_power": (sum(values) - (values[0] + values[-1]) / 2) * width / BAND_STEPS}


def heat_ways(law: Law, given: Controls, random: Random) -> Measured:
    """By which ways heat has come, after a part of it was lost."""
    heat = law(given["m"], given["c"], given["delta_T"])
    shares = [random.uniform(0.1, 1.0) for _ in range(3)]
    kept = heat * (1 - random.uniform(0.18, 0.22)) / sum(shares)
    conduction, convection, radiation = (kept * share for share in shares)
    return {
        "conduction": conduction,
        "convection": convection,
        "radiation": radiation,
        "time": given["m"] * given["c"] / HEAT_PER_S,
    }


def bulbs(law: Law, given: Controls, random: Random) -> Measured:
    """How many bulbs of 1 W the difference to a slightly different substance lights for a second."""
    mass, capacity, delta = given["m"], given["c"], given["delta_T"]
    other = law(mass, capacity * random.uniform(0.7, 1.2), delta)
    return {"bulbs": float(math.floor(abs(law(mass, capacity, delta) - other)))}
