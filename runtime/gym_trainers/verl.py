"""verl: an agent loop whose rollouts are made here.

verl starts its engines and balances between them; an agent loop reaches them through
``server_manager.generate``, ids in and ids out. Each of verl's agent loop workers serves that function to the
system as a model (`gym_trainers.token_engine`), so weights, balance and interrupted generation stay
verl's, while agents, tools, judges and retries are ours. Answers are parsed as ``multi_turn.format`` says.

A failed rollout raises in the loop. verl's trainer (v1) records that its prompt has a failed session: the
others train without it, or the prompt is replaced, as verl is configured. The older trainer (``main_ppo_v0``)
cannot leave one out, so there it is one masked token with reward 0, which counts in its group's mean; its
``gym_failed`` is 1 in the metrics.

Source: verl 0.9.1, ``experimental/agent_loop/agent_loop.py``, ``trainer/ppo/v1/agent_loop_tq.py``.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# verl is not installed where types are checked.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_runtime.errors import GymError, ModelUnavailable
from gym_runtime.messages.outcomes import RolloutRecord

from gym_trainers.hermes import Call, Said, said, split_thought
from gym_trainers.rollout_source import RolloutSource
from gym_trainers.token_engine import Sampled, TokenEngine
from gym_trainers.training_rollouts import (
    ROW,
    Piece,
    base_class,
    engine_sampling,
    only_piece,
    pieces,
    why_failed,
)

HERMES = "hermes"
LOOP = "verl.experimental.agent_loop.agent_loop"


class GymAgentLoop(base_class(LOOP, "AgentLoopBase")):
    """For verl's ``agent_loop_config_path``; the dataset's column ``gym_row`` holds the row::

        - name: gym_runtime
          _target_: gym_trainers.verl.GymAgentLoop

    Args:
        nats: the broker of the running system; by default ``GYM_NATS_URL``.
        settings: fields of `RolloutSettings`, such as ``max_turns``.
    """

    def __init__(
        self, *args: Any, nats: str = "", settings: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._engine = _engine(self, nats, settings or {})

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """One rollout: an ``AgentLoopOutput``, or for the v1 trainer a list with one per token segment.

        Raises:
            TaskError, UsageError: the row or a setting is wrong.
            GymError: the rollout failed (v1).
        """
        record = await self._engine.source.rollout(str(columns[ROW]), engine_sampling(sampling_params))
        steps = self._engine.steps.pop(record.rollout_id, []) or [columns.get("global_steps", -1)]
        found = [one.shortened(self.rollout_config.response_length) for one in pieces(record)]
        problem = self._problem(record, found)
        if "session_id" in columns:  # v1: verl's older trainer numbers no sessions
            if problem:
                raise GymError(f"rollout {record.rollout_id}: {problem}")
            return [self._output(record, one, steps) for one in found]
        found, end = [] if problem else found, self.tokenizer.eos_token_id
        piece = only_piece(record, found, end, log_probs=self._engine.log_probs, why=problem)
        return self._output(record, piece, steps, failed=bool(problem))

    def _problem(self, record: RolloutRecord, found: Sequence[Piece]) -> str:
        """Why there is nothing to train on; empty if there is."""
        if not found:
            return why_failed(record) or "it has no tokens"
        longest, limit = max(len(one.prompt_ids) for one in found), self.rollout_config.prompt_length
        return f"a prompt has {longest} tokens; rollout.prompt_length is {limit}" if longest > limit else ""

    def _output(
        self, record: RolloutRecord, piece: Piece, steps: Sequence[int], *, failed: bool = False
    ) -> Any:
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

        # verl takes the names of the first output of a batch for all, so they are always the same.
        info = {"gym_failed": float(failed), "gym_cut": float(piece.cut), "gym_turns": float(record.turns)}
        return AgentLoopOutput(
            prompt_ids=piece.prompt_ids,
            response_ids=piece.response_ids,
            response_mask=piece.mask,
            response_logprobs=piece.log_probs,
            reward_score=0.0 if failed else record.reward,
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


class _Engine:
    """What the rollouts of one agent loop worker share.

    Attributes:
        steps: which weights sampled a rollout that is in progress, by verl's global steps.
        log_probs: verl wants the engine's log-probabilities.
    """

    def __init__(self, loop: Any, nats: str, settings: Mapping[str, Any]) -> None:
        from verl.experimental.agent_loop.tool_parser import ToolParser

        self.steps: dict[str, list[int]] = {}
        self._servers, self._tokenizer, config = loop.server_manager, loop.tokenizer, loop.rollout_config
        self.log_probs = bool(config.calculate_log_probs)
        form = config.multi_turn.format
        self._parser = ToolParser.get_tool_parser(form, self._tokenizer)
        read, context = None if form == HERMES else self._read, config.prompt_length + config.response_length
        engine = TokenEngine(self._tokenizer, self._generate, context=context, read=read)
        self.source = RolloutSource(engine, nats=nats, settings=settings)

    async def _generate(self, prompt: list[int], sampling: dict[str, Any], rollout: str) -> Sampled:
        if self._parser.stop_token_ids:
            sampling["stop_token_ids"] = self._parser.stop_token_ids
        answer = await self._servers.generate(
            rollout, prompt_ids=prompt, sampling_params={**sampling, "logprobs": self.log_probs}
        )
        if answer.stop_reason in ("abort", "aborted"):
            raise ModelUnavailable("verl aborted the generation", stage="model")
        found = [answer.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps")]
        steps = [int(step) for step in found if step is not None]
        self.steps.setdefault(rollout, []).extend(steps)
        cut = len(answer.token_ids) >= sampling["max_tokens"] or answer.stop_reason == "length"
        version = f"step-{max(steps)}" if steps else ""
        return Sampled(list(answer.token_ids), answer.log_probs or None, cut=cut, version=version)

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


_engines: dict[tuple[int, str, str], _Engine] = {}


def _engine(loop: Any, nats: str, settings: Mapping[str, Any]) -> _Engine:
    """The engine of this agent loop worker: verl makes a loop for each rollout, and one server manager."""
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(OmegaConf.create(dict(settings)), resolve=True)
    key = id(loop.server_manager), nats, repr(plain)
    if key not in _engines:
        _engines[key] = _Engine(loop, nats, plain)
    return _engines[key]
