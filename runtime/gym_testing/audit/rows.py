"""The rows that an audit measures: an environment's examples, or a data set's rows.

Rows of a data set need no ``gold``. Where one is missing, the perfect rollout is made of the field with the
answer, in the form that the verifier pays for; if it pays for none, the row is measured without.
"""

from __future__ import annotations

import codecs
import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from gym_runtime import make_response
from gym_runtime.environment import Example, LoadedEnvironment, examples
from gym_runtime.errors import UNREADABLE, GymError, TaskError, UsageError

from gym_testing.audit.artifact import Input
from gym_testing.audit.target import ANSWER_FIELDS, Target
from gym_testing.checks.subject import Subject

FORMS = ("{}", "\\boxed{{{}}}", "Answer: {}", "<answer>{}</answer>")
TRIED = 8
NO_GOLD = "?"
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Rows(msgspec.Struct, frozen=True):
    """Rows to measure.

    Attributes:
        examples: the rows that all replies are made of, drawn by the seed.
        without_gold: the numbers of those that came without a perfect rollout.
        rest: the numbers of all other rows, and their places in the file.
    """

    path: Path
    name: str
    count: int
    sha256: str
    seed: int
    examples: list[Example]
    without_gold: set[int]
    rest: list[tuple[int, int]]

    def described(self) -> Input:
        """What the artifact says of them."""
        drawn = len(self.examples)
        return Input(name=self.name, rows=self.count, sha256=self.sha256, sampled=drawn, seed=self.seed)


def read(environment: LoadedEnvironment, path: Path | None, most: int, seed: int) -> Rows:
    """The rows of a file, at most so many of them drawn; by default the environment's examples.

    Raises:
        UsageError: the file is missing or empty, or a row is not one of the environment's.
    """
    path, name = path or environment.examples, str(path) if path else "examples"
    if not path.is_file():
        raise UsageError(f"there is no file {path}; --input wants rows, JSONL")
    digest, places = hashlib.sha256(), list[tuple[int, int]]()
    with path.open("rb") as file:
        start = 0
        for number, line in enumerate(file, 1):
            digest.update(line)
            if line.strip():
                places.append((number, start))
            start += len(line)
        if not places:
            raise UsageError(f"{path} has no rows")
        chosen = sorted(random.Random(seed).sample(places, most)) if len(places) > most else places
        read_rows = [_read(environment, file, path, *place) for place in chosen]
    found = [example for example, _ in read_rows]
    without = {example.number for example, has_gold in read_rows if not has_gold}
    rest = sorted(set(places) - set(chosen))
    return Rows(path, name, len(places), digest.hexdigest(), seed, found, without, rest)


def others(environment: LoadedEnvironment, rows: Rows, form: str) -> Iterator[tuple[Example, bool]]:
    """The rows that were not drawn, one by one, and whether each has a perfect rollout, if in this form.

    Raises:
        UsageError: a row is not one of the environment's.
    """
    with rows.path.open("rb") as file:
        for place in rows.rest:
            example, has_gold = _read(environment, file, rows.path, *place)
            gold = "" if has_gold or not form else _gold(example, form)
            if gold:
                example = msgspec.structs.replace(example, turns=[[gold]])
            yield example, has_gold or bool(gold)


def _read(
    environment: LoadedEnvironment, file: BinaryIO, path: Path, number: int, place: int
) -> tuple[Example, bool]:
    """The row at a place of a file, and whether it came with a perfect rollout."""
    file.seek(place)
    where = f"{path}:{number}"
    line, has_gold = _with_gold(where, file.readline().removeprefix(codecs.BOM_UTF8).strip())
    example = examples.example(environment, where, number, line)
    try:
        environment.resource.task(example.row)
    except TaskError as error:
        raise UsageError(f"{where}: {error.message}") from error
    return example, has_gold


def _with_gold(where: str, line: bytes) -> tuple[bytes, bool]:
    try:
        fields = _decode_fields(line)
    except UNREADABLE as error:
        raise UsageError(f"{where}: not a JSON object: {error}") from None
    if fields.get("gold"):
        return line, True
    return _encode({**fields, "gold": NO_GOLD}), False


async def targets(environment: LoadedEnvironment, rows: Rows) -> tuple[list[Target], set[int], str]:
    """The drawn rows as makers see them, the numbers of those without a gold, and the form of golds."""
    found, without, form = list(rows.examples), set(rows.without_gold), ""
    if without:
        form = await _form(environment, [one for one in found if one.number in without])
        for place, example in enumerate(found):
            gold = form and _gold(example, form)
            if example.number in without and gold:
                found[place] = msgspec.structs.replace(example, turns=[[gold]])
                without.remove(example.number)
    known = [Target(example) for example in found if example.number not in without]
    traits = {environment.definition.shape} | ({"judge"} if environment.resource.roles else set[str]())
    made: list[Target] = []
    for example in found:
        siblings = [other for other in known if other.example.number != example.number]
        made.append(Target(example, siblings, frozenset(traits)))
    return made, without, form


async def _form(environment: LoadedEnvironment, found: Iterable[Example]) -> str:
    """The form of answers that the verifier pays for most often; empty if it pays for none."""
    if environment.definition.shape != "verify":
        return ""
    paid = Counter[str]()
    for example in list(found)[:TRIED]:
        for form in FORMS:
            answers = example.answers()
            try:
                reply = make_response(_gold(example, form) or "")
                verdict = await Subject(environment, [example]).judge(example, reply, answers)
            except GymError:
                continue
            paid[form] += verdict.reward >= environment.definition.gold_reward and not answers.asked
    return max(paid, key=lambda form: paid[form]) if paid.total() else ""


def _gold(example: Example, form: str) -> str:
    for name in ANSWER_FIELDS:
        value = example.fields.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            return form.format(str(value))
    return ""
