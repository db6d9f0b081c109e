from .agent_worker import AgentWorker as AgentWorker
from .engine_health import EngineHealth as EngineHealth
from .model_worker import ModelWorker as ModelWorker
from .model_worker import ask_engine as ask_engine
from .prefixes import moved as moved
from .prefixes import splice as splice
from .resource_worker import ResourceWorker as ResourceWorker
