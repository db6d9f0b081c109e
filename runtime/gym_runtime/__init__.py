"""The runtime in which language models are trained and evaluated on verifiable rewards.

What authors and trainers use stands here. Importing the package loads nothing else: each name is loaded from
its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_sandbox import Interpreter as Interpreter
    from gym_sandbox import Limits as Limits
    from gym_sandbox import Sandbox as Sandbox
    from gym_trainers import GymSpec as GymSpec

    from gym_runtime.client import Client as Client
    from gym_runtime.client import EnvironmentSession as EnvironmentSession
    from gym_runtime.client import Observation as Observation
    from gym_runtime.client import StandingRun as StandingRun
    from gym_runtime.client import Status as Status
    from gym_runtime.client import SyncClient as SyncClient
    from gym_runtime.client import connect as connect
    from gym_runtime.client import connect_sync as connect_sync
    from gym_runtime.environment import catalogue as catalogue
    from gym_runtime.environment.agent_choice import AgentChoice as AgentChoice
    from gym_runtime.environment.assets import Asset as Asset
    from gym_runtime.environment.benchmark import Benchmark as Benchmark
    from gym_runtime.environment.benchmark import ScoredRollout as ScoredRollout
    from gym_runtime.environment.candidates import Candidates as Candidates
    from gym_runtime.environment.catalogue import suggest as suggest
    from gym_runtime.environment.dataset_source import DatasetSource as DatasetSource
    from gym_runtime.environment.dataset_source import published as published
    from gym_runtime.environment.delegate import Delegate as Delegate
    from gym_runtime.environment.environment import Environment as Environment
    from gym_runtime.environment.isolated import run_isolated as run_isolated
    from gym_runtime.environment.offered import offered_packs as offered_packs
    from gym_runtime.environment.prompt import Prompt as Prompt
    from gym_runtime.environment.prompt import quoted as quoted
    from gym_runtime.environment.roles import Answer as Answer
    from gym_runtime.environment.roles import Model as Model
    from gym_runtime.environment.roles import Role as Role
    from gym_runtime.environment.roles import create_params as create_params
    from gym_runtime.environment.schema_examples import example_call as example_call
    from gym_runtime.environment.shapes import Episode as Episode
    from gym_runtime.environment.shapes import Session as Session
    from gym_runtime.environment.shapes import Step as Step
    from gym_runtime.environment.shapes import Task as Task
    from gym_runtime.environment.tool_packs import ToolPack as ToolPack
    from gym_runtime.environment.tools import Text as Text
    from gym_runtime.environment.tools import ToolError as ToolError
    from gym_runtime.environment.tools import collect_tools as collect_tools
    from gym_runtime.environment.tools import render as render
    from gym_runtime.environment.tools import tool as tool
    from gym_runtime.environment.verdict import Pending as Pending
    from gym_runtime.environment.verdict import Reply as Reply
    from gym_runtime.environment.verdict import Verdict as Verdict
    from gym_runtime.environment.verdict import make_response as make_response
    from gym_runtime.errors import DeadlineExceeded as DeadlineExceeded
    from gym_runtime.errors import GymError as GymError
    from gym_runtime.errors import ModelError as ModelError
    from gym_runtime.errors import ModelRefused as ModelRefused
    from gym_runtime.errors import ModelUnavailable as ModelUnavailable
    from gym_runtime.errors import NotThereYet as NotThereYet
    from gym_runtime.errors import ResourceError as ResourceError
    from gym_runtime.errors import ServiceUnavailable as ServiceUnavailable
    from gym_runtime.errors import SessionLost as SessionLost
    from gym_runtime.errors import TaskError as TaskError
    from gym_runtime.errors import UsageError as UsageError
    from gym_runtime.files.dataset import Dataset as Dataset
    from gym_runtime.files.dataset import open_dataset as open_dataset
    from gym_runtime.files.recorded_run import RecordedRun as RecordedRun
    from gym_runtime.files.run_plan import RunPlan as RunPlan
    from gym_runtime.logs import logger as logger
    from gym_runtime.messages.calls import Control as Control
    from gym_runtime.messages.calls import ControlAnswer as ControlAnswer
    from gym_runtime.messages.calls import ModelAnswer as ModelAnswer
    from gym_runtime.messages.calls import ModelCall as ModelCall
    from gym_runtime.messages.calls import Prefix as Prefix
    from gym_runtime.messages.calls import Tokens as Tokens
    from gym_runtime.messages.calls import WeightSpan as WeightSpan
    from gym_runtime.messages.items import FunctionCall as FunctionCall
    from gym_runtime.messages.items import FunctionCallOutput as FunctionCallOutput
    from gym_runtime.messages.items import Item as Item
    from gym_runtime.messages.items import Message as Message
    from gym_runtime.messages.items import Part as Part
    from gym_runtime.messages.items import Reasoning as Reasoning
    from gym_runtime.messages.items import decode_item as decode_item
    from gym_runtime.messages.items import decode_items as decode_items
    from gym_runtime.messages.items import user_message as user_message
    from gym_runtime.messages.outcomes import Cancelled as Cancelled
    from gym_runtime.messages.outcomes import Completed as Completed
    from gym_runtime.messages.outcomes import Failed as Failed
    from gym_runtime.messages.outcomes import RolloutRecord as RolloutRecord
    from gym_runtime.messages.outcomes import Truncated as Truncated
    from gym_runtime.messages.packing import pack_ids as pack_ids
    from gym_runtime.messages.packing import pack_json_ids as pack_json_ids
    from gym_runtime.messages.packing import pack_logprobs as pack_logprobs
    from gym_runtime.messages.packing import unpack_ids as unpack_ids
    from gym_runtime.messages.responses import CreateParams as CreateParams
    from gym_runtime.messages.responses import IncompleteDetails as IncompleteDetails
    from gym_runtime.messages.responses import InputTokensDetails as InputTokensDetails
    from gym_runtime.messages.responses import OutputTokensDetails as OutputTokensDetails
    from gym_runtime.messages.responses import Response as Response
    from gym_runtime.messages.responses import Usage as Usage
    from gym_runtime.messages.responses import decode_response as decode_response
    from gym_runtime.messages.rollout_settings import RolloutSettings as RolloutSettings
    from gym_runtime.messages.run_info import RunInfo as RunInfo
    from gym_runtime.messages.sampling import Sampling as Sampling
    from gym_runtime.messages.sequences import TokenSequence as TokenSequence
    from gym_runtime.messages.sequences import token_sequences as token_sequences
    from gym_runtime.rollout.advantage import advantages as advantages
    from gym_runtime.rollout.agent import Agent as Agent
    from gym_runtime.rollout.groups import Group as Group
    from gym_runtime.rollout.rollout import Rollout as Rollout
    from gym_runtime.rollout.turn import Turn as Turn
    from gym_runtime.workers.adapter import Adapter as Adapter
    from gym_runtime.workers.adapter import CallContext as CallContext
    from gym_runtime.workers.adapter import Controllable as Controllable
    from gym_runtime.workers.adapter import ConversationNotes as ConversationNotes
    from gym_runtime.workers.adapter import ModelSettings as ModelSettings
    from gym_runtime.workers.adapter import check_url as check_url

_NAMES = {
    "assets.asset": "Asset",
    "client": "Client EnvironmentSession Observation StandingRun Status SyncClient connect connect_sync",
    "environment.agent_choice": "AgentChoice",
    "environment.benchmark": "Benchmark ScoredRollout",
    "environment.candidates": "Candidates",
    "environment.catalogue": "catalogue suggest",
    "environment.dataset_source": "DatasetSource published",
    "environment.environment": "Environment",
    "environment.delegate": "Delegate",
    "environment.offered": "offered_packs",
    "environment.prompt": "Prompt quoted",
    "environment.roles": "Answer Model Role create_params",
    "environment.isolated": "run_isolated",
    "environment.schema_examples": "example_call",
    "environment.shapes": "Episode Session Step Task",
    "environment.tool_packs": "ToolPack",
    "environment.tools": "Text ToolError collect_tools render tool",
    "environment.verdict": "Pending Reply Verdict make_response",
    "errors": "DeadlineExceeded GymError ModelError ModelRefused ModelUnavailable "
    "NotThereYet ResourceError ServiceUnavailable SessionLost TaskError UsageError",
    "files.dataset": "Dataset open_dataset",
    "files.recorded_run": "RecordedRun",
    "files.run_plan": "RunPlan",
    "logs": "logger",
    "messages.calls": "Control ControlAnswer ModelAnswer ModelCall Prefix Tokens WeightSpan",
    "messages.items": "FunctionCall FunctionCallOutput Item Message Part Reasoning "
    "decode_item decode_items user_message",
    "messages.outcomes": "Cancelled Completed Failed RolloutRecord Truncated",
    "messages.packing": "pack_ids pack_json_ids pack_logprobs unpack_ids",
    "messages.responses": "CreateParams IncompleteDetails InputTokensDetails OutputTokensDetails "
    "Response Usage decode_response",
    "messages.rollout_settings": "RolloutSettings",
    "messages.run_info": "RunInfo",
    "messages.sampling": "Sampling",
    "messages.sequences": "TokenSequence token_sequences",
    "rollout.advantage": "advantages",
    "rollout.agent": "Agent",
    "rollout.groups": "Group",
    "rollout.rollout": "Rollout",
    "rollout.turn": "Turn",
    "sandbox": "Interpreter Limits Sandbox",
    "trainers": "GymSpec",
    "workers.adapter": "Adapter CallContext Controllable ModelSettings ConversationNotes check_url",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'gym_runtime' has no attribute '{name}'")
    module = import_module(f"gym_runtime.{home}")
    return module if home.endswith(f".{name}") else getattr(module, name)  # `catalogue` is a module
