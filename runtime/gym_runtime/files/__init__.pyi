from .appender import Appender as Appender
from .appender import repair_tail as repair_tail
from .inputs import StoredInputs as StoredInputs
from .results import OutputFiles as OutputFiles
from .results import count_lines as count_lines
from .results import failure_class as failure_class
