"""OpenRLHF: an ``AgentExecutor`` whose rollouts run here, and a remote reward.

OpenRLHF's engine can be reached only through ``llm_engine.generate`` in its own Ray actor, so each actor
serves its engine to the system as a model (`gym_trainers.token_engine`). OpenRLHF keeps its engines,
its weights and its balance between engines; agents, tools, judges and retries are ours. The dataset's label
column holds the row.

OpenRLHF takes no rollout without a reward, and one without an action token makes its means NaN. So a rollout
that fails is made `TRIES` times at most. After that it becomes a single end token with the mean reward of its
group, so that its advantage is 0 and the group's mean does not change; ``extra_logs`` counts it. An
estimator without groups (``reinforce``, ``gae``) trains on that one token.

Source: OpenRLHF 0.11.2, ``openrlhf/utils/agent.py``, ``trainer/ppo_utils/samples_generator.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

from gym_runtime.training import Credit

from gym_trainers.prompt_groups import PromptGroups
from gym_trainers.rollout_source import RolloutSource, shared_client
from gym_trainers.token_engine import MakeRenderer, Read, Sampled, TokenEngine
from gym_trainers.training_rollouts import (
    NO_LOG_PROBS,
    SAMPLING,
    base_class,
    engine_sampling,
    lacks_log_probs,
    only_piece,
    only_seat,
    pieces,
    roles_apart,
    sole_reward,
    standing_in,
    unweighted,
)

TRIES = 3
_SPECIAL_TOKEN = re.compile(r"(?:<\|[^|<>]{1,60}\|>|</s>|<eos>|<end_of_turn>)\Z")
_LONGEST_TOKEN = 64


class GymAgentExecutor(base_class("openrlhf.utils.agent", "AgentExecutorBase")):
    """For ``--train.agent_func_path FILE``, in which a subclass named ``AgentExecutor`` has the settings::

        class AgentExecutor(GymAgentExecutor):
            settings = {"max_turns": 8}

    Attributes:
        nats: the broker of the running system; by default ``GYM_NATS_URL``.
        settings: fields of `RolloutSettings`, such as ``max_turns``.
        read: how answers are parsed, if not as Qwen and Hermes models write them.
        credit: which sequences of a rollout with branches are trained on; OpenRLHF takes one of them.
        signal: which rows are run: see `gym_trainers.prompt_groups.PromptGroups`.
        seat: the one to train on, where the policy has several.
        renderer: as for `TokenEngine`, but a function of the tokenizer.
    """

    nats: ClassVar[str] = ""
    credit: ClassVar[Credit] = "accepted"
    settings: ClassVar[Mapping[str, Any]] = {}
    read: ClassVar[Read | None] = None
    signal: ClassVar[Mapping[str, Any] | None] = None
    seat: ClassVar[str] = ""
    renderer: ClassVar[MakeRenderer | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._credit: Credit = unweighted(self.credit, "OpenRLHF")
        self._source: RolloutSource | None = None
        self._groups = PromptGroups(self.signal, "OpenRLHF")

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """One rollout of the row in ``label``; its prompt is the row's.

        Raises:
            TaskError, UsageError: the row or a setting is wrong; or the policy has several seats and none is
                named.
        """
        if self._source is None:
            self._source = self._made(sampling_params, max_length, hf_tokenizer, llm_engine)
        # All rollouts of a prompt begin together, and are given the same object; no others are.
        with self._groups.member(id(sampling_params), label, self._source.add_use) as group:
            given = {name: getattr(sampling_params, name, None) for name in SAMPLING}
            label = group.row or label
            record = await self._source.rollout(label, engine_sampling(given), tries=TRIES)
            group.records.append(record)
        seat = only_seat(record, self.seat, roles_apart(self.settings), "OpenRLHF")
        found, reward = pieces(record, self._credit, seat), record.reward_of(seat)
        wanted, why = sampling_params.logprobs is not None, ""
        if wanted and lacks_log_probs(found):
            found, why = [], NO_LOG_PROBS
        piece = only_piece(record, found, int(hf_tokenizer.eos_token_id), log_probs=wanted, why=why)
        if not found:
            piece = piece._replace(turns=((0, 1),))
            await group.settled.wait()
            reward = standing_in(one.reward_of(seat) for one in group.records if one is not record)
        start = len(piece.prompt_ids)
        log_probs = [0.0] * start + piece.log_probs if wanted and piece.log_probs else None
        return {
            "prompt": prompt,
            "label": label,
            "images": images,
            "mm_train_inputs": None,
            "observation_tokens": piece.prompt_ids + piece.response_ids,
            "action_ranges": [(start + first, start + last) for first, last in piece.turns],
            "rollout_log_probs": log_probs,
            "reward": reward,
            "scores": reward,
            "truncated": piece.cut,
            "extra_logs": {"gym_failed": float(not found), "gym_turns": float(record.turns)},
        }

    def _made(self, template: Any, max_length: int, tokenizer: Any, llm_engine: Any) -> RolloutSource:
        async def generate(prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
            params = deepcopy(template)
            for name, value in sampling.items():
                setattr(params, name, value)
            said = (await llm_engine.generate(prompt, params)).outputs[0]
            ids = list(said.token_ids)
            chosen = zip(ids, said.logprobs, strict=True) if said.logprobs is not None else None
            log_probs = None if chosen is None else [float(all_[token].logprob) for token, all_ in chosen]
            return Sampled(ids, log_probs, cut=said.finish_reason == "length")

        own = type(self)
        made = own.renderer and own.renderer(tokenizer)
        engine = TokenEngine(tokenizer, generate, context=max_length, read=own.read, renderer=made)
        return RolloutSource(engine, nats=self.nats, settings=self.settings)


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """For ``--reward.remote_url FILE``: the verdict of a row's verifier on one single-turn answer.

    The row is the label. Rows must name their environment (``agent_ref``), and the system is that of
    ``GYM_NATS_URL``. What fails raises: OpenRLHF then has no reward and stops, instead of training on 0.

    Raises:
        GymError: there is no verdict; or the environment trains several seats.
    """
    (query,), (prompt,), (label,) = queries, prompts, labels
    said = without_end_tokens(query.removeprefix(prompt))
    reward = sole_reward(shared_client().verify(label, said), "use GymAgentExecutor, with seat")
    return {"rewards": reward, "scores": reward, "extra_logs": {}}


def without_end_tokens(text: str) -> str:
    """A text without the special tokens at its end.

    One expression for all of them would need a time that grows with the square of the text.

    >>> without_end_tokens("yes <|im_end|>\\n<|endoftext|>"), without_end_tokens("yes ")
    ('yes', 'yes ')
    """
    end, kept = len(text.rstrip()), len(text)
    while found := _SPECIAL_TOKEN.search(text, max(0, end - _LONGEST_TOKEN), end):
        end = found.start()
        # Texts of nothing but white space between two tokens are short steps.
        while end and text[end - 1].isspace():
            end -= 1
        kept = end
    return text[:kept]
