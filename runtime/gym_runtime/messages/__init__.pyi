from .calls import HOSTED_TOOLS as HOSTED_TOOLS
from .calls import OPTIONAL as OPTIONAL
