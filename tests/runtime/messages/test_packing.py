"""Token ids as JSON and packed, also where there are so many that they are handled in pieces."""

from __future__ import annotations

import json
import random
import struct

import msgspec
import pytest
from gym_runtime.messages import pack_ids, pack_json_ids, unpack_ids
from gym_runtime.messages.call_tokens import json_ids
from tables import table

MANY = 20_000
IDS = [random.Random(1).randrange(200_000) for _ in range(MANY)]


@table("count", [0, 1, 3_999, 4_000, 4_001, MANY])
@table("separators", [(",", ":"), (", ", ": ")])
def test_ids_come_back_as_they_were(count: int, separators: tuple[str, str]) -> None:
    ids = IDS[:count]
    packed = pack_json_ids(json.dumps(ids, separators=separators).encode())
    assert packed == pack_ids(ids)
    assert unpack_ids(packed) == json.loads(b"[%b]" % json_ids(packed)) == ids


@table(
    "wrong",
    ["[1]", "[[1],[2]", '"1,2"', "1.5", "null", "true", "{}", "1 2", "-", "1]", "[1", "]", "["],
)
@table("before", [0, 3_000, MANY])
def test_what_is_no_array_of_ids_is_refused_wherever_it_stands(wrong: str, before: int) -> None:
    parts = [*map(str, IDS[:before]), wrong, "7"]
    with pytest.raises(msgspec.DecodeError):
        pack_json_ids(f"[{','.join(parts)}]".encode())


@table("text", [b"", b"{}", b"5", b"1,2", b"null", b"[1", b"1]", b"[1],[2]"])
def test_what_is_no_array_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        pack_json_ids(text)


def test_an_id_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(struct.error):
        pack_json_ids(f"[{','.join(map(str, IDS))},{2**31}]".encode())
