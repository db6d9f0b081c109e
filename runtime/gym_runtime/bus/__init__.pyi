from .identity import Join as Join
from .identity import read_join as read_join
from .identity import write_join as write_join
from .interface import Bus as Bus
from .interface import Incoming as Incoming
from .nats import connect as connect
