"""Processes of ours that may run what nobody has read, and that are killed from outside.

    killable ──▶ bounded ──▶ child          a function in a process, within limits
       │            │           │           a tree of processes, within limits │ pipes, an end, a kill
      warm          ├──▶ cgroups ──▶ delegation     limits kept by the kernel, where it lets us
    priority        └──▶ tree                       elsewhere: watched, as /proc shows it

`gym_runtime.environment.isolated` runs verifiers in them, `gym_runtime.sandbox` what models write.
"""
