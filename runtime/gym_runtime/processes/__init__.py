"""Processes of ours that may run what is not to be trusted, and that are killed from outside.

    bounded ──▶ child          a tree of processes, within limits │ pipes, an end, a kill
       │
       ├──▶ cgroups ──▶ delegation     limits kept by the kernel, where it lets us
       └──▶ tree                       elsewhere: watched, as /proc shows it
    priority                           which of them goes first

`gym_runtime.sandbox` runs in them what models write, and what judges it.
"""

from gym_runtime.processes.child import Child as Child
from gym_runtime.processes.child import EndOfProcess as EndOfProcess
from gym_runtime.processes.processor_time import within as within
