"""An environment that takes long, and its rows."""

from __future__ import annotations

import os

import psutil

STARTED_MARK, LEFT_MARK = (f"heavy-test-{what}-{os.getpid()}" for what in ("started", "left"))
"""Of processes; another run of the tests on this machine has its own."""
MODULE = '''"""Heavy in the ways that the row asks for."""

import os, re, signal, subprocess, time

from gym_runtime import Environment, Pending, Reply, Session, Task, Verdict, tool


class HeavyTask(Task):
    how: str


class Heavy(Session[HeavyTask]):
    async def open(self) -> None:
        self.count = 0

    @tool
    def count_up(self) -> int:
        """Count."""
        self.count += 1
        return self.count

    async def verify(self, reply: Reply) -> Verdict:
        how = self.task.how
        if how == "raise":
            raise ZeroDivisionError("by nought")
        if how == "spin":
            while True:
                pass
        if how == "stubborn":
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            re.match("(a|aa)+$", 1000 * "a" + "b")
        if how == "bomb":
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        if how == "hoard":
            for _ in range(3):
                if os.fork() == 0:
                    hoard = os.urandom(1 << 20) * 50
                    time.sleep(600)
            time.sleep(600)
        if how in ("leave", "leave and die"):
            left = subprocess.Popen(["sleep", "600"], env={"MARK": "LEFT_MARK"}, start_new_session=True)
            if how == "leave and die":
                os._exit(3)
            left.returncode = 0
        if how == "die":
            os._exit(3)
        if how == "fork":
            mark = "STARTED_MARK"
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    subprocess.run(["sleep", "600"], env={"MARK": mark})
                os._exit(0)
            time.sleep(600)
        if how == "memory":
            bytearray(1 << 40)
        if how == "flood":
            with open("flood", "wb") as file:
                file.truncate(1 << 40)
        if how == "chatter":
            print("chatter", flush=True)
            os.write(1, b"RETURN 5\\n")
            subprocess.run(["echo", "noise"], check=True)
            assert subprocess.run(["cat"], check=True, capture_output=True).stdout == b""
        if how == "wait":
            return Pending({"count": self.count, "pid": os.getpid()})
        return Verdict(float(self.count), fields={"pid": os.getpid()})


async def compare(candidates):
    return [Verdict(float(os.getpid())) for _ in candidates.rollout_indices]


environment = Environment(resource=Heavy, compare=compare, description="Heavy.", isolated=True)
'''.replace("STARTED_MARK", STARTED_MARK).replace("LEFT_MARK", LEFT_MARK)


def row(how: str) -> bytes:
    return b'{"responses_create_params": {}, "how": "%s"}' % how.encode()


def descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}
