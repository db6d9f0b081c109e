from .registry import exploit as exploit
from .registry import near_miss as near_miss
from .registry import same_answer as same_answer
from .target import Target as Target
