"""The HTTP client for private engines reads what is sound to the byte, and mixes up no answers."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from gym_models.wire.reply import NoAnswer, TooLarge
from models.played_server import OK, SOUND, asked, asked_again, playing

pytestmark = pytest.mark.anyio


def sound_answer(dice: random.Random, body: bytes) -> tuple[bytes, bool]:
    """A way of sending a body, and whether it ends with the connection."""
    head = b"HTTP/1.1 100 Continue\r\n\r\n" * dice.choice((0, 0, 1, 2)) + OK
    for number in range(dice.randrange(4)):
        head += b"X-%d: %s\r\n" % (number, b"v" * dice.randrange(50))
    framing = dice.choice(("length", "chunked", "end"))
    if framing == "length":
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body), dice.random() < 0.2
    if framing == "end":
        return head + b"\r\n" + body, True
    sent, at = head + b"Transfer-Encoding: Chunked\r\n\r\n", 0
    while at < len(body):
        size = dice.randint(1, len(body) - at)
        sent += b"%x%b\r\n%b\r\n" % (size, dice.choice((b"", b";a=b", b" ")), body[at : at + size])
        at += size
    return sent + b"0\r\n" + dice.choice((b"", b"X-Sum: 1\r\n")) + b"\r\n", dice.random() < 0.2


def split(dice: random.Random, sent: bytes) -> list[bytes]:
    cuts = sorted(dice.randrange(len(sent) + 1) for _ in range(dice.randrange(4)))
    return [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


def spoiled(dice: random.Random, sent: bytes) -> bytes:
    at = dice.randrange(len(sent))
    match dice.randrange(4):
        case 0:
            return sent[:at]
        case 1:
            return sent[:at] + bytes([dice.randrange(256)]) + sent[at + 1 :]
        case 2:
            return sent[:at] + dice.choice((b"\r\n", b"0\r\n\r\n", b"\x00", SOUND, b"\n")) + sent[at:]
        case _:
            return sent + dice.choice((SOUND, b"HTTP/1.1 ", dice.randbytes(20)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 50))]
)
async def test_fuzzed_answers(seed: int) -> None:
    """Sound answers are read to the byte, also after spoiled ones, which end with an error or an answer."""
    dice = random.Random(seed)
    async with playing() as (server, client, url), playing(reuse=False) as (other, once, other_url):
        for _ in range(100):
            body = dice.randbytes(dice.choice((0, 1, 10, 1000)))
            sent, closes = sound_answer(dice, body)
            server.scripts[b"sound"] = split(dice, sent), closes
            assert (await asked_again(client, url, b"sound")).body == body
            # In one piece: what comes after the next request was sent cannot be told from its answer.
            server.scripts[b"spoiled"] = [spoiled(dice, sent)], dice.random() < 0.5
            other.scripts[b"spoiled"] = split(dice, spoiled(dice, sent)), True
            with suppress(NoAnswer, TooLarge, TimeoutError):
                await asked(client, url, b"spoiled", limit_s=0.02)
            with suppress(NoAnswer, TooLarge):
                await asked(once, other_url, b"spoiled")
