from .retry_budget import RetryBudget as RetryBudget
from .router import Router as Router
