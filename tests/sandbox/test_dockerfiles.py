"""What data may make an engine fetch or open: names of images, and instructions of Dockerfiles."""

from __future__ import annotations

import time

from gym_sandbox import dockerfiles
from gym_sandbox.image_references import is_reference
from tables import table

DIGEST = "sha256:" + 64 * "a"
REFERENCES = (
    *(
        "python",
        "python:3.12-slim",
        "docker.io/library/python:3.12-slim",
        "localhost/x:tag",
        "docker:24-dind",
    ),
    *(f"name@{DIGEST}", f"localhost:5000/a/b_c:1.0@{DIGEST}", "[::1]:5000/a", "ghcr.io/Own.er/x".lower()),
    *("swebench/sweb.eval.x86_64.django_1776_django-1:latest", "GCR.io/a/b:Tag", "a--b", "dir", "oci/x:1"),
)
NONE = (
    *(
        "docker-archive:/srv/x.tar",
        "docker-archive:x.tar",
        "oci:/x",
        "oci:x",
        "oci-archive:x",
        "dir:/x",
        "dir:x",
    ),
    *(
        "containers-storage:localhost/x",
        "containers-storage:[overlay@/x]y",
        "docker://python",
        "docker-daemon:a:b",
    ),
    *(
        "/x/y.sif",
        "./x",
        "../x",
        "-v",
        "--help",
        "",
        "a b",
        "a\n",
        "a\0b",
        "http://x/y",
        "Python",
        "a/../b",
        "sif:x",
    ),
    "a" * 600,
)


def test_names_of_images() -> None:
    assert [one for one in REFERENCES if not is_reference(one)] == []
    assert [one for one in NONE if is_reference(one)] == []


BUILT = (
    "FROM python:3.12-slim AS build\nRUN pip install x\n"
    "FROM python:3.12-slim\nCOPY --from=build /a /b\nCOPY --from=0 a b",
    "# syntax=docker/dockerfile:1\nARG V=3.12\nARG BASE=python:${V}-slim\n"
    "FROM --platform=$BUILDPLATFORM $BASE as Two\nCOPY --from=Two a b",
    "FROM x\nADD data.tar.gz /app/\nADD --chown=1:1 a b /c/\n"
    'ADD ["a b", "/c"]\nADD \\\n  a \\\n  # words\n\n  /b',
    "FROM x\nENV U=http://x/a\nRUN curl $U | sh && \\\n  add-apt-repository ppa:x && \\\n"
    "  apk \\\n  add b\nADD a $HOME/",
    "FROM x\nRUN <<EOF\nfrom __future__ import annotations\nfrom PIL import Image\nEOF\n"
    "COPY --chown=$USER a b",
    "FROM x\nRUN echo --network=host # FROM docker://x",
    "FROM ubuntu:${TAG:-24.04}\nONBUILD COPY . /app\n# escape=\\\nRUN echo a\\\nb",
    f"FROM docker.io/library/python@{DIGEST}\nCOPY --from=ghcr.io/astral-sh/uv:latest /uv /bin/",
)
ADD, FROM, RUN = "ADD of what may be a URL", "no stage and no image of a registry", "RUN with --"
REFUSED = {
    "ADD http://169.254.169.254/a /a": ADD,
    "ADD HTTP://169.254.169.254/a /a": ADD,
    "  add\thttps://x/a /a": ADD,
    'ADD ["http://x/a", "/a"]': ADD,
    'ADD --chown=0 ["http://x/a", "/a"]': ADD,
    'ADD "http://x/a" /a': ADD,
    "ADD 'http:'//x/a /a": ADD,
    "ADD http:\\//x/a /a": ADD,
    "ADD git@github.com:a/b.git /a": ADD,
    "ADD me@host:a/b /a": ADD,
    "ADD \\\n  https://x/a /a": ADD,
    "ADD \\ \r\n  # words\r\n\r\n  https://x/a /a": ADD,
    "ADD a \\\\\n  https://x/a /a": ADD,
    "A\\\nDD https://x/a /a": ADD,
    "AD\\ \t\nD https://x/a /a": ADD,
    "ENV U=http://x/a\nADD ${U} /a": ADD,
    "ARG U=http://x/a\nADD $U /a": ADD,
    "ONBUILD ADD http://x/a /a": ADD,
    "ONBUILD \\\nADD http://x/a /a": ADD,
    "RUN x \\\nADD http://x/a /a": ADD,
    'RUN <<"X\\"\nX\\\nADD \\\nhttp://x/a /a': ADD,
    "FROM docker-archive:/host/private.tar": FROM,
    "FROM --platform=linux/amd64 oci:/host/private": FROM,
    "FROM dir:private": FROM,
    "ARG B=docker-archive:/x\nFROM $B": FROM,
    "ARG A=docker\nARG B=${A}-archive:/x\nFROM ${B}": FROM,
    "ARG B=x\nARG B=docker-archive:/x\nFROM ${B}": FROM,
    "FROM ${B:-docker-archive:/x}": FROM,
    "FROM $HTTP_PROXY": FROM,
    'FROM "docker-archive:/x"': FROM,
    "COPY --from=docker-archive:/x /a /b": FROM,
    "COPY --chown=1 --from=containers-storage:x /a /b": FROM,
    "COPY \\\n--from=dir:/x \\\n/a /b": FROM,
    "COPY --fr\\om=dir:/x /a /b": "quoted option",
    "RUN --network=host id": RUN,
    "RUN --security=insecure id": RUN,
    "RUN \\ \n--network=host \\ \n id": RUN,
    "RUN \\\r\n --network=host id": RUN,
    "RUN --net\\\nwork=host id": RUN,
    "RUN --mount=type=cache,target=/x --network=host id": RUN,
    'RUN --net"work"=host id': "quoted option",
    "RUN --mount=type=cache,target=/y id": RUN,
    "RUN --mount=from=build,target=/y id": RUN,
    "# escape=`\nRUN `\n--network=host id": "sign of escape",
    "#syntax = me/frontend": "syntax of its own",
}


