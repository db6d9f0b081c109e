from . import catalogue as catalogue
from .catalogue import suggest as suggest
from .requirements import offered_packs as offered_packs
from .roles import create_params as create_params
from .schemas import example_call as example_call
from .tools import collect_tools as collect_tools
from .tools import render as render
