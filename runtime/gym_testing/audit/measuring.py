"""The measurement: every reply is played and judged as a worker does it, until the time is over.

A verdict for which a model in a role was asked says nothing of the rule: it is counted as judged, unless the
model is named. A reward that does not come is no reward: for a wrong reply it is sound unless the verifier
broke.
"""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import anyio
import gym_runtime
import msgspec
from gym_runtime.environment import Example, LoadedEnvironment, ScriptedAnswers, examples, requirements
from gym_runtime.errors import (
    DeadlineExceeded,
    GymError,
    ModelUnavailable,
    ResourceError,
    UnusableAnswer,
    leaf,
)

from gym_testing.audit import exploits, mutations, program_exploits, same_answers
from gym_testing.audit.artifact import (
    Artifact,
    AuditFinding,
    Class,
    Cost,
    Rate,
    Stability,
    StoredReply,
    rate,
)
from gym_testing.audit.duplicates import duplicates
from gym_testing.audit.elsewhere import judge_elsewhere
from gym_testing.audit.interruption import interrupting
from gym_testing.audit.judges import Agreement, NamedJudge, NamedJudges, agreement
from gym_testing.audit.pairs import unfair
from gym_testing.audit.registry import Expect, Probe, makers, probes
from gym_testing.audit.rows import others, read, targets
from gym_testing.audit.target import Target
from gym_testing.checks.subject import SILENCE, Subject

TOLERANCE = 1e-9
OWN = [str(module.__file__) for module in (exploits, program_exploits, mutations, same_answers)]
"""The files of this package's makers."""
SWEEP_SHARE = 0.4
"""Of the time, for the perfect rollouts and for silence on rows that were not drawn."""
STABILITY_SHARE = 0.2
OVERLAP_S, OVERLAP_SHARE = 5.0, 0.25
"""How long prompts are compared with the catalogue's benchmarks, beyond the time: of it, and at least."""
LOAD = 4
"""Times as many replies are judged again at once as there are processors."""
SLOW_ROWS = 20
"""Rows that get the replies that may take long to judge; these are large, and depend little on the row."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        against: files of rows whose prompts are looked for in the input.
        published: the files of the catalogue's benchmarks by name, for the same as far as the time goes.
        rows: at most so many are measured, drawn by ``seed``.
        seconds: no reply is judged after this time.
        repeats: how often the same replies are judged.
        elsewhere: they are also judged in another process, with another time zone and locale.
        slow: replies that may take long to judge are tried, too.
        blocked_s: a verifier that blocks the event loop for longer is ended, which is an error of it.
        kept: findings of one class and one source that are kept with their replies; all are counted.
    """

    input: Path | None = None
    against: tuple[Path, ...] = ()
    published: dict[str, Path] = {}
    rows: int = 200
    seconds: float = 60.0
    repeats: int = 20
    seed: int = 0
    elsewhere: bool = True
    slow: bool = True
    blocked_s: float = 5.0
    kept: int = 3


class Outcome(msgspec.Struct, frozen=True):
    """What became of a reply.

    Attributes:
        how: ``judged`` if a model in a role was asked for the verdict, or was needed to play the reply.
        by_model: a model that was named decided.
    """

    how: Literal["reward", "refused", "broke", "slow", "judged"]
    reward: float | None
    response: bytes
    detail: str = ""
    by_model: bool = False


class _Row:
    """A row that is measured, with the rewards of its perfect rollout and of silence."""

    def __init__(self, target: Target, *, has_gold: bool) -> None:
        self.target = target
        self.has_gold = has_gold
        self.gold: Outcome | None = None
        self.silence: Outcome | None = None
        self.near_miss: bytes | None = None
        self.found: dict[Class, bool] = {}
        self.either = Counter[str]()
        self.tried, self.judged = Counter[Expect](), Counter[Expect]()

    def decided(self, *kinds: Expect) -> bool:
        """Whether the rule itself decides on most of the replies of these kinds."""
        tried = sum(self.tried[kind] for kind in kinds)
        return tried > 0 and tried >= sum(self.judged[kind] for kind in kinds)


