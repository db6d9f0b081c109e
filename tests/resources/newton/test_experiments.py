"""The laws and experiments of newton_bench, without a model and without a sandbox."""

from __future__ import annotations

import itertools
import json
import math
import time
from typing import Any

import pytest
from gym_resources.newton.apparatus import APPARATUS, SYSTEMS, System
from gym_resources.newton.experiments import measure
from gym_resources.newton.laws import DIFFICULTIES, LAWS, VERSIONS, law
from gym_resources.newton.submission import compare, numeric_score, tried
from tables import table

E = math.e
USUAL = {
    "incidence_angle": 30.0,
    "refractive_index_1": 1.2,
    "refractive_index_2": 1.3,
    "refractive_index_3": 1.25,
    "speed_medium1": 2.5e8,
    "speed_medium2": 2.4e8,
    "theta": 0.7,
    "probe_frequency": 2e9,
    "center_frequency": 2e9,
    "bandwidth": 1e8,
    "omega": 2e9,
    "temperature": 300.0,
    "k_constant": 400.0,
    "tube_diameter": 0.01,
}


@table(
    ("module", "difficulty", "version", "arguments", "value"),
    [
        ("m0_gravity", "easy", "v0", (2, 3, 4), 6.674e-5 * 6 / 8),
        ("m0_gravity", "hard", "v1", (2, 3, 4), 6.674e-5 * 2**1.3 / 4**2.6),
        ("m0_gravity", "medium", "v2", (2, 3, 4), 6.674e-5 * 4 * 9 * 16),
        ("m1_coulomb_force", "hard", "v0", (2, 3, 4), 2 * 6 * 5 / 4**E),
        ("m2_magnetic_force", "hard", "v1", (2, 3, 4), 0.0478 * 1 * 4),
        ("m3_fourier_law", "hard", "v1", (2, 4, 3, 5), 2 * 2 * 3**2.7 / 5 ** (3 / 7)),
        ("m4_snell_law", "easy", "v1", (1.0, 1.0, 30), 30.0),
        ("m4_snell_law", "hard", "v2", (1.0, 1.0, 30), 30.0),
        ("m5_radioactive_decay", "easy", "v0", (10, 0.1, 4), 10 * math.exp(-0.8)),
        ("m6_underdamped_harmonic", "medium", "v1", (8, 2, 4), (2 - 1) ** 2),
        ("m7_malus_law", "easy", "v0", (10, math.pi / 4), 20.0),
        ("m7_malus_law", "easy", "v2", (10, math.pi / 4), 10.0),
        ("m8_sound_speed", "easy", "v1", (1.4, 300, 0.03), 1.4 * 351.6 * 300 / 0.03),
        ("m9_hooke_law", "hard", "v0", (0.25,), 2 * 231.141 / 16 + 1241.9012 / 4 + 12.578 * 2),
        ("m10_be_distribution", "easy", "v0", (1e10, 100), 1 / (math.exp(1.0513e-14 * 1e8) + 1)),
        ("m11_heat_transfer", "hard", "v2", (2, 3, 4), 3 / 8 ** (E + 1)),
    ],
)
def test_a_law_has_its_value(
    module: str, difficulty: Any, version: Any, arguments: tuple[float, ...], value: float
) -> None:
    assert law(module, difficulty, version)(*arguments) == pytest.approx(value)


def test_a_law_is_0_for_nothing_and_nan_where_it_is_undefined() -> None:
    assert law("m0_gravity", "easy", "v0")(1, -1, 1) == 0.0
    assert math.isnan(law("m4_snell_law", "easy", "v0")(1.5, 1.0, 80))
    assert math.isnan(law("m6_underdamped_harmonic", "hard", "v0")(1, 1, 1e9))  # a complex number
    assert math.isnan(law("m0_gravity", "easy", "v2")(1e200, 1e200, 1))  # an infinite one
    assert math.isnan(law("m10_be_distribution", "hard", "v2")(1e10, 1.0))  # a negative one


@pytest.mark.slow
def test_there_are_108_laws_each_defined_at_most_of_its_points() -> None:
    laws = [law(*one) for one in itertools.product(LAWS, DIFFICULTIES, VERSIONS)]
    assert len({(one.parameters, one.text) for one in laws}) == 108
    for (module, _, _), one in zip(itertools.product(LAWS, DIFFICULTIES, VERSIONS), laws, strict=True):
        points, truth = tried(module, one)
        assert len(points) == len(truth) == 5000
        assert len(points[0]) == len(one.parameters)
        assert sum(map(math.isfinite, truth)) > 2500, one.text
        itself = compare(truth, [value if math.isfinite(value) else None for value in truth])
        assert (itself.rmsle, itself.proportional) == (0.0, True)


def given(module: str, **more: float) -> dict[str, float | None]:
    return {**{name: USUAL.get(name, 1.0) for name in APPARATUS[module].sets}, "time_step": 0.01, **more}


