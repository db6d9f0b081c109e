from .roll_call import all_workers as all_workers
from .router import Router as Router
