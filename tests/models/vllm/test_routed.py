"""Routed experts, from an engine's answer to the sequences that are trained on."""

from __future__ import annotations

import random
from base64 import b64encode
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import pytest
from gym_models.vllm import Adapter
from gym_models.vllm_engine.routed import with_experts
from gym_models.vllm_engine.tokens import Choice, Generated
from gym_runtime import Environment
from gym_runtime.adapters import Rollout
from gym_runtime.errors import ModelRefused, ModelUnavailable, TaskError
from gym_runtime.messages.call_tokens import Tokens, pack_ids, pack_logprobs
from gym_runtime.messages.outcomes import Failed, encode_record, read_record
from gym_runtime.messages.routed_experts import Experts, written
from gym_runtime.messages.sequences import token_sequences
from gym_testing.small_system import environment, rollout_spec, row, small_system
from models.vllm.adapter.adapters import settings
from msgspec import Raw
from msgspec.structs import replace
from runtime.messages.call_trees import draw, record
from runtime.rollout.made_records import Bench
from stubs.stub_vllm import StubVllm, routed
from tables import table

pytestmark = pytest.mark.anyio
ASKED = {"routed_experts": True}


class Again:
    """Asks twice; its first attempt is lost between the two turns."""

    lost = False

    async def run(self, rollout: Rollout) -> None:
        turn = await rollout.respond()
        if not self.lost:
            self.lost = True
            raise ModelUnavailable("gone", stage="model")
        await rollout.call_tools(turn.function_calls)
        await rollout.respond()


async def played(stub: StubVllm, **options: Any) -> Any:
    async with small_system() as system, Adapter(settings(stub, options=options)) as adapter:
        await system.add_resource(environment(Environment(resource=Bench, description=""), "sample"))
        await system.add_model(adapter)
        await system.add_agent({"tool_loop": Again()})
        (made,) = await system.make(rollout_spec(row(), return_tokens=True, packed_tokens=True))
    return made


async def test_experts_come_from_the_engine_through_the_journal_to_the_sequences() -> None:
    async with StubVllm(experts=True).running() as stub:
        made, plain = await played(stub, **ASKED), await played(stub)
    assert msgspec.json.decode(made.row)["_gym"]["resumed_turns"] == 1
    (one,) = made.sequences()
    whole = [*one.prompt_ids.tolist(), *one.completion_ids.tolist()]
    assert one.experts.dtype == np.uint8
    assert one.experts.tolist() == routed(whole).tolist()
    # The row says the same, and each turn has those of its new tokens only.
    (same,) = token_sequences(made.row)
    assert same.experts is not None
    assert same.experts.tolist() == one.experts.tolist()
    stored = sum(len(call.tokens.experts.data) for call in made.tokens)
    assert stored == one.experts.nbytes
    # An engine that is not asked for them is as before.
    assert plain.sequences()[0].experts is None
    assert b"experts" not in encode_record(plain)
    assert b"routed_experts" not in bytes(plain.row)


async def test_an_engine_that_sends_none_is_refused_with_the_remedy() -> None:
    async with StubVllm().running() as stub, StubVllm(scale_out=False).running() as chat:
        for engine, said in ((stub, "--enable-return-routed-experts"), (chat, "--enable-scale-out")):
            outcome = (await played(engine, **ASKED)).outcome
            assert isinstance(outcome, Failed)
            assert said in outcome.fault.message


def file(array: Any) -> Raw:
    data = BytesIO()
    np.save(data, array)
    return Raw(msgspec.json.encode(b64encode(data.getvalue()).decode()))


def answered(written: Raw, **fields: Any) -> Generated:
    return Generated(request_id="r", choices=[Choice(routed_experts=written)], **fields)


def test_experts_of_an_engine_that_shares_its_caches_are_refused() -> None:
    shared = answered(file(routed([1, 2, 3])), kv_transfer_params=Raw(b'{"remote_host": "b"}'))
    with pytest.raises(ModelRefused, match="without --kv-transfer-config"):
        with_experts(SAID, shared)
    none = answered(file(routed([1, 2, 3])), kv_transfer_params=Raw(b"null"))
    assert with_experts(SAID, none).experts is not None


SAID = Tokens(prompt_ids=pack_ids([1, 2]), generation_ids=pack_ids([3]), log_probs=pack_logprobs([0.0]))


