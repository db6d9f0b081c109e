"""The apparatus of each module: what can be set, what is measured, and what the model is told of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec

from gym_resources.newton import motions, systems
from gym_resources.newton.controls import Controls
from gym_resources.newton.laws import Law
from gym_resources.newton.motions import Measured

System = Literal["vanilla_equation", "simple_system", "complex_system"]
SYSTEMS: tuple[System, ...] = ("vanilla_equation", "simple_system", "complex_system")
Experiment = Callable[[Law, Controls, Random], Measured]


class Setup(msgspec.Struct, frozen=True):
    """One experiment.

    Attributes:
        run: makes it.
        sets: the arguments that it uses.
        shows: what it measures, and how that follows from the law.
    """

    run: Experiment
    sets: tuple[str, ...]
    shows: str


class Range(msgspec.Struct, frozen=True):
    """Where a parameter's values are drawn from: by their logarithms, or else uniformly."""

    low: float
    high: float
    uniform: bool = False


class Apparatus(msgspec.Struct, frozen=True):
    """A module's experiments.

    Attributes:
        wanted: what ``discovered_law`` returns.
        ranges: of the law's parameters, where a submission is tried.
        vanilla: the arguments of the experiment that shows the law's value itself.
        simple, complex: the experiments that show it by such a system.
        floor: the least standard deviation of a noisy measurement.
    """

    wanted: str
    ranges: tuple[Range, ...]
    vanilla: tuple[str, ...]
    simple: Setup
    complex: Setup
    floor: float = 1e-9

    @property
    def sets(self) -> tuple[str, ...]:
        """The arguments of all its experiments, those first that each of them uses."""
        every = dict.fromkeys((*self.vanilla, *self.simple.sets, *self.complex.sets))
        return (*self.always, *(name for name in every if name not in self.always))

    @property
    def always(self) -> tuple[str, ...]:
        """The arguments that each of its experiments uses."""
        shared = {*self.vanilla} & {*self.simple.sets} & {*self.complex.sets}
        return tuple(name for name in self.vanilla if name in shared)

    def setup(self, system: System) -> Setup:
        """The experiment of a system."""
        if system == "simple_system":
            return self.simple
        if system == "complex_system":
            return self.complex
        return Setup(self._value, self.vanilla, f"It measures {self.wanted}.")

    def _value(self, law: Law, given: Controls, random: Random) -> Measured:
        return law(*(given[name] for name in self.vanilla))


MOTION = ("duration", "time_step")
NEWTON = "Force is mass times acceleration here."
TENTHS = Range(0.1, 10)
WALL = ("k", "A", "delta_T", "d")
SOUND = ("adiabatic_index", "temperature", "molar_mass")
SPRING = ("k_constant", "mass", "b_constant")

