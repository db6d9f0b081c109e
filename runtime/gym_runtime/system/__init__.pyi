from .private_broker import die_with_parent as die_with_parent
from .private_broker import find_binary as find_binary
from .private_broker import refusal as refusal
from .starting import received as received
from .worker_process import adapter_of as adapter_of
