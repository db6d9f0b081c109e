"""verl: an agent loop whose rollouts run here.

verl starts its engines and balances between them; an agent loop reaches them through
``server_manager.generate``, ids in and ids out. Each of verl's agent loop workers serves that function to the
system as a model (`gym_trainers.token_engine`), so weights, balance and interrupted generation stay
verl's, while agents, tools, judges and retries are ours. Answers are parsed as ``multi_turn.format`` says.

A failed rollout raises in the loop. verl's trainer (v1) records that its prompt has a failed session: the
others train without it, or the prompt is replaced, as verl is configured. The older trainer (``main_ppo_v0``)
cannot leave one out, so there it is one masked token with reward 0, which counts in its group's mean; its
``gym_failed`` is 1 in the metrics.

Source: verl 0.9.1, ``experimental/agent_loop/agent_loop.py``, ``trainer/ppo/v1/agent_loop_tq.py``,
``experimental/reward_loop/reward_manager/base.py``.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# verl is not installed where types are checked.

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

from anyio import to_thread
from gym_runtime import RolloutRecord
from gym_runtime.errors import GymError, ModelUnavailable, UsageError
from gym_runtime.messages import split_thought
from gym_runtime.training import Credit

from gym_trainers.hermes import Call, Said, said
from gym_trainers.prompt_groups import PromptGroups
from gym_trainers.rollout_source import RolloutSource, shared_client
from gym_trainers.token_engine import MakeRenderer, Sampled, TokenEngine
from gym_trainers.training_rollouts import (
    NO_LOG_PROBS,
    ROW,
    Piece,
    base_class,
    engine_sampling,
    lacks_log_probs,
    only_piece,
    only_seat,
    pieces,
    roles_apart,
    sole_reward,
    unweighted,
    why_failed,
)

HERMES = "hermes"
EACH_ONCE = ("grpo", "gae", "reinforce_plus_plus")
"""Of ``algorithm.adv_estimator``: these count a rollout of several outputs once in its prompt's group (verl's
``compute_advantage_for_multi_trajectories``), or compare none. The others would count each output as one."""
LOOP = "verl.experimental.agent_loop.agent_loop"
REWARDS = "verl.experimental.reward_loop.reward_manager.base"


class GymAgentLoop(base_class(LOOP, "AgentLoopBase")):
    """For verl's ``agent_loop_config_path``; the dataset's column ``gym_row`` holds the row::

        - name: gym_runtime
          _target_: gym_trainers.verl.GymAgentLoop

    Args:
        nats: the broker of the running system; by default ``GYM_NATS_URL``.
        settings: fields of `RolloutSettings`, such as ``max_turns``.
        credit: which sequences of a rollout with branches are trained on; the older trainer takes one.
        signal: which rows are run: see `gym_trainers.prompt_groups.PromptGroups`. Not for the older trainer,
            which may divide a group among processes.
        seat: the one to train on, where the policy has several: verl gives all outputs of a rollout one
            reward, and compares those of a prompt.
        renderer: as for `TokenEngine`, but a function of the tokenizer.

    Raises:
        UsageError: a kind has a weight that is neither 0 nor 1, which verl cannot take; or ``signal`` is
            wrong.
    """

    def __init__(
        self,
        *args: Any,
        nats: str = "",
        settings: Mapping[str, Any] | None = None,
        credit: Credit = "accepted",
        signal: Mapping[str, Any] | None = None,
        seat: str = "",
        renderer: MakeRenderer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._credit: Credit = unweighted(credit, "verl")
        self._seat, self._apart = seat, roles_apart(settings)
        self._engine = _engine(self, nats, settings or {}, signal, renderer)
        self._signal = signal is not None
        self._several = self.config.algorithm.adv_estimator in EACH_ONCE

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """One rollout: an ``AgentLoopOutput``, or for the v1 trainer a list with one per sequence.

        Where verl's estimator would take each output for a rollout (`EACH_ONCE`), it is the main sequence.

        Raises:
            TaskError, UsageError: the row or a setting is wrong; or the policy has several seats and none is
                named.
            GymError: the rollout failed (v1).
        """
        record = await self._rollout(str(columns[ROW]), engine_sampling(sampling_params), columns)
        steps = self._engine.steps.pop(record.rollout_id, []) or [columns.get("global_steps", -1)]
        seat = only_seat(record, self._seat, self._apart, "verl")
        length = self.rollout_config.response_length
        cut = [one.shortened(length) for one in pieces(record, self._credit, seat)]
        # The advantage of all outputs is the one that verl reads at the last one's first trained token.
        found = [one for one in cut if any(one.mask)] or cut
        reward = record.reward_of(seat)
        problem = self._problem(record, found)
        if "session_id" in columns:  # v1: verl's older trainer numbers no sessions
            if problem:
                raise GymError(f"rollout {record.rollout_id}: {problem}")
            if self._several:
                return [self._output(record, reward, one, steps) for one in found]
        found, end = [] if problem else found, self.tokenizer.eos_token_id
        piece = only_piece(record, found, end, log_probs=self._engine.log_probs, why=problem)
        one = self._output(record, 0.0 if problem else reward, piece, steps, failed=bool(problem))
        return [one] if "session_id" in columns else one

    async def _rollout(
        self, row: str, sampling: Mapping[str, Any], columns: Mapping[str, Any]
    ) -> RolloutRecord:
        engine = self._engine
        if "session_id" not in columns:
            if self._signal:
                raise UsageError("signal: main_ppo_v0 may divide a group among processes; use main_ppo")
            return await engine.source.rollout(row, sampling)
        # All rollouts of a prompt run in one worker, and begin together.
        version = int(columns["global_steps"])
        with engine.groups.member(columns["uid"], row, engine.source.add_use, version) as group:
            record = await engine.source.rollout(group.row or row, sampling)
            group.records.append(record)
        return record

    def _problem(self, record: RolloutRecord, found: Sequence[Piece]) -> str:
        """Why there is nothing to train on; empty if there is."""
        if not found:
            return why_failed(record) or "it has no tokens"
        if self._engine.log_probs and lacks_log_probs(found):
            return NO_LOG_PROBS
        if self._engine.replays and any(one.experts is None for one in found):
            return "enable_rollout_routing_replay is on, and the engine did not tell all experts"
        longest, limit = max(len(one.prompt_ids) for one in found), self.rollout_config.prompt_length
        return f"a prompt has {longest} tokens; rollout.prompt_length is {limit}" if longest > limit else ""

    def _output(
        self,
        record: RolloutRecord,
        reward: float | None,
        piece: Piece,
        steps: Sequence[int],
        *,
        failed: bool = False,
    ) -> Any:
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

        # verl takes the names of the first output of a batch for all, so they are always the same.
        info = {"gym_failed": float(failed), "gym_cut": float(piece.cut), "gym_turns": float(record.turns)}
        return AgentLoopOutput(
            prompt_ids=piece.prompt_ids,
            response_ids=piece.response_ids,
            response_mask=piece.mask,
            response_logprobs=piece.log_probs,
            routed_experts=None if piece.experts is None else piece.experts.astype("int16"),
            reward_score=reward,
            num_turns=1 + record.turns + record.tool_calls,
            metrics=AgentLoopMetrics(generate_sequences=record.duration_s),
            extra_fields={
                "reward_extra_info": info,
                "min_global_steps": min(steps),
                "max_global_steps": max(steps),
                "turn_scores": [],
                "tool_rewards": [],
            },
        )


class GymRewardManager(base_class(REWARDS, "RewardManagerBase")):
    """The verdict of a row's verifier on an answer of verl's own single-turn loop::

        reward.reward_manager: {source: importlib, name: GymRewardManager, module: {path: FILE}}

    The dataset's column ``gym_row`` holds the row, which names its environment. The system is that of
    ``GYM_NATS_URL``. What fails raises, and is never a reward of 0.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **more: Any) -> None:
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The verdict on the last sequence.

        Raises:
            GymError: there is no verdict; or the environment trains several seats.
        """
        item = data[-1]
        ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-ids.shape[-1] :].sum())
        text = self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        row = str(item.non_tensor_batch[ROW])
        verdict = await to_thread.run_sync(lambda: shared_client().verify(row, text))
        reward = sole_reward(verdict, "use GymAgentLoop, with seat")
        return {"reward_score": reward, "reward_extra_info": {"acc": reward}}


class _Engine:
    """What the rollouts of one agent loop worker share.

    Attributes:
        steps: the weights that sampled a rollout in progress, as verl's global steps.
        groups: the prompts in progress.
        log_probs: verl wants the engine's log-probabilities.
        replays: verl replays the engine's choice of experts.
    """

    def __init__(
        self,
        loop: Any,
        nats: str,
        settings: Mapping[str, Any],
        signal: Mapping[str, Any] | None,
        renderer: MakeRenderer | None,
    ) -> None:
        from verl.experimental.agent_loop.tool_parser import ToolParser

        self.steps: dict[str, list[int]] = {}
        self.groups = PromptGroups(signal, "verl")
        # Weakly, because they own the engine.
        self._servers = ref(loop.server_manager)
        self._tokenizer, config = loop.tokenizer, loop.rollout_config
        self.log_probs = bool(config.calculate_log_probs)
        self.replays = bool(config.get("enable_rollout_routing_replay"))
        form = config.multi_turn.format
        self._parser = ToolParser.get_tool_parser(form, self._tokenizer)
        read, context = None if form == HERMES else self._read, config.prompt_length + config.response_length
        made = renderer and renderer(self._tokenizer)
        template: Mapping[str, Any] = loop.apply_chat_template_kwargs  # the dataset's
        engine = TokenEngine(
            self._tokenizer,
            self._generate,
            context=context,
            read=read,
            renderer=made,
            template=template,
        )
        self.source = RolloutSource(engine, nats=nats, settings=settings)

    async def _generate(self, prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        if self._parser.stop_token_ids:
            sampling["stop_token_ids"] = self._parser.stop_token_ids
        servers = self._servers()
        if servers is None:
            raise ModelUnavailable("verl's agent loop worker is gone", stage="model")
        answer = await servers.generate(
            rollout, prompt_ids=prompt, sampling_params={**sampling, "logprobs": self.log_probs}
        )
        if answer.stop_reason in ("abort", "aborted"):
            raise ModelUnavailable("verl aborted the generation", stage="model")
        found = [answer.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps")]
        steps = [int(step) for step in found if step is not None]
        self.steps.setdefault(rollout, []).extend(steps)
        cut = len(answer.token_ids) >= sampling["max_tokens"] or answer.stop_reason == "length"
        version = f"step-{max(steps)}" if steps else ""
        ids, experts = list(answer.token_ids), answer.routed_experts if self.replays else None
        return Sampled(ids, answer.log_probs or None, cut=cut, version=version, experts=experts)

    async def _read(self, ids: list[int], tools: Sequence[Mapping[str, Any]]) -> Said:
        if not tools:
            return said(self._tokenizer.decode(ids, skip_special_tokens=True), tools=False)
        from verl.tools.schemas import OpenAIFunctionToolSchema

        schemas = [OpenAIFunctionToolSchema.model_validate(tool) for tool in tools]
        content, calls = await self._parser.extract_tool_calls(ids, schemas)
        for token in self._tokenizer.all_special_tokens:
            content = content.replace(token, "")
        thought, text = split_thought(content)
        return Said(text.strip(), tuple(Call(one.name, one.arguments) for one in calls), thought)


_engines: WeakKeyDictionary[Any, dict[tuple[str, str, str], _Engine]] = WeakKeyDictionary()
"""By verl's server managers: each owns its engines, which leave the system when it is gone."""


def _engine(
    loop: Any,
    nats: str,
    settings: Mapping[str, Any],
    signal: Mapping[str, Any] | None,
    renderer: MakeRenderer | None,
) -> _Engine:
    """The engine of this agent loop worker: verl makes a loop for each rollout, and one server manager."""
    from omegaconf import OmegaConf

    def plain(given: Mapping[str, Any]) -> Any:
        return OmegaConf.to_container(OmegaConf.create(dict(given)), resolve=True)

    engines = _engines.setdefault(loop.server_manager, {})
    how = plain(settings), None if signal is None else plain(signal)
    key = nats, repr(how), repr(renderer)
    if key not in engines:
        engines[key] = _Engine(loop, nats, *how, renderer)
        leave = finalize(loop.server_manager, _leave, asyncio.get_running_loop(), engines[key].source)
        leave.atexit = False
    return engines[key]


def _leave(loop: asyncio.AbstractEventLoop, source: RolloutSource) -> None:
    # The garbage collector may run this in any thread, and after the loop.
    if not loop.is_closed():
        loop.call_soon_threadsafe(source.leave)