def refusal(text: str) -> str:
    return dockerfiles.refusal(text.encode(), mounts=False)


def test_dockerfiles_that_stay_within_their_folder() -> None:
    for text in BUILT:
        assert refusal(text) == "", text
        assert refusal(text.replace("\n", "\r\n")) == "", text


@table("text", REFUSED)
def test_what_the_engine_itself_would_fetch_or_open(text: str) -> None:
    assert REFUSED[text] in refusal(f"FROM x\n{text}\n")
    assert REFUSED[text] in refusal(f"{text}\n")


def test_the_images_that_a_dockerfile_names() -> None:
    text = """ARG V=3.12
ARG BASE=python:${V}-slim
FROM --platform=linux/arm64 $BASE AS One
FROM --platform=$TARGETPLATFORM one as two
from scratch
COPY --chown=1 --from=One /a /b
COPY --from=0 /a /b
COPY --from=ghcr.io/astral-sh/uv:latest /uv /
RUN python <<EOF
from os import path
EOF
"""
    found = dockerfiles.images(text.encode())
    assert [(one.image, one.platform, one.base, one.stage) for one in found] == [
        ("python:3.12-slim", "linux/arm64", True, False),
        ("one", "", True, True),
        ("One", "", False, True),
        ("ghcr.io/astral-sh/uv:latest", "", False, False),
    ]


def test_mounts_of_an_engine_with_which_they_are_safe() -> None:
    for mount, reason in {
        "type=cache,target=/var/cache/pip": "",
        "type=bind,from=build,target=/y": "",
        "type=bind,from=python:3.12,target=/y": "",
        "type=bind,from=docker-archive:/x,target=/y": FROM,
        "FROM=dir:/x,target=/y --mount=target=/z": FROM,
        "type=cache,target=/y --network=host": RUN,
    }.items():
        assert reason in dockerfiles.refusal(f"FROM x\nRUN --mount={mount} id".encode(), mounts=True)


def test_a_syntax_that_only_the_engine_knows() -> None:
    for text in ("// syntax=me/frontend\nFROM x", '{"syntax": "me/frontend"}', "#!/x\n# syntax=me/frontend"):
        assert "a syntax of its own" in refusal(text)


@table(
    "content",
    [
        "\n" * 250_000,
        "ADD\\\n" * 50_000,
        "RUN \\\n" * 20_000 + "\n" * 100_000,
        "RUN " + "--a " * 60_000,
        "ARG A=" + "a" * 900 + "\n" + "".join(f"ARG A{n}=$A$A$A\n" for n in range(9000)) + "FROM $A1",
        "ADD [" + "[" * 250_000,
        "ADD " + "a " * 120_000,
        "\\ " * 120_000,
        "#escape" + " " * 250_000,
        "-" * 300_000,
    ],
)
def test_none_is_judged_for_long(content: str) -> None:
    begun_s = time.thread_time()
    refusal(content)
    assert time.thread_time() - begun_s < 1
