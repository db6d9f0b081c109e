from .evidence import Alarm as Alarm
from .evidence import Evidence as Evidence
from .evidence import Look as Look
from .watch import RewardWatch as RewardWatch
from .watch import watching as watching