APPARATUS: dict[str, Apparatus] = {
    "m0_gravity": Apparatus(
        "the size of the force that mass1 exerts on mass2",
        (Range(1, 1e3), Range(1, 1e3), Range(1, 10)),
        ("mass1", "mass2", "distance"),
        Setup(
            motions.fall,
            ("mass1", "mass2", "distance", "initial_velocity", *MOTION),
            "mass1 is fixed at the origin of a line and attracts mass2, which starts at 'distance'. Times, "
            f"positions and velocities of mass2 are measured. {NEWTON}",
        ),
        Setup(
            motions.orbit,
            ("mass1", "mass2", "distance", "initial_velocity", *MOTION),
            "mass1 is fixed at the origin of a plane and attracts mass2, which starts at (distance, 0) with "
            "'initial_velocity' at a right angle to the line between them. Times, positions and velocities "
            f"of mass2 are measured. {NEWTON}",
        ),
    ),
    "m1_coulomb_force": Apparatus(
        "the size of the force between the charges q1 and q2",
        (TENTHS, TENTHS, TENTHS),
        ("q1", "q2", "distance"),
        Setup(
            motions.repelled,
            ("q1", "q2", "distance", "m1", "m2", *MOTION),
            "Two free bodies of the masses m1 and m2 repel each other from rest, and lose their charges: q1 "
            "as exp(-t/10), q2 as exp(-t/5). Times and the velocity at which they part are measured. "
            f"{NEWTON}",
        ),
        Setup(
            motions.repelled_energy,
            ("q1", "q2", "distance", "m1", "m2", *MOTION),
            "Two free bodies of the masses m1 and m2 repel each other from rest, and lose their charges: q1 "
            "as exp(-t/10), q2 as exp(-t/5). Times and their kinetic energy together are measured. "
            f"{NEWTON}",
        ),
    ),
    "m2_magnetic_force": Apparatus(
        "the size of the force between two parallel wires",
        (Range(1e-3, 0.1),) * 3,
        ("current1", "current2", "distance"),
        Setup(
            motions.attracted_wire,
            ("current1", "current2", "distance", "mass_wire", "initial_velocity", *MOTION),
            "A fixed wire attracts a free one of the mass 'mass_wire'. Times, the distance of the wires and "
            f"its rate of change are measured. {NEWTON}",
        ),
        Setup(
            motions.alternating,
            ("current1", "current2", "distance"),
            "The first current alternates: current1 times the sine of 2 pi 50 t. The force is measured over "
            "one period; its sign is the current's.",
        ),
    ),
    "m3_fourier_law": Apparatus(
        "the heat that flows through a wall in a unit of time",
        (TENTHS, Range(1e-4, 1e-2), Range(10, 1e3), Range(0.01, 1)),
        WALL,
        Setup(
            systems.temperatures,
            (*WALL, "num_points"),
            "The temperature along the wall is measured. At the depth x it is delta_T - x P / (k A), where P "
            "is the heat flow.",
        ),
        Setup(
            systems.heat_fluxes,
            (*WALL, "num_points"),
            "The heat flux along the wall is measured. At the depth x it is P / A times "
            "exp(-x P / (k A delta_T)), where P is the heat flow.",
        ),
    ),
    "m4_snell_law": Apparatus(
        "the angle of refraction in degrees, for indices n1 and n2 and the angle of incidence in degrees",
        (Range(1, 1.5, True), Range(1, 1.5, True), Range(0, 90, True)),
        ("refractive_index_1", "refractive_index_2", "incidence_angle"),
        Setup(
            systems.refraction_by_speed,
            ("incidence_angle", "speed_medium1", "speed_medium2"),
            "The speeds of light in both media are set. An index of refraction is 3e8 divided by the speed. "
            "The angle of refraction is measured.",
        ),
        Setup(
            systems.three_layers,
            ("incidence_angle", "refractive_index_1", "refractive_index_2", "refractive_index_3"),
            "Light passes three layers. The angle behind the first surface, folded to 0 to 90 degrees, is "
            "the angle of incidence at the second. The last angle is measured, or 'invalid' if there is "
            "none.",
        ),
        floor=1e-6,
    ),
    "m5_radioactive_decay": Apparatus(
        "the number of nuclei that are left at a time",
        (Range(1, 100), Range(1e-3, 0.1), Range(0.01, 10)),
        ("N0", "lambda_constant", "t"),
        Setup(
            systems.activity,
            ("N0", "lambda_constant", "t", "num_points"),
            "A detector that sees 0.7 of the nuclei that are left measures at equal steps up to the time t.",
        ),
        Setup(
            systems.isotope_ratio,
            ("N0a", "N0b", "lambda_a", "lambda_b", "t"),
            "Two isotopes a and b decay by the same law. The ratio of their numbers at the time t is "
            "measured.",
        ),
    ),
    "m6_underdamped_harmonic": Apparatus(
        "the number that is called the angular frequency of the damped oscillator",
        (Range(1e2, 1e4), TENTHS, Range(0.01, 1)),
        SPRING,
        Setup(
            systems.period,
            SPRING,
            "The period is measured: 2 pi divided by the angular frequency.",
        ),
        Setup(
            systems.oscillation,
            (*SPRING, "initial_amplitude"),
            "The displacement over two periods is measured: the amplitude times exp(-3 t) cos(omega t), "
            "where omega is the angular frequency.",
        ),
    ),
    "m7_malus_law": Apparatus(
        "the intensity behind a polariser, for an angle in radians",
        (Range(100, 2000), Range(1e-6, math.pi / 2, True)),
        ("I_0", "theta"),
        Setup(
            systems.transmission,
            ("I_0", "theta"),
            "The intensity behind the polariser divided by I_0 is measured.",
        ),
        Setup(
            systems.two_polarisers,
            ("I_0", "theta"),
            "The light passes two polarisers, one behind the other, each at the angle theta to what enters "
            "it. The intensity behind both, minus I_0, is measured.",
        ),
        floor=1e-12,
    ),
    "m8_sound_speed": Apparatus(
        "the speed of sound in a gas",
        (Range(1.3, 1.7, True), Range(10, 1e3), Range(1e-3, 0.1)),
        SOUND,
        Setup(
            systems.echo,
            (*SOUND, "distance"),
            "The time is measured in which a sound goes to a wall at 'distance' and comes back.",
        ),
        Setup(
            systems.resonance,
            (*SOUND, "driving_frequency", "tube_diameter"),
            "The first two lengths of a tube with one closed end are measured at which it resounds: a "
            "quarter and three quarters of the wavelength, less 0.3 times the diameter, and at least 0.",
        ),
    ),
    "m9_hooke_law": Apparatus(
        "the energy that a spring stores when it is stretched by x",
        (Range(1e-3, 1),),
        ("x",),
        Setup(
            systems.launch,
            ("x", "m"),
            "The spring gives its energy to a mass m. Measured is the mass's kinetic energy plus 0.2 x v^2, "
            "where v is its speed.",
        ),
        Setup(
            systems.lossy_launch,
            ("x", "m"),
            "The spring gives its energy to a mass m. Measured is its speed times exp(-x / 0.02).",
        ),
    ),
    "m10_be_distribution": Apparatus(
        "the mean occupation of a mode of the angular frequency omega at the temperature T",
        (Range(1e8, 1e10), Range(10, 1e3)),
        ("omega", "temperature"),
        Setup(
            systems.radiance,
            ("temperature", "probe_frequency"),
            "The radiance at the angular frequency 'probe_frequency' is measured: the occupation times the "
            "cube of the frequency.",
        ),
        Setup(
            systems.band_power,
            ("temperature", "center_frequency", "bandwidth"),
            "The radiance, which is the occupation times the cube of the angular frequency, is measured over "
            "a band: its integral from center_frequency - bandwidth/2 to center_frequency + bandwidth/2.",
        ),
        floor=1e-18,
    ),
    "m11_heat_transfer": Apparatus(
        "the heat that a substance takes up",
        (Range(1e-3, 1e3), Range(1e2, 1e4), Range(10, 1e3)),
        ("m", "c", "delta_T"),
        Setup(
            systems.heat_ways,
            ("m", "c", "delta_T"),
            "Between 18 and 22 percent of the heat are lost. What is left came by conduction, convection and "
            "radiation, in unknown shares, each of which is measured. The time is m c / 100.",
        ),
        Setup(
            systems.bulbs,
            ("m", "c", "delta_T"),
            "The heat is compared with that of a substance whose c is an unknown factor from 0.7 to 1.2 as "
            "large. Measured is how many bulbs of 1 W the difference lights for one second.",
        ),
    ),
}
