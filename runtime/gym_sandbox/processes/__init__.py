"""Child processes that may run untrusted code, and that are killed from outside.

    bounded ──▶ child          limits on a whole tree of processes │ pipes, waiting for the end, killing
       │
       ├──▶ cgroups ──▶ delegation     limits that the kernel enforces, where this process may make groups
       └──▶ tree                       elsewhere: limits that are checked by reading /proc
    priority                           CPU priority among them
    disturbances                       what something outside may have ended runs again
    signals                            what this process receives, each once

`gym_sandbox` runs models' code in them, and the verifiers of that code.
"""

from gym_sandbox.processes.child import Child as Child
from gym_sandbox.processes.child import EndOfProcess as EndOfProcess
from gym_sandbox.processes.disturbances import DOUBT as DOUBT
from gym_sandbox.processes.disturbances import undisturbed as undisturbed
from gym_sandbox.processes.processor_time import within as within