class Auditor:
    """Measures one environment; `measure` makes the artifact.

    Args:
        name: as the user names it.
        judges: models that answer in their roles, so that what they decide is measured, too.
    """

    def __init__(
        self,
        name: str,
        environment: LoadedEnvironment,
        plan: Plan,
        judges: Mapping[str, NamedJudge] | None = None,
    ) -> None:
        self._name = name
        self._judges = dict(judges or {})
        self._again_rewards: dict[tuple[int, bytes], list[float]] = {}
        self._environment = environment
        self._plan = plan
        self._gold_reward = environment.definition.gold_reward
        self._pays_silence = environment.definition.silence_reward >= self._gold_reward - TOLERANCE
        self._started_s = time.monotonic()
        self._verifications = self._judged = self._reached = 0
        self._by: dict[Class, Counter[str]] = {}
        self._suspects = Counter[Class]()
        self._swept, self._swept_found = Counter[Class](), Counter[Class]()
        self._kept = Counter[tuple[Class, str, bool]]()
        self.replies: list[StoredReply] = []

    @property
    def _left_s(self) -> float:
        return self._plan.seconds - (time.monotonic() - self._started_s)

    async def measure(self) -> Artifact:
        """Measure all classes.

        Raises:
            UsageError: the environment's packages or rows are missing.
        """
        within = (Subject.judge.__code__, examples.play.__code__)
        try:
            async with interrupting(self._plan.blocked_s, within):
                return await self._measure()
        except BaseExceptionGroup as group:
            raise leaf(group) from group

    async def _measure(self) -> Artifact:
        environment, plan = self._environment, self._plan
        requirements.require(environment)
        chosen = read(environment, plan.input, plan.rows, plan.seed)
        found, without, form = await targets(environment, chosen)
        rows = [_Row(one, has_gold=one.example.number not in without) for one in found]
        await self._in_lanes(self._baseline(row) for row in rows)
        with anyio.move_on_after(self._left_s * SWEEP_SHARE):
            rest = others(environment, chosen, form)
            await self._in_lanes(self._sweep(example, has_gold=has_gold) for example, has_gold in rest)
        sound = [row for row in rows if row.gold is not None and self._full(row.gold)]
        planned = self._planned(sound)
        left_s = self._left_s * (1 - STABILITY_SHARE)
        with anyio.move_on_after(left_s):
            await self._in_lanes(self._probe(row, probe) for row, probe in planned)
        stability = await self._stability(sound)
        rates = self._rates(rows, sound, stability)
        return Artifact(
            environment=environment.name,
            environment_sha256=hashlib.sha256(environment.source.read_bytes()).hexdigest(),
            runtime=gym_runtime.__version__,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            input=chosen.described(),
            rates=rates,
            stability=stability,
            agreement=self._agreement(),
            judged=self._judged,
            duplicates=duplicates(
                chosen.path,
                plan.against,
                published=plan.published,
                seconds=max(OVERLAP_S, plan.seconds * OVERLAP_SHARE),
            ),
            findings=[reply.finding for reply in self.replies],
            unobserved=self._unobserved(rows, rates),
            cost=Cost(
                seconds=round(time.monotonic() - self._started_s, 1),
                verifications=self._verifications,
                planned=len(planned),
                not_reached=max(0, len(planned) - self._reached),
            ),
        )

    # -- judging ---------------------------------------------------------------------------------------

    async def _in_lanes(self, work: Iterable[Coroutine[Any, Any, None]], each: int = 1) -> None:
        """Await coroutines, ``each`` times as many at once as there are processors."""
        left = iter(work)

        async def lane() -> None:
            for one in left:
                await one
                await anyio.lowlevel.checkpoint()

        try:
            async with anyio.create_task_group() as lanes:
                for _ in range((os.cpu_count() or 1) * each):
                    lanes.start_soon(lane)
        except BaseExceptionGroup as group:
            raise leaf(group) from group

    async def _sweep(self, example: Example, *, has_gold: bool) -> None:
        """Judge silence and the perfect rollout on a row that was not drawn."""
        row = _Row(Target(example), has_gold=has_gold)
        await self._baseline(row)
        measured: dict[Class, Outcome | None] = {"gold_fails": row.gold, "nop": row.silence}
        for kind, outcome in measured.items():
            if outcome is not None:
                self._swept[kind] += 1
                self._swept_found[kind] += row.found.get(kind, False)

    async def _baseline(self, row: _Row) -> None:
        """Judge silence and the perfect rollout."""
        example = row.target.example
        row.silence = await self._judge(row.target, SILENCE)
        wanted = self._environment.definition.silence_reward
        if row.silence.reward is not None and row.silence.reward > wanted + TOLERANCE:
            self._note(row, "nop", "nop", "nothing", row.silence)
        elif row.silence.reward is not None and self._pays_silence:
            self._note(row, "nop", "nop", "nothing", row.silence, detail="declared by silence_reward")
        if not row.has_gold:
            return
        row.gold = await self._play(row.target, example.turns)
        if row.gold.how == "judged":
            # The scripted judge of the example says what a right reply gets; its verdict is not measured.
            verdict = await self._judge(row.target, row.gold.response, scripted=True)
            row.gold = msgspec.structs.replace(
                verdict, how="reward" if verdict.reward is not None else "broke"
            )
        if not self._full(row.gold):
            self._note(row, "gold_fails", "gold", "full", row.gold)

    def _full(self, outcome: Outcome) -> bool:
        return outcome.reward is not None and outcome.reward >= self._gold_reward - TOLERANCE

    async def _play(self, target: Target, turns: list[list[Any]]) -> Outcome:
        example = msgspec.structs.replace(target.example, turns=turns)
        answers = self._answers(example)
        try:
            response = await examples.play(self._environment.resource, example, answers)
        except (ModelUnavailable, UnusableAnswer) as error:
            self._judged += 1
            return Outcome("judged", None, SILENCE, error.message)
        except GymError as error:
            return Outcome("refused", None, SILENCE, error.message)
        return await self._judge(target, response, asked_before=Counter(role for role, _ in answers.asked))

    async def _judge(
        self,
        target: Target,
        response: bytes,
        *,
        asked_before: Counter[str] | None = None,
        scripted: bool = False,
    ) -> Outcome:
        """Judge a response; ``asked_before`` are the questions to roles that playing it takes."""
        example = target.example
        answers = example.answers() if scripted else self._answers(example)
        self._verifications += 1
        try:
            with anyio.fail_after(self._environment.definition.timeout_s):
                verdict = await Subject(self._environment, [example]).judge(example, response, answers)
            outcome = Outcome("reward", verdict.reward, response)
        except (DeadlineExceeded, TimeoutError):
            outcome = Outcome("slow", None, response, "it took longer than the environment's limit")
        except (ModelUnavailable, UnusableAnswer) as error:
            outcome = Outcome("judged", None, response, error.message)
        except ResourceError as error:
            slow = "took longer" in error.message or "process" in error.message
            outcome = Outcome("slow" if slow else "broke", None, response, error.message)
        except GymError as error:
            outcome = Outcome("refused", None, response, error.message)
        before, asked = asked_before or Counter[str](), Counter(role for role, _ in answers.asked)
        roles = {role for role in asked if asked[role] > before[role]}
        if not scripted and not roles <= self._judges.keys():
            self._judged += 1
            return Outcome("judged", None, response)
        return msgspec.structs.replace(outcome, by_model=bool(roles) and not scripted)

    def _answers(self, example: Example) -> ScriptedAnswers:
        asked = {role: judge.ask for role, judge in self._judges.items()}
        return NamedJudges(example.roles, asked) if asked else example.answers()

    # -- probes ----------------------------------------------------------------------------------------

    def _planned(self, rows: Sequence[_Row]) -> list[tuple[_Row, Probe]]:
        """All replies to all rows: a few of each row in turn, in an order by the seed, slow ones last."""
        known = makers(*OWN, str(self._environment.source))
        first: list[list[tuple[_Row, Probe]]] = []
        last: list[tuple[_Row, Probe]] = []
        for place, row in enumerate(rows):
            made = list(probes(row.target, known))
            if self._environment.definition.compare is not None:
                made = [one for one in made if one.expect == "full"]  # any reply may be better than silence
            random.Random(f"{self._plan.seed} {row.target.example.number}").shuffle(made)
            first.append([(row, probe) for probe in made if not probe.last])
            if self._plan.slow and place < SLOW_ROWS:
                last += [(row, probe) for probe in made if probe.last]
        return [one for level in zip_longest(*first) for one in level if one is not None] + last

    async def _probe(self, row: _Row, probe: Probe) -> None:
        outcome = await self._play(row.target, probe.turns)
        self._reached += 1
        if outcome.how == "judged":
            row.judged[probe.expect] += 1
            return
        row.tried[probe.expect] += 1
        silence = (row.silence.reward if row.silence else None) or 0.0
        if outcome.how == "broke":
            self._note(row, "error", probe.source, probe.expect, outcome, detail=outcome.detail)
        if probe.expect == "full":
            if not self._full(outcome):
                self._note(row, "false_negative", probe.source, "full", outcome, suspect=probe.suspect)
        elif outcome.reward is None or self._pays_silence:
            return
        elif probe.either:
            row.either[probe.source] += self._full(outcome)
            if row.either[probe.source] == 2:
                self._note(row, "false_positive", probe.source, "less", outcome, detail="so is its opposite")
        elif self._full(outcome):
            self._note(row, "false_positive", probe.source, probe.expect, outcome, suspect=probe.suspect)
        elif probe.expect == "nothing" and outcome.reward > silence + TOLERANCE:
            self._note(row, "partial", probe.source, "nothing", outcome, suspect=probe.suspect)
        elif probe.expect == "less" and row.near_miss is None:
            row.near_miss = outcome.response

    def _note(
        self,
        row: _Row,
        kind: Class,
        source: str,
        expected: Expect | Literal["same"],
        outcome: Outcome,
        *,
        suspect: bool = False,
        detail: str = "",
    ) -> None:
        if suspect:
            self._suspects[kind] += 1
        else:
            row.found[kind] = True
            self._by.setdefault(kind, Counter())[source] += 1
        key = (kind, source, suspect)
        self._kept[key] += 1
        if self._kept[key] > self._plan.kept:
            return
        number = row.target.example.number
        identity = f"{kind} {number} {source} ".encode() + outcome.response
        name = hashlib.sha256(identity).hexdigest()[:8]
        finding = AuditFinding(
            id=name,
            kind=kind,
            row=number,
            source=source,
            expected=expected,
            reward=outcome.reward,
            suspect=suspect,
            detail=detail or outcome.detail,
            replay=f"gym-runtime audit {shlex.quote(self._name)} --replay {name}",
        )
        self.replies.append(
            StoredReply(finding=finding, example=row.target.example, response=outcome.response)
        )

    # -- stability -------------------------------------------------------------------------------------

    async def _stability(self, rows: Sequence[_Row]) -> Stability:
        """Judge the same replies again: many times, in another order, in another process."""
        replies: list[tuple[_Row, Outcome]] = []
        for row in rows:
            if self._environment.definition.compare is not None and row.gold is not None:
                pair = (row.gold.response, SILENCE)
                for source, detail in (await unfair(self._environment, row.target.example, pair)).items():
                    self._note(row, "unstable", source, "same", row.gold, detail=detail)
            known = [row.gold, row.silence, row.near_miss and await self._judge(row.target, row.near_miss)]
            replies += [(row, one) for one in known if isinstance(one, Outcome) and one.reward is not None]
        ways = ["order", "load"]
        lines = [(row.target.example, one.response) for row, one in replies]
        elsewhere = None
        if self._plan.elsewhere and not self._judges:
            elsewhere = await judge_elsewhere(self._name, lines, max(10.0, self._left_s))
        if elsewhere is not None:
            ways += ["process", "TZ", "LC_ALL", "PYTHONHASHSEED"]
            for (row, before), reward in zip(replies, elsewhere, strict=True):
                self._compare(row, before, msgspec.structs.replace(before, reward=reward))
        repeats = 0
        order = random.Random(self._plan.seed)
        while repeats < self._plan.repeats and self._left_s > 0 and replies:
            order.shuffle(replies)
            await self._in_lanes((self._again(row, before) for row, before in replies), LOAD)
            repeats += 1
        return Stability(replies=len(replies), repeats=repeats, ways=ways)

    async def _again(self, row: _Row, before: Outcome) -> None:
        again = await self._judge(row.target, before.response, scripted=not self._judges)
        if again.how == "judged":
            return  # the judge gave no verdict, so there is nothing to compare
        self._compare(row, before, again)
        if again.by_model and again.reward is not None:
            key = (row.target.example.number, before.response)
            self._again_rewards.setdefault(key, []).append(again.reward)

    def _agreement(self) -> Agreement | None:
        if not self._again_rewards:
            return None
        models = {role: judge.name for role, judge in self._judges.items()}
        return agreement(models, self._again_rewards.values())

    def _compare(self, row: _Row, before: Outcome, again: Outcome) -> None:
        if again.reward is None or abs(again.reward - (before.reward or 0.0)) > TOLERANCE:
            self._note(row, "unstable", "again", "same", before, detail=f"then {again.reward}")

    # -- rates -----------------------------------------------------------------------------------------

    def _rates(self, rows: Sequence[_Row], sound: Sequence[_Row], stability: Stability) -> dict[str, Rate]:
        golds = [row for row in rows if row.gold is not None]
        silent = [row for row in rows if row.silence is not None and row.silence.reward is not None]
        wrong = [] if self._pays_silence else _measured(sound, "false_positive", "nothing", "less")
        right = _measured(sound, "false_negative", "full")
        measured: dict[Class, tuple[Sequence[_Row], int]] = {
            "gold_fails": (golds, len(golds) + self._swept["gold_fails"]),
            "nop": (silent, len(silent) + self._swept["nop"]),
            "false_positive": (wrong, sum(row.tried["nothing"] + row.tried["less"] for row in wrong)),
            "partial": (wrong, sum(row.tried["nothing"] for row in wrong)),
            "false_negative": (right, sum(row.tried["full"] for row in right)),
            "unstable": (sound, stability.replies * stability.repeats),
            "error": (sound, sum(sum(row.tried.values()) for row in sound)),
        }
        return {
            kind: rate(
                len(of) + self._swept[kind],
                sum(row.found.get(kind, False) for row in of) + self._swept_found[kind],
                tried=tried,
                by=dict(self._by.get(kind, {})),
                suspect=self._suspects[kind],
            )
            for kind, (of, tried) in measured.items()
        }

    def _unobserved(self, rows: Sequence[_Row], rates: Mapping[str, Rate]) -> list[str]:
        found = ["difficulty", *(name for name, one in rates.items() if one.found is None)]
        if self._environment.resource.roles and not self._again_rewards:
            found.append("judge")
        if any(not row.has_gold for row in rows):
            found.append(f"golds of {sum(not row.has_gold for row in rows)} rows")
        return found


def _measured(rows: Sequence[_Row], kind: Class, *expected: Expect) -> list[_Row]:
    """The rows with replies of some kinds; none where a judge decides on most, and nothing was found."""
    if not any(row.decided(*expected) or row.found.get(kind) for row in rows):
        return []
    return [row for row in rows if any(row.tried[one] for one in expected)]
