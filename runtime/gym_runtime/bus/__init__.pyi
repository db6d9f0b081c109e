from .interface import Bus as Bus
from .interface import Incoming as Incoming
from .join import Join as Join
from .join import read_join as read_join
from .join import write_join as write_join
from .nats import connect as connect
