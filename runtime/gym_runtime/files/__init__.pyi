from .appender import Appender as Appender
from .appender import repair_tail as repair_tail
from .run_metrics import Metrics as Metrics
from .sample import sample_row as sample_row
