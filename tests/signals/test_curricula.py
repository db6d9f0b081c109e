"""Which tasks come next; and a curriculum that is restored goes on as it would have gone on."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from gym_runtime import UsageError
from gym_runtime.files import has_signal
from gym_signal import Curriculum, Filter, Posterior, Seen, Uniform
from gym_signal.curricula import CurriculumName, differing, made_curriculum

MAKERS: list[Callable[[int], Curriculum]] = [Uniform, Filter, Posterior]


def played(tasks: Curriculum, chance: random.Random, rounds: int) -> list[tuple[int, int]]:
    """Draw and observe; task n is always solved if n is even, else every second time."""
    drawn = list[tuple[int, int]]()
    for version in range(rounds):
        some = tasks.next(5)
        drawn += some
        for task, size in some:
            rewards = [1.0 if task % 2 == 0 else float(chance.random() < 0.5) for _ in range(size)]
            tasks.observe(Seen(task=task, rewards=rewards, tokens=[10] * size, version=version))
    return drawn


@pytest.mark.parametrize("make", MAKERS)
def test_a_restored_curriculum_goes_on_as_the_first_one(make: Callable[[int], Curriculum]) -> None:
    first, second = make(50), make(50)
    played(first, random.Random(1), 30)
    second.restore(first.state())
    assert played(second, random.Random(2), 30) == played(first, random.Random(2), 30)
    assert second.state() == first.state()


@pytest.mark.parametrize("make", MAKERS)
def test_every_task_comes_and_each_pass_is_in_another_order(make: Callable[[int], Curriculum]) -> None:
    tasks = make(20)
    drawn = [task for task, _ in played(tasks, random.Random(3), 40)]
    assert set(drawn) == set(range(20))
    assert drawn[:20] != drawn[20:40]


def test_uniform_draws_all_tasks_before_any_comes_again() -> None:
    tasks = Uniform(7, 4)
    assert sorted(tasks.next(7)) == [(task, 4) for task in range(7)]


@pytest.mark.parametrize("make", [Filter, Posterior])
def test_tasks_with_signal_come_more_often(make: Callable[[int], Curriculum]) -> None:
    counts = Counter(task % 2 for task, _ in played(make(100), random.Random(4), 200))
    assert counts[1] > 1.5 * counts[0]


@pytest.mark.parametrize("make", [Filter, Posterior])
def test_rows_that_always_fail_come_seldom(make: Callable[[int], Curriculum]) -> None:
    chance, tasks, drawn = random.Random(5), make(200), Counter[bool]()
    rates = [chance.betavariate(0.15, 0.15) for _ in range(200)]
    for version in range(150):
        for task, size in tasks.next(8):
            broken = task < 10
            drawn[broken] += version >= 75
            rewards = [] if broken else [float(chance.random() < rates[task]) for _ in range(size)]
            tasks.observe(Seen(task=task, rewards=rewards, version=version))
    assert drawn[True] < 0.03 * drawn.total(), "they are 5 % of the rows"
    tasks.observe(Seen(task=0, rewards=[0.0, 1.0], version=150))
    assert 0 in {task for _ in range(20) for task, _ in tasks.next(10)}, "a row that was mended comes again"


def test_the_posterior_forgets_as_the_weights_change() -> None:
    tasks = Posterior(1, half_life=10)
    tasks.observe(Seen(task=0, rewards=[1.0] * 8, version=0))
    sure = tasks.chance(0, [1.0] * 4, 4)
    tasks.observe(Seen(task=0, rewards=[], version=40))  # a group that failed says only what the version is
    assert tasks.chance(0, [1.0] * 4, 4) > 2 * sure


def test_a_task_is_not_drawn_while_a_group_of_it_runs() -> None:
    tasks = Posterior(3)
    assert sorted(task for task, _ in tasks.next(10)) == [0, 1, 2]
    assert tasks.next(1) == []
    tasks.observe(Seen(task=1, rewards=[]))
    assert tasks.next(10) == [(1, 8)]


def test_the_least_promising_task_is_found_while_all_others_run() -> None:
    tasks = Posterior(200, explore=0)
    for task in range(200):
        tasks.observe(Seen(task=task, rewards=[0.0, 1.0] * 4 if task else [0.0] * 100))
    assert {task for task, _ in tasks.next(200)} == set(range(200))
    tasks.observe(Seen(task=0, rewards=[]))
    assert tasks.next(2) == [(0, 8)]


@pytest.mark.parametrize("make", [Uniform, Filter])
def test_tasks_in_progress_at_a_crash_are_drawn_again_first(make: Callable[[int], Curriculum]) -> None:
    tasks, again = make(100), make(100)
    drawn = [task for task, _ in tasks.next(12)]
    for task in drawn[:8]:
        tasks.observe(Seen(task=task, rewards=[0.0, 1.0]))
    again.restore(tasks.state())
    again.observe(Seen(task=drawn[8], rewards=[0.0, 1.0]))  # it had ended after the state was stored
    first = [task for task, _ in again.next(2)]
    assert first == drawn[9:11]
    # Another crash: those that were drawn again have not ended either.
    tasks.restore(again.state())
    rest = [task for task, _ in tasks.next(91)]
    assert rest[:3] == drawn[9:]
    assert sorted([*drawn[:9], *rest]) == list(range(100))


def test_groups_in_progress_at_a_crash_do_not_block_their_tasks() -> None:
    tasks, again = Posterior(2), Posterior(2)
    tasks.next(2)
    again.restore(tasks.state())
    assert len(again.next(2)) == 2


def test_rewards_of_another_range() -> None:
    tasks = Posterior(1, lowest=-1, highest=1)
    tasks.observe(Seen(task=0, rewards=[-1.0] * 8))
    assert tasks.chance(0, [-1.0] * 4, 4) < 0.2 < tasks.chance(0, [1.0] * 4, 4)


def test_a_reward_outside_the_range_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    tasks = Posterior(2)
    tasks.observe(Seen(task=0, rewards=[0.0, 1.0]))
    assert "outside its range" not in "".join(capfd.readouterr())
    for _ in range(2):
        tasks.observe(Seen(task=1, rewards=[0.5, 35.0]))
    said = "".join(capfd.readouterr())
    assert said.count("outside its range") == 1
    assert "35.0" in said
    assert "lowest=..., highest=..." in said


def test_of_rewards_between_0_and_1_those_that_vary_most_come_more_often_and_all_come() -> None:
    tasks, chance, counts = Posterior(120), random.Random(6), Counter[int]()
    for version in range(100):
        for task, size in tasks.next(2):
            counts[task] += 1
            spread = 0.3 if task % 4 == 0 else 0.05
            rewards = [min(1.0, max(0.0, chance.gauss(0.5, spread))) for _ in range(size)]
            tasks.observe(Seen(task=task, rewards=rewards, version=version))
    assert len(counts) == 120, "a task that was never sampled may vary as much as is usual"
    varied = sum(count for task, count in counts.items() if task % 4 == 0)
    assert varied > 1.5 * (200 - varied) / 3
    again = Posterior(120)
    again.restore(tasks.state())
    assert again.next(50) == tasks.next(50)


def test_a_mean_that_moves_is_no_variance() -> None:
    tasks = Posterior(2, 8, explore=0.0)
    for version in range(20):
        for task in (0, 1):
            mean = 0.05 * version if task == 0 else 0.5
            spread = 0.01 if task == 0 else 0.1
            rewards = [mean + spread * place / 8 for place in range(8)]
            tasks.observe(Seen(task=task, rewards=rewards, version=version))
    first = Counter[int]()
    for version in range(20, 40):
        ((task, size),) = tasks.next(1)
        first[task] += 1
        rewards = [(0.01 if task == 0 else 0.1) * place / 8 for place in range(size)]
        tasks.observe(Seen(task=task, rewards=rewards, version=version))
    assert first[1] >= 19


@pytest.mark.parametrize("name", ["uniform", "filter", "posterior"])
def test_another_seed_draws_in_another_order(name: CurriculumName) -> None:
    first, same, other = (made_curriculum(name, 100, 8, seed).next(20) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_a_million_tasks_are_drawn_from_without_delay() -> None:
    tasks = Posterior(1_000_000)
    tasks.next(1)
    started_s = time.process_time()
    for _ in range(100):
        tasks.next(1)
    assert time.process_time() - started_s < 2.0  # 0.1 s on a quiet machine


def test_the_chance_that_further_rewards_differ() -> None:
    assert differing(0.3, 0.3, [0.0] * 2, 6) == pytest.approx(0.34, abs=0.01)
    assert differing(0.3, 0.3, [1.0] * 6, 2) == pytest.approx(0.08, abs=0.01)
    assert differing(1, 1, [1.0] * 2, 6) == pytest.approx(0.67, abs=0.01)
    assert differing(1, 1, [], 1) == pytest.approx(0.5)


def test_rewards_that_differ_by_less_than_a_millionth_have_no_signal() -> None:
    assert not has_signal([])
    assert not has_signal([1.0])
    assert not has_signal([1000.0, 1000.0005])
    assert has_signal([1000.0, 1000.5])


@pytest.mark.parametrize("state", [b"", b"\x81", b"\x93\x01\x02\x03", msgspec.msgpack.encode({"kind": 3})])
def test_a_damaged_state_is_refused(state: bytes) -> None:
    with pytest.raises(UsageError, match="not the state of a curriculum"):
        Uniform(3).restore(state)


def test_the_state_of_other_tasks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'uniform' over 3 tasks, and this is 'posterior' over 3"):
        Posterior(3).restore(Uniform(3).state())
    with pytest.raises(UsageError, match="over 3 tasks"):
        Uniform(4).restore(Uniform(3).state())


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="no curriculum 'hard': use one of uniform, filter, posterior"):
        made_curriculum("hard", 3, 8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="rows is empty"):
        made_curriculum("uniform", 0, 8)
    with pytest.raises(UsageError, match="lowest below highest"):
        Posterior(3, lowest=1)


def test_old_states_are_read() -> None:
    """As the first version wrote it; the bytes are kept here."""
    old = bytes.fromhex(
        "8aa46b696e64a9706f73746572696f72a57461736b7303a563616c6c7304a56f7264657290a4666c617480a762"
        "656c69656673810193cb3ff0000000000000cb401c00000000000002a4627573799100a46265737490a8626573"
        "745f666f72ffa776657273696f6e02"
    )
    tasks = Posterior(3)
    tasks.restore(old)
    assert tasks.chance(1, [0.0] * 4, 4) == pytest.approx(0.323, abs=0.001)
    assert len(tasks.next(3)) == 3
