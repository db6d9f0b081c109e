"""Judges one request after the other in one process, without isolation: what `isolated.py` compares with.

``python tests/bench/long_lived.py ENVIRONMENT`` reads requests from its standard input and writes verdicts to
its standard output, as a verifier's process did before each verification had a fork of its own.
"""

from __future__ import annotations

import sys

import anyio
import msgspec
from gym_runtime.environment import catalogue
from gym_runtime.environment.replayed_session import rejudge
from gym_runtime.environment.verdict import Verdict
from gym_sandbox import frames

decode = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


async def main(name: str) -> None:
    resource = catalogue.environment(name).resource
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while head := requests.read(frames.LENGTH.size):
        row, reply = decode(requests.read(frames.LENGTH.unpack(head)[0]))
        verdict = await rejudge(resource, row, reply)
        assert isinstance(verdict, Verdict)
        answer = msgspec.json.encode((verdict.reward, verdict.components, verdict.fields))
        answers.write(frames.LENGTH.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
