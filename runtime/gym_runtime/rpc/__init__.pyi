from .announcing import announce as announce
from .meter import Meter as Meter
from .registry import HEARTBEATS as HEARTBEATS
from .registry import Heartbeat as Heartbeat
from .retry_budget import RetryBudget as RetryBudget
from .roll_call import all_workers as all_workers
from .roll_call import fresh as fresh
from .router import Router as Router