@table("system", SYSTEMS)
@table("module", APPARATUS)
def test_every_experiment_shows_numbers_and_its_noise_can_be_repeated(module: str, system: System) -> None:
    found = law(module, "easy", "v0")

    def shown(noise: float, seed: str) -> Any:
        return measure(module, system, found, given(module), noise_level=noise, seed=seed)

    exact = shown(0.0, "a")
    assert exact is not None
    assert "null" not in json.dumps(exact)
    assert shown(0.01, "a") == shown(0.01, "a")
    if module != "m11_heat_transfer" or system == "vanilla_equation":  # the others have chances of their own
        assert exact == shown(0.0, "b")
        assert shown(0.01, "a") != exact
    assert shown(0.01, "a") != shown(0.01, "b")


def test_noise_is_as_large_as_it_is_said_to_be() -> None:
    found = law("m0_gravity", "easy", "v0")
    value = found(1, 1, 1)
    errors = [
        float(
            measure(  # pyright: ignore[reportArgumentType] - this system shows a number
                "m0_gravity",
                "vanilla_equation",
                found,
                given("m0_gravity"),
                noise_level=0.1,
                seed=str(number),
            )
        )
        / value
        - 1
        for number in range(2000)
    ]
    assert math.fsum(errors) / 2000 == pytest.approx(0, abs=0.01)
    assert math.sqrt(math.fsum(error**2 for error in errors) / 2000) == pytest.approx(0.1, abs=0.01)


def test_a_motion_follows_the_law() -> None:
    found = law("m0_gravity", "easy", "v1")
    setting = given("m0_gravity", mass1=1e6, mass2=2, distance=10, initial_velocity=0, duration=5)
    shown: Any = measure("m0_gravity", "simple_system", found, setting, noise_level=0, seed="")
    assert len(shown["time"]) == 20
    first = (shown["velocity"][1] - shown["velocity"][0]) / 0.01
    assert first == pytest.approx(-found(1e6, 2, 10) / 2, rel=1e-3)

    setting = given("m0_gravity", mass1=1e6, mass2=2, distance=10, duration=5)
    setting["initial_velocity"] = None  # then it is that of a circle
    circle: Any = measure("m0_gravity", "complex_system", found, setting, noise_level=0, seed="")
    radii = [math.hypot(*place) for place in circle["position"]]
    assert radii == pytest.approx([10.0] * 20, rel=1e-4)


ODD = (0.0, -1.0, 1e308, -1e308, 5e-324, 1e18)


@table("system", SYSTEMS)
@table("module", APPARATUS)
def test_no_number_breaks_or_delays_an_experiment(module: str, system: System) -> None:
    found = law(module, "hard", "v2")
    for name, value in itertools.product(APPARATUS[module].sets, ODD):
        took_s: list[float] = []
        for _ in range(3):  # the least counts: a run of the garbage collector is none of it
            started_s = time.thread_time()
            shown = measure(module, system, found, given(module, **{name: value}), noise_level=0.01, seed="s")
            took_s.append(time.thread_time() - started_s)
        assert min(took_s) < 0.05
        assert len(json.dumps(shown)) < 10_000
    everything = dict.fromkeys(APPARATUS[module].sets, 1e308)
    measure(module, system, found, everything, noise_level=10, seed="s")


def test_what_is_missing_is_told() -> None:
    shown = measure(
        "m8_sound_speed",
        "simple_system",
        law("m8_sound_speed", "easy", "v0"),
        {**given("m8_sound_speed"), "distance": None},
        noise_level=0,
        seed="",
    )
    assert shown == {"error": "this experiment needs 'distance'"}


# -- scores -----------------------------------------------------------------------------------------------


def test_values_are_compared_by_their_logarithms_where_both_laws_are_defined() -> None:
    found = compare([1.0, 3.0, math.nan, 5.0], [1.0, 1.0, 7.0, None])
    assert found.rmsle == pytest.approx(math.sqrt(math.log(2) ** 2 / 2))
    assert (found.points, found.proportional) == (2, False)
    assert compare([math.nan, 1.0], [1.0, None]).rmsle is None
    assert compare([1.0], [-1.0]).rmsle == 0.0  # the sign does not count, as upstream


@table(
    ("values", "same"),
    [
        ([2.0, 4.0, 6.0], True),
        ([0.5, 1.0, 1.5], True),
        ([-1.0, -2.0, -3.0], True),
        ([1.0, 2.0, 3.01], False),
        ([1.0, 2.0, None], False),
        ([0.0, 0.0, 0.0], False),
        ([1.0, -2.0, 3.0], False),
    ],
)
def test_laws_that_differ_by_a_factor_have_the_same_form(values: list[float | None], same: bool) -> None:
    assert compare([1.0, 2.0, 3.0], values).proportional is same


def test_the_numeric_score_falls_from_1_to_minus_1() -> None:
    assert [numeric_score(x) for x in (0.0, 3.0)] == [1.0, 0.0]
    assert numeric_score(1e300) == pytest.approx(-1)
