"""What a Dockerfile must not ask of the engine that builds it.

Its commands run in containers. The engine itself, with the rights and the network of this machine, fetches
what ``FROM``, ``--from`` and ``ADD`` name, and grants what options of ``RUN`` ask for. So these may name
stages, images of registries and files of the build's folder only.

Engines differ in where an instruction ends (comments and blank lines in its middle, texts of ``<<EOF``). So
each line that begins like one of these instructions is judged as one, with all that may be a part of it:
what is refused too much is told with the line, what is refused too little opens the machine.

Source: docs.docker.com/reference/dockerfile; the parsers of BuildKit and of openshift/imagebuilder.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from gym_sandbox.image_references import MAX_CHARS, is_reference

MAX_BYTES = 256 << 10
_BEGIN = re.compile(r"\s*(ADD|ARG|COPY|FROM|ONBUILD|RUN)\s+(.*)", re.IGNORECASE | re.DOTALL)
# The word itself may go on in the next line.
_MAY_BEGIN = re.compile(r"\s*(?:(?:ADD|ARG|COPY|FROM|ONBUILD|RUN)(?:\s|$)|\w{1,8}\\)", re.IGNORECASE)
_OPTIONS = re.compile(r"(?:--\S*\s*)*")
_SKIPPED = re.compile(r"\s*(?:#|$)")
_DIRECTIVE = re.compile(r"\s*#\s*(escape|syntax)\s*=\s*(\S*)", re.IGNORECASE)
_FRONTEND = re.compile(r"(?:docker\.io/)?docker/dockerfile(?::[\w.-]+)?")
_OTHER_FRONTEND = re.compile(r"\s*(?://|\{)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^{}$]*))?\})")
_ELSEWHERE = re.compile(r"://|@[^/]*:")
_PLATFORM = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)")
_NAMED_PLATFORM = re.compile(r"[a-z0-9]+(?:/[a-z0-9]+){0,2}")


class Named(NamedTuple):
    """An image that a Dockerfile names.

    Attributes:
        platform: that it asks for, or "".
        base: it is built on, so that its ``ONBUILD`` is carried out.
        stage: a stage before it has the same name.
    """

    image: str
    platform: str
    base: bool
    stage: bool


def refusal(content: bytes, *, mounts: bool) -> str:
    """Why a Dockerfile is not built, in words with the line; empty if nothing speaks against it.

    Args:
        mounts: ``RUN --mount`` is safe with this engine.
    """
    if len(content) > MAX_BYTES:
        return f"more than {MAX_BYTES >> 10} KiB"
    lines = _lines(content)
    for line in lines:
        directive = _DIRECTIVE.match(line)
        if directive and directive[1].lower() == "escape" and directive[2] != "\\":
            return f"another sign of escape than \\: {_cut(line)}"
        if directive and directive[1].lower() == "syntax" and not _FRONTEND.fullmatch(directive[2]):
            return f"a syntax of its own: {_cut(line)}"
    if any(_OTHER_FRONTEND.match(line) for line in [one for one in lines if not _SKIPPED.match(one)][:1]):
        return "a syntax of its own"
    values: dict[str, set[str]] = {}
    try:
        reasons = ((text, _refused(text, values, mounts)) for text in _instructions(lines))
        return next((f"{reason}: {_cut(text)}" for text, reason in reasons if reason), "")
    except ValueError as error:
        return str(error)


def images(content: bytes) -> list[Named]:
    """The images that a Dockerfile which is not refused names, once each, as variables have been set."""
    values: dict[str, set[str]] = {}
    stages: set[str] = set()
    found: dict[Named, None] = {}
    for text in _instructions(_lines(content)):
        begin = _BEGIN.match(text)
        word, body = (begin[1].upper(), begin[2]) if begin else ("", "")
        if word == "ARG":
            _learn(body, values)
            continue
        options, body = _options(body)
        words = body.split()
        asked = {name.lower(): value for name, _, value in (option.partition("=") for option in options)}
        # A line of another instruction's text may begin so, too: from x import y.
        if word == "FROM" and (len(words) == 1 or (len(words) == 3 and words[1].lower() == "as")):
            image, platform = _filled(words[0], values), asked.get("--platform", "")
            known = platform if _NAMED_PLATFORM.fullmatch(platform) else ""
            found[Named(image, known, base=True, stage=image.lower() in stages)] = None
            stages.add(words[-1].lower())
        elif word == "COPY" and (image := asked.get("--from", "")) and not image.isdecimal():
            found[Named(image, "", base=False, stage=image.lower() in stages)] = None
    return [one for one in found if one.image.lower() != "scratch"]


def _lines(content: bytes) -> list[str]:
    return content.decode(errors="replace").removeprefix("\ufeff").split("\n")


def _learn(body: str, values: dict[str, set[str]]) -> None:
    """The values that an ``ARG`` gives."""
    for name, _, value in (part.partition("=") for part in body.split() if "=" in part):
        values.setdefault(name, set()).add(_filled(value.strip("\"'"), values))


def _instructions(lines: Sequence[str]) -> Iterator[str]:
    """From each line that may begin an instruction, all that may be a part of it.

    Raises:
        ValueError: lines that begin one are parts of too many others.
    """
    steps = size = 0
    for place, line in enumerate(lines):
        if not _MAY_BEGIN.match(line):
            continue
        parts: list[str] = []
        for further in itertools.islice(lines, place, None):
            steps, size = steps + 1, size + len(further)
            if steps > 4 * len(lines) + 1000 or size > 4 * MAX_BYTES:
                raise ValueError("too many lines that go on in others")
            if parts and _SKIPPED.match(further):
                continue
            further = further.rstrip()
            parts.append(further.removesuffix("\\"))
            if not further.endswith("\\"):
                break
        yield "".join(parts)


def _refused(text: str, values: dict[str, set[str]], mounts: bool) -> str:
    """Why an instruction is not carried out; ``values`` are those that ``ARG`` has given so far."""
    begin = _BEGIN.match(text)
    if begin is None:
        return ""
    word, body = begin[1].upper(), begin[2]
    if word == "ONBUILD":
        return _refused(body, values, mounts)
    if word == "ARG":
        _learn(body, values)
        return ""
    options, body = _options(body)
    if any(sign in option for option in options for sign in "\"'\\"):
        return f"{word} with a quoted option"
    if word == "RUN":
        if any(not mounts or not one.startswith("--mount=") for one in options):
            return f"RUN with {options[0].partition('=')[0]}"
        options = [f"--{part}" for one in options for part in one.removeprefix("--mount=").split(",")]
    named = [option.partition("=")[2] for option in options if option.lower().startswith("--from=")]
    if word == "FROM":
        named = [_filled(one, values) for one in body.split()[:1]]
    for one in named:
        if not re.fullmatch(r"[\w.-]+", one) and not is_reference(one.lower()):
            return f"{word} of what is no stage and no image of a registry"
    return "ADD of what may be a URL" if word == "ADD" and _may_be_remote(body) else ""


def _options(body: str) -> tuple[list[str], str]:
    """Its options, and the rest."""
    options = _OPTIONS.match(body)
    head = options[0] if options else ""
    return head.split(), body[len(head) :]


def _may_be_remote(body: str) -> bool:
    words: list[str] = body.split()
    if body.startswith("["):
        with suppress(ValueError, RecursionError):
            words = [str(one) for one in json.loads(body)]
    # The last one is a place in the image.
    return any(_ELSEWHERE.search(one) or set(one) & set("$\"'\\") for one in words[:-1] or words)


def _filled(text: str, values: dict[str, set[str]]) -> str:
    """With the values of its variables; what is unknown, or has several values, stays."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        known = values.get(name, set())
        if len(known) == 1:
            return next(iter(known))
        return "amd64" if _PLATFORM.fullmatch(name) else found[3] if found[3] and not known else found[0]

    return _VARIABLE.sub(value, text[: 2 * MAX_CHARS])[: 2 * MAX_CHARS]


def _cut(text: str) -> str:
    text = " ".join(text[:400].split())
    return text if len(text) <= 100 else f"{text[:100]}…"
