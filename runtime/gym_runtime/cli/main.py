"""``gym-runtime``: the console script, and the one place where errors become lines and exit statuses.

0 it worked; 1 it did not; 2 something was asked that cannot be (a flag, a name, a file, a row, a broker that
does not answer or refuses the password); 130 Ctrl-C.
An error that the runtime knows is one line on standard error. An error that it does not know keeps its
traceback. Nothing heavy is imported here or in `app`: help is shown at once.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import re
import sys
import threading
import time
import traceback
from contextlib import nullcontext
from contextvars import ContextVar

from gym_runtime.cli.interruption import INTERRUPTED, RESUME, terminable, was_interrupt
from gym_runtime.escapes import shown
from gym_runtime.system import early_supervisor
from gym_runtime.version import VERSION

THREADS_S = 5.0
"""How long a command that is done waits for threads of its user's code."""
_as_json = ContextVar("as_json", default=False)


def main() -> None:
    """Run the command line of this process; never returns."""
    arguments = sys.argv[1:]
    runs = _runs(arguments)
    _open_streams()
    # 0 stands for a width that is not known. In one of 1 or 2, rich writes help without end.
    if os.environ.get("COLUMNS") in ("0", "1", "2"):
        del os.environ["COLUMNS"]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    try:
        with terminable() if runs else nullcontext():
            if runs:
                early_supervisor.start()
            status = run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = _interrupted(runs)
    except BrokenPipeError:
        status = 1
    if status:
        _settle_output()
    if not runs and threading.active_count() > 1:
        _end_in_time(status)
    sys.exit(status)


def _open_streams() -> None:
    """Let streams that the caller has closed lead nowhere: files of ours would get their numbers."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # the system gives the lowest that is free
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _end_in_time(status: int) -> None:
    """End this process soon: an environment may have started threads that do not end.

    At its end Python waits for such threads; only if it still waits after `THREADS_S` does this say so.
    """

    def watch() -> None:
        time.sleep(THREADS_S)
        others = {*threading.enumerate()} - {threading.main_thread(), threading.current_thread()}
        names = ", ".join(sorted(shown(one.name) for one in others if not one.daemon))
        print(
            f"gym-runtime: ended without waiting for threads ({names}): start them with daemon=True, or end "
            "them",
            file=sys.stderr,
            flush=True,
        )
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - they remove temporary folders
        os._exit(status)

    threading.Thread(target=watch, daemon=True).start()


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status. Errors are printed on standard error."""
    _as_json.set("--json" in arguments)
    try:
        return _call(arguments)
    except BaseException as error:  # noqa: BLE001 - the boundary: whatever it is becomes a line and a status
        return report(error, resumable=_runs(arguments))


def _call(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    from gym_runtime.cli.app import application

    if _may_log(arguments):
        from gym_runtime import logs

        # For every command, before it begins: without this, lines of the log would go to standard output.
        logs.start(lines=True)
    try:
        app = application(arguments)
        status = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return status if isinstance(status, int) else 0
    except CycloptsError as error:
        return _complain(_reword(str(error)), 2)


def _may_log(arguments: list[str]) -> bool:
    """False for output that imports nothing heavy: help, and listings of installed modules."""
    listing = arguments[:1] == ["ls"] and "runs" not in arguments
    return bool(arguments) and not listing and not {"--help", "-h", "--version"} & set(arguments)


def _runs(arguments: list[str]) -> bool:
    """Whether it is a run, which can be resumed."""
    return arguments[:1] == ["run"] and not {"--help", "-h", "--dry-run"} & set(arguments)


def report(error: BaseException, *, resumable: bool = False) -> int:
    """Say what went wrong; the exit status that it means."""
    from gym_runtime.errors import BrokerError, GymError, TaskError, UsageError, leaf

    cause = leaf(error)
    if isinstance(cause, SystemExit):
        return cause.code if isinstance(cause.code, int) else 1
    if was_interrupt(cause):
        return _interrupted(resumable)
    if isinstance(cause, BrokenPipeError):
        _settle_output()
        return 1
    if isinstance(cause, GymError) or (isinstance(cause, OSError) and cause.filename is not None):
        if os.environ.get("GYM_LOG_LEVEL", "").lower() == "debug":
            _print_traceback(error)
        said = str(cause) if isinstance(cause, GymError) else f"{cause.filename}: {cause.strerror}"
        no_broker = isinstance(cause, BrokerError) and (cause.final or cause.silent)
        return _complain(said, 2 if no_broker or isinstance(cause, UsageError | TaskError) else 1)
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _settle_output()
        return _complain(f"the output cannot be written: {cause.strerror}", 1)
    _print_traceback(error)
    return _complain(f"this is a bug of gym-runtime {VERSION}; please report it with the lines above", 1)


def _print_traceback(error: BaseException) -> None:
    print(shown("".join(traceback.format_exception(error))), file=sys.stderr, end="")


def _interrupted(resumable: bool) -> int:
    if resumable:
        print(RESUME, file=sys.stderr, flush=True)
    return INTERRUPTED


def _complain(message: str, status: int) -> int:
    """Say it on standard error; who asked for JSON gets a document on standard output, too."""
    print(f"gym-runtime: {shown(message)}", file=sys.stderr, flush=True)
    if _as_json.get():
        try:
            print(json.dumps({"error": {"message": message, "status": status}}, indent=2), flush=True)
        except OSError:  # the error may be that nothing can be written there
            _settle_output()
    return status


def _reword(message: str) -> str:
    """The command line library's messages in the form of ours.

    >>> _reword('Unknown option: --repets. Did you mean --repeats?')
    "unknown option: --repets; did you mean '--repeats'?"
    >>> _reword('Invalid value "2" for --top-p. Must be <= 1.')
    "invalid value '2' for --top-p; it must be at most 1"
    >>> _reword("Unused Tokens: ['99'].")
    "too many arguments: '99'"
    """
    message = " ".join(message.split()).replace('"', "'")
    message = re.sub(r"^Unused Tokens: \[(.*)\]", r"too many arguments: \1", message)
    message = re.sub(r" Available commands: .*$", "", message)
    message = re.sub(r"\. Did you mean '?([^'?]*)'?\?$", r"; did you mean '\1'?", message)
    message = message.replace(". Choose from: ", "; choose from ")
    for sign, words in {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}.items():
        message = re.sub(rf"\. Must be {sign} (\S+?)\.?$", rf"; it must be {words} \1", message)
    return message[:1].lower() + message[1:].rstrip(".")


def _settle_output() -> None:
    """The reader of our output may have exited, or the disk be full: what is left at exit must not raise."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