@table(
    "written",
    [
        file(routed([1, 2, 3, 4])),
        file(routed([1, 2])),
        file(routed([1, 2, 3]).astype("<i4")),
        file(routed([1, 2, 3])[:, 0]),
        file(np.asfortranarray(routed([1, 2, 3]))),
        file(np.array([{"a": 1}], dtype=object)),
        Raw(bytes(file(routed([1, 2, 3])))[:-9] + b'"'),
        Raw(
            b'"%b"'
            % b64encode(b"\x93NUMPY\x01\x00\x60\x00{'descr': '|u1', 'shape': (999999999, 9999, 999), }")
        ),
        Raw(b'"no base64"'),
        Raw(b"17"),
        Raw(b"null"),
        Raw(),
    ],
)
def test_what_are_not_the_experts_of_an_answer_is_refused(written: Raw) -> None:
    with pytest.raises(ModelRefused, match="routed_experts") as refused:
        with_experts(SAID, answered(written))
    assert "\n" not in str(refused.value)


def test_more_than_256_experts_take_two_bytes() -> None:
    wide = routed([900, 901, 902], wide=True)
    experts = with_experts(SAID, answered(file(wide))).experts
    assert experts == Experts(layers=3, top_k=2, data=wide.tobytes(), wide=True)
    assert len(with_experts(SAID, answered(file(np.zeros((2, 48, 8), "u1")))).experts.data) == 2 * 384


@table("seed", range(60))
def test_each_sequence_of_a_tree_has_the_experts_of_its_tokens(seed: int) -> None:
    chance = random.Random(seed)
    wide = bool(seed % 2)
    calls = draw(chance)
    for one in calls:
        if one.ids:
            data = routed(one.whole, wide=wide).tobytes()
            one.tokens = replace(one.tokens, experts=Experts(layers=3, top_k=2, data=data, wide=wide))
    made = record(calls)
    if not any(one.ids for one in calls):
        return
    read = read_record(encode_record(made))
    for sequences in (made.sequences("all"), token_sequences(read.row, credit="all")):
        for one in sequences:
            if one.experts is None:
                # A call that sampled nothing has none, and the next one is short on its prompt.
                assert not all(call.ids for call in calls)
                continue
            expected = routed([*one.prompt_ids.tolist(), *one.completion_ids.tolist()], wide=wide)
            assert one.experts.dtype == expected.dtype
            assert np.array_equal(one.experts, expected)


ITEM = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [0.0, 0.0]}


def in_row(**fields: Any) -> bytes:
    return msgspec.json.encode({"response": {"output": [{**ITEM, **fields}]}})


@pytest.mark.parametrize("said", [None, "nrlre1:x", [[[1]], [[2]]], {"data": ""}, 7])
def test_rows_with_experts_in_another_form_are_read_without_them(said: Any) -> None:
    (one,) = token_sequences(in_row(routed_experts=said))
    assert one.experts is None


def test_a_row_of_nemo_gym_is_read() -> None:
    (one,) = token_sequences(
        in_row(routed_experts=f"nrlre1:int8:2x1x2:{b64encode(bytes(range(4))).decode()}")
    )
    assert one.experts is not None
    assert one.experts.tolist() == [[[0, 1]], [[2, 3]]]


@pytest.mark.parametrize(
    "fields",
    [
        {"routed_experts": "nrlre1:int8:999999999x9999x999:"},
        {"routed_experts": "nrlre1:int8:2x0x0:"},
        {"routed_experts": "nrlre1:int8:2x1x1:AAA"},
        {"routed_experts": "nrlre1:int8:1x1x1:AA=="},
        {"routed_experts": "nrlre1:int8:2x1x1:AAA=", "routed_experts_start": -1},
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="experts"):
        token_sequences(in_row(**fields))


@pytest.mark.parametrize("wide_first", [False, True])
def test_calls_that_wrote_experts_in_one_byte_and_in_two_are_one_sequence(wide_first: bool) -> None:
    def packed(rows: list[int], start: int, *, wide: bool) -> dict[str, Any]:
        data = np.array(rows, "<u2" if wide else "u1").tobytes()
        return written(Experts(layers=1, top_k=1, data=data, start=start, wide=wide))

    first = {**ITEM, **packed([1, 2], 0, wide=wide_first)}
    second = {**ITEM, "prompt_token_ids": [1, 2, 3], **packed([3, 4], 2, wide=not wide_first)}
    row = msgspec.json.encode({"response": {"output": [first, second]}})
    (one,) = token_sequences(row)
    assert one.experts is not None
    assert (one.experts.dtype, one.experts.ravel().tolist()) == (np.uint16, [1, 2, 3, 4])
