"""Images that come again, in a request, in a result, and in the texts of a journal."""

from __future__ import annotations

import json
import time
from hashlib import sha256

import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.messages.calls import Request, encode_request, receive_request
from gym_runtime.messages.outcomes import Completed, RolloutRecord, encode_record, read_record
from gym_runtime.messages.repeated_images import RepeatedImages, read_alone
from msgspec import Raw

SEEN = "data:image/png;base64," + "A" * 5000
OTHER = "data:image/png;base64," + "B" * 5000


def text(*urls: str, said: str = "") -> bytes:
    """As the runtime encodes a conversation."""
    items = [{"type": "input_image", "image_url": url} for url in urls]
    return msgspec.json.encode([*items, {"type": "output_text", "text": said}])


@pytest.mark.parametrize(
    ("urls", "images"),
    [((SEEN, SEEN, OTHER, SEEN), 2), ((SEEN, OTHER), 2), ((SEEN[:4000],) * 3, 3), ((), 0)],
    ids=["equal", "different", "small", "none"],
)
def test_what_is_packed_is_read_as_it_was(urls: tuple[str, ...], images: int) -> None:
    whole = text(*urls, said='"image_url":"data:image/png;base64,' + "C" * 5000 + '"')
    packed = RepeatedImages().packed(whole)
    assert packed.count(b'"image_url":"data:') == images
    assert RepeatedImages().read(packed, named=packed is not whole) == whole
    assert bytes(read_alone(Raw(packed))) == whole
    assert (packed is whole) is (images == len(urls))


def test_a_name_that_was_there_before_leaves_all_as_it_is() -> None:
    name = "gym-image:" + sha256(SEEN.encode()).hexdigest()
    whole = text(SEEN, SEEN, name)
    assert RepeatedImages().packed(whole) is whole
    assert RepeatedImages().read(whole, named=False) == whole


def test_what_looks_like_an_image_and_ends_nowhere_is_left() -> None:
    whole = b'{"image_url":"data:image/png;base64,' + b"A" * 5000
    assert RepeatedImages().packed(whole) is whole
    escaped = b'{"image_url":"data:image/png;base64,' + b"A" * 5000 + b'\\""}'
    assert RepeatedImages().packed(escaped * 2) == escaped * 2


@pytest.mark.parametrize("names_images", [True, False])
def test_a_request_carries_an_image_once_to_a_worker_that_understands_names(names_images: bool) -> None:
    body = Raw(text(SEEN, SEEN))
    request = Request(body=body, deadline_s=clock.monotonic() + 9)
    sent = encode_request(request, names_images=names_images)
    assert sent.count(SEEN.encode()) == (1 if names_images else 2)
    received = receive_request(sent)
    assert (bytes(received.body), received.images) == (bytes(body), False)


def result(row: bytes) -> RolloutRecord:
    identity = {"run": "r", "environment": "e", "task_index": 0, "rollout_index": 0}
    return RolloutRecord(**identity, outcome=Completed(), row=Raw(row), images=True)


def test_a_request_or_a_result_with_a_name_of_no_image_cannot_be_read() -> None:
    body = text("gym-image:" + "0" * 64)
    with pytest.raises(msgspec.DecodeError, match="no image"):
        receive_request(b'{"body":' + body + b',"images":true}')
    with pytest.raises(msgspec.DecodeError, match="no image"):
        read_record(encode_record(result(body)))


def test_a_result_with_names_is_read_with_its_images() -> None:
    whole = text(SEEN, OTHER, SEEN)
    stored = encode_record(result(RepeatedImages().packed(whole)))
    assert stored.count(SEEN.encode()) == 1
    read = read_record(stored)
    assert (bytes(read.row), read.images) == (whole, False)
    assert json.loads(bytes(read.row))[2]["image_url"] == SEEN


@pytest.mark.parametrize("different", [0, 1])
def test_twenty_megabytes_hold_the_loop_for_a_moment_only(different: int) -> None:
    """A conversation with thirty screenshots of 500 kB, equal ones and different ones."""
    whole = text(*[f"{SEEN}{number * different:04}" + "A" * 660_000 for number in range(30)])
    took_s: list[float] = []
    for _ in range(3):
        began_s = time.process_time()
        packed = RepeatedImages().packed(whole)
        read = read_alone(Raw(packed))
        took_s.append(time.process_time() - began_s)
        assert bytes(read) == whole
    assert min(took_s) < 0.1
