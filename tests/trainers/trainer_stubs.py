"""Stand-ins for what the adapters import of a trainer, where the trainer itself is not installed.

They hold no more than the contract: the names, the signatures, and the fields of what is returned. In an
environment with the trainer the same tests run against its own classes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any


def installed(package: str) -> bool:
    module = sys.modules.get(package)
    return not hasattr(module, "STAND_IN") if module is not None else find_spec(package) is not None


def stand_in(*packages: str) -> None:
    """Put the stand-ins of packages that are not installed into `sys.modules`."""
    for package in packages:
        if not installed(package):
            _MAKERS[package]()


def _module(name: str, **members: Any) -> None:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        part = ".".join(parts[:length])
        if part not in sys.modules:
            module = ModuleType(part)
            module.__dict__["STAND_IN"] = True
            module.__path__ = []
            sys.modules[part] = module
    vars(sys.modules[name]).update(members)


# -- OpenRLHF 0.11 ----------------------------------------------------------------------------------------


def _openrlhf() -> None:
    _module("openrlhf.utils.agent", AgentExecutorBase=type("AgentExecutorBase", (), {}))


# -- verl 0.9 ---------------------------------------------------------------------------------------------


@dataclass
class AgentLoopMetrics:
    generate_sequences: float = 0.0
    tool_calls: float = 0.0
    compute_score: float = 0.0
    num_preempted: int = -1


@dataclass(kw_only=True)
class AgentLoopOutput:
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    metrics: AgentLoopMetrics
    response_logprobs: list[float] | None = None
    routed_experts: Any = None
    reward_score: float | None = None
    num_turns: int = 0
    extra_fields: dict[str, Any] = field(default_factory=dict[str, Any])


class AgentLoopBase:
    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **kwargs: Any) -> None:
        self.config = trainer_config.config
        self.rollout_config = self.config.actor_rollout_ref.rollout
        self.server_manager = server_manager
        self.tokenizer = tokenizer
        self.apply_chat_template_kwargs = kwargs["data_config"].config.get("apply_chat_template_kwargs", {})


class ToolParser:
    stop_token_ids: tuple[int, ...] = ()

    @classmethod
    def get_tool_parser(cls, name: str, tokenizer: Any) -> ToolParser:
        return cls()


class RewardManagerBase:
    def __init__(self, config: Any, tokenizer: Any, compute_score: Any) -> None:
        self.config = config
        self.tokenizer = tokenizer


def _verl() -> None:
    loop = "verl.experimental.agent_loop"
    _module(
        f"{loop}.agent_loop",
        AgentLoopBase=AgentLoopBase,
        AgentLoopMetrics=AgentLoopMetrics,
        AgentLoopOutput=AgentLoopOutput,
    )
    _module(f"{loop}.tool_parser", ToolParser=ToolParser)
    _module("verl.experimental.reward_loop.reward_manager.base", RewardManagerBase=RewardManagerBase)
    _module("verl.tools.schemas", OpenAIFunctionToolSchema=SimpleNamespace())


def _omegaconf() -> None:
    plain = SimpleNamespace(create=dict, to_yaml=repr, to_container=lambda one, resolve=True: one)
    _module("omegaconf", OmegaConf=plain)


# -- SkyRL 0.4 --------------------------------------------------------------------------------------------


def _skyrl() -> None:
    _module("skyrl.train.generators.base", GeneratorInterface=type("GeneratorInterface", (), {}))

    def salt(version: int, model: str | None) -> str:
        return f"{model}:{version}"

    def template(config: Any) -> str | None:
        return config.name_or_path

    _module("skyrl.train.generators.utils", build_vllm_cache_salt=salt, get_custom_chat_template=template)


def _skyrl_gym() -> None:
    _module(
        "skyrl_gym.envs.base_text_env", BaseTextEnv=type("BaseTextEnv", (), {"__init__": lambda self: None})
    )


_MAKERS = {
    "openrlhf": _openrlhf,
    "verl": _verl,
    "omegaconf": _omegaconf,
    "skyrl": _skyrl,
    "skyrl_gym": _skyrl_gym,
}
