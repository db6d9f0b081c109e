"""Containers: commands, files that last, and the ways out, tried on every back end that this machine has."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import psutil
import pytest
from gym_runtime.environment.blocked_loop import watching
from gym_sandbox import Container, Limits, Result, bubblewrap, container_engines, container_images
from gym_sandbox.sandbox_errors import SetupError, StartError
from sandbox import images
from sandbox.programs import NEEDS_ISOLATION
from time_limits import busy

pytestmark = pytest.mark.anyio
SMALL = Limits(
    memory_bytes=512 << 20, disk_bytes=32 << 20, file_bytes=8 << 20, output_bytes=100_000, open_files=256
)
BLOCKED_S = 0.25
"""Five times the 50 ms of a worker, because the machine may be busy."""


@pytest.fixture(
    params=["bubblewrap", *(pytest.param(name, marks=pytest.mark.slow) for name in container_engines.ENGINES)]
)
def image(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str | None]:
    """The image of a back end, None for bubblewrap; skipped with the reason where it does not work."""
    if request.param == "bubblewrap":
        try:
            bubblewrap.check(os.getpid())
        except SetupError as error:
            pytest.skip(str(error))
        yield None
        return
    if request.param == "apptainer":
        pytest.skip(
            "apptainer has no image of this machine's programs; see test_container_engines for its command"
        )
    with images.used(request.param, monkeypatch):
        yield images.NAME


def container(image: str | None, limits: Limits = SMALL) -> Container:
    return Container(image, directory="/testbed" if image else "testbed", limits=limits)


async def run(image: str | None, script: str, *, stdin: bytes = b"", timeout_s: float = 20) -> Result:
    async with container(image) as box:
        return await box.run(script, stdin=stdin, timeout_s=timeout_s)


async def said(image: str | None, script: str) -> list[str]:
    result = await run(image, script)
    assert result.exit_code == 0, result
    return result.stdout.decode().splitlines()


async def test_commands_share_files_and_nothing_else(image: str | None) -> None:
    async with container(image) as box, container(image) as other:
        first = await box.run("variable=1; cat >kept; cd /; echo no >&2; exit 3", stdin=b"a\0b", timeout_s=20)
        assert (first.exit_code, first.stdout, first.stderr) == (3, b"", b"no\n")
        again = await box.run('cat kept; echo "$variable"; basename "$PWD" 2>/dev/null || pwd', timeout_s=20)
        assert again.stdout.startswith(b"a\0b\n")
        assert b"testbed" in again.stdout
        assert (await other.run("ls", timeout_s=20)).stdout == b""
    closed = await box.run("echo", timeout_s=20)
    assert (closed.exit_code, closed.stderr) == (137, b"the container is closed")


@pytest.mark.slow
async def test_a_command_is_killed_at_its_time_limit_and_the_container_goes_on(image: str | None) -> None:
    async with container(image) as box:
        late = await box.run("echo begun; sleep 600", timeout_s=1)
        assert (late.exit_code, late.timed_out, late.stdout) == (None, True, b"begun\n")
        assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"


async def test_of_a_long_output_both_ends_are_kept_and_no_loop_is_blocked(image: str | None) -> None:
    blocked: list[str] = []
    async with container(image) as box, watching(BLOCKED_S, lambda place, _: blocked.append(place)):
        script = "echo first; yes | head -c 1000000; echo last; yes error | head -c 3000000 >&2"
        long = await box.run(script, timeout_s=60)
        assert long.truncated
        assert len(long.stdout) < SMALL.output_bytes + 100
        assert (long.stdout[:6], long.stdout[-5:]) == (b"first\n", b"last\n")
        for size, cut in ((1000, False), (1001, True)):
            exact = await box.run(f"yes | head -c {size}; echo >&2", timeout_s=20, output_bytes=1000)
            assert (exact.truncated, exact.stderr) == (cut, b"\n")
        endless = await box.run("yes", timeout_s=20)
        assert endless.exit_code != 0  # its output file is as large as a file may be
        assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"
    assert not blocked


async def test_there_is_no_network(image: str | None) -> None:
    connect = 'import socket; socket.create_connection(("1.1.1.1", 53), 2)'
    script = f"cut -d: -f1 -s /proc/net/dev; python3 -c '{connect}'"
    result = await run(image, script)
    assert result.stdout.split() == [b"Inter-|", b"face", b"lo"] or result.stdout.split()[-1] == b"lo"
    assert result.exit_code != 0


async def test_files_variables_descriptors_and_processes_of_the_worker_are_hidden(
    image: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("TOPSECRET")
    monkeypatch.setenv("GYM_TEST_KEY", "TOPSECRET")
    with tempfile.TemporaryFile() as file:
        file.write(b"TOPSECRET")
        file.flush()
        os.set_inheritable(file.fileno(), True)
        lines = await said(
            image,
            f"env; cat {secret} 2>&1; cat {Path(__file__)} 2>&1; ls -l /proc/self/fd; cat /proc/*/cmdline "
            "/proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat /dev/fd/* 2>/dev/null; true",
        )
    shown = [line for line in lines if not line.startswith("cat:")]
    assert not [line for line in shown if "TOPSECRET" in line or "pytest" in line]


async def test_there_are_no_privileges_and_no_disks(image: str | None) -> None:
    lines = await said(
        image,
        "grep -E 'CapEff|NoNewPrivs' /proc/self/status | cut -f2; "
        "mount -t tmpfs none /tmp 2>/dev/null && echo mounted; "
        "mknod /tmp/disk b 8 0 2>/dev/null && cat /tmp/disk >/dev/null 2>&1 && echo disk; "
        "ls /dev | grep -E '^(sd|vd|nvme|xvd|kvm|mem|kmsg)' ; echo end",
    )
    capabilities = int(lines[0], 16)
    # At most CHOWN, DAC_OVERRIDE and FOWNER, of its own files, and KILL, of its own processes.
    assert capabilities & ~0b101011 == 0
    assert lines[1:] == ["1", "end"]


async def test_what_signals_everything_reaches_only_its_own_container(image: str | None) -> None:
    async with container(image) as box, container(image) as other:
        await other.run("echo kept >kept", timeout_s=20)
        await box.run("kill -9 -1; kill -9 1", timeout_s=20)
        assert (await other.run("cat kept", timeout_s=20)).stdout == b"kept\n"
        again = await box.run("echo on", timeout_s=20)  # alive, or ended with a reason
        assert again.stdout == b"on\n" or (again.exit_code == 137 and b"has ended" in again.stderr)


async def test_memory_and_files_are_limited(image: str | None) -> None:
    async with container(image) as box:
        hoard = await box.run("python3 -c 'x = bytearray(1 << 32)'", timeout_s=30)
        assert b"MemoryError" in hoard.stderr
        large = await box.run("head -c 100000000 /dev/zero >large; wc -c <large", timeout_s=30)
        assert int(large.stdout or 0) <= SMALL.disk_bytes


async def test_a_full_disk_is_told(image: str | None) -> None:
    if image is not None:
        pytest.skip("the files of an image are on the engine's disk, which has no limit of its own here")
    async with container(image) as box:
        fill = "for i in 1 2 3 4 5 6 7 8 9; do head -c 8000000 /dev/zero >/tmp/f$i 2>/dev/null; done"
        await box.run(fill, timeout_s=30)
        for text, stdin in (("echo on", b""), ("cat", b"\n" * 100_000), ("echo " + 50_000 * "on ", b"")):
            assert (await box.run(text, stdin=stdin, timeout_s=20)).exit_code == 1
        await box.run("rm /tmp/f*", timeout_s=20)
        assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"


async def test_a_command_keeps_its_outputs_whatever_it_does_to_their_files(image: str | None) -> None:
    async with container(image) as box:
        gone = await box.run('echo on; rm -rf "${0%/*}"; echo error >&2', timeout_s=20)
        assert (gone.exit_code, gone.stdout, gone.stderr) == (0, b"on\n", b"error\n")
        closed = await box.run("echo on; exec 0<&- 1>&- 2>&-; exit 4", timeout_s=20)
        assert (closed.exit_code, closed.stdout, closed.stderr) == (4, b"on\n", b"")
        # Those of the container's shell are not the command's.
        assert (await box.run("{ : >&3 || : >&4; } 2>/dev/null || exit 5", timeout_s=20)).exit_code == 5
        text = r"printf '\000\377\n'"
        both = await box.run(f"{text}; {text} >&2; yes on & exit 3", timeout_s=20)
        assert (both.exit_code, both.stdout[:3], both.stderr) == (3, b"\0\xff\n", b"\0\xff\n")
        assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"


@NEEDS_ISOLATION
async def test_a_command_starts_few_programs() -> None:
    """Twenty for each command were most of its cost. In a sandbox process ids are given out in order."""
    async with container(None) as box:

        async def last() -> int:
            return int((await box.run("echo $$", timeout_s=20)).stdout)

        async def processes(script: str) -> float:
            """How many the container starts to run it, with its own."""
            before, first = await last(), await last()
            for _ in range(10):
                await box.run(script, timeout_s=20)
            return (await last() - first - (first - before)) / 10

        assert await processes(":") <= 6
        assert await processes("echo on") <= 9
        assert await processes("echo on; echo error >&2") <= 12


async def test_processes_that_stay_end_with_the_container(image: str | None) -> None:
    mark = f"86{os.getpid()}"
    async with container(image) as box:
        started = await box.run(
            f"setsid sleep {mark} >/dev/null 2>&1 & nohup sleep {mark} & exit 0", timeout_s=20
        )
        assert started.exit_code == 0
    assert not [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]


@pytest.mark.slow
async def test_starting_does_not_wait_and_cancelling_leaves_nothing(image: str | None) -> None:
    box = container(image)
    start_s = time.monotonic()
    await box.start()
    assert time.monotonic() - start_s < 5 * busy()
    with anyio.move_on_after(1):
        await box.run("sleep 600", timeout_s=600)
    assert box.ended
    await box.close()


async def test_an_image_that_cannot_be_had_is_a_failure(image: str | None) -> None:
    if image is None:
        pytest.skip("bubblewrap has no images")
    async with Container("localhost/gym-runtime-test-missing:none", directory="/testbed") as box:
        with pytest.raises(StartError, match="does not start"):
            await box.run("echo", timeout_s=20)


async def test_a_folder_that_only_an_image_could_have_is_refused() -> None:
    for directory in ("/work", "/tmpx", "/tmp/../opt", "../opt"):
        with pytest.raises(SetupError, match="without an image directory names a new folder"):
            await Container(directory=directory).start()
    for directory in ("/tmp/work", "-p"):
        async with Container(directory=directory, limits=SMALL) as box:
            there = b"/tmp/" + directory.removeprefix("/tmp/").encode()
            assert (await box.run("pwd", timeout_s=60)).stdout == there + b"\n"


@pytest.mark.slow
async def test_a_container_ends_when_its_worker_is_killed_in_the_middle_of_a_command(
    image: str | None,
) -> None:
    mark = f"87{os.getpid()}"
    code = f"""
import anyio
from gym_sandbox import Container
async def main():
    box = Container({image!r}, directory="testbed" if {image!r} is None else "/testbed")
    await box.run("nohup sleep {mark} >/dev/null 2>&1 & sleep {mark}", timeout_s=600)
anyio.run(main)
"""

    def commands() -> list[psutil.Process]:
        return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", mark]]

    async with await anyio.open_process([sys.executable, "-c", code]) as worker:
        with anyio.fail_after(20):
            while len(commands()) < 2:
                await anyio.sleep(0.05)
        worker.send_signal(signal.SIGKILL)
    with anyio.fail_after(15):
        while commands():
            await anyio.sleep(0.1)


async def test_further_folders_can_be_written_and_share_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    async with Container(directory="/app", limits=SMALL, writable=("/app", "/logs/deep")) as box:
        done = await box.run(
            "pwd; echo a >b; echo a >/logs/deep/b; ls /logs/deep; echo a >/logs/b", timeout_s=20
        )
        assert done.stdout == b"/app\nb\n"
        assert b"Read-only file system" in done.stderr
        sizes = await box.run("df -k /tmp /app /logs/deep", timeout_s=20)
        kib = [int(line.split()[1]) for line in sizes.stdout.splitlines()[1:]]
        assert len(kib) == 3
        assert sum(kib) <= SMALL.disk_bytes // 1024 + 3 * 4  # whole pages
    monkeypatch.setenv(bubblewrap.SETTING, "weak")
    with pytest.raises(SetupError, match="need isolation"):
        await Container(directory="/app", limits=SMALL, writable=("/app",)).start()


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[images.Engine]:
    """Podman with an image in which there are two users; skipped with the reason where it does not work."""
    with images.used("podman", monkeypatch) as engine:
        before = set(engine.run("images", "--format", "{{.Repository}}").stdout.split())
        yield engine
        container_engines.remove_images()
        kept = set(engine.run("images", "--format", "{{.Repository}}").stdout.split())
    assert not [name for name in kept - before if str(os.getpid()) in name and name != images.NAME]


@pytest.mark.slow
@pytest.mark.usefixtures("podman")
async def test_a_command_may_remove_the_temporary_folder() -> None:
    async with Container(images.NAME, directory="/testbed", limits=SMALL) as box:
        gone = await box.run("rm -rf /tmp; ls / | grep -c tmp; echo on >/testbed/f", timeout_s=20)
        assert (gone.exit_code, gone.stdout) == (0, b"0\n")
        again = await box.run("cat f; ls -ld /tmp | cut -c1-10", timeout_s=20)
        assert (again.exit_code, again.stdout) == (0, b"on\ndrwxrwxrwt\n")


@pytest.mark.slow
async def test_another_user_of_the_image_has_its_own_rights_and_the_same_files(podman: images.Engine) -> None:
    variables = {"GREETING": "it's $HOME"}
    async with Container(images.NAME, directory="/testbed", limits=SMALL, variables=variables) as box:
        assert (await box.run("echo mine >root; chmod 600 root; id -u", timeout_s=20)).stdout == b"0\n"
        other = box.as_user("1234")
        script = (
            'id -u; cat root || echo refused; echo "$GREETING"; sleep 600 >/dev/null 2>&1 & echo $! >/tmp/pid'
        )
        done = await other.run(script, timeout_s=20)
        assert done.stdout == b"1234\nrefused\nit's $HOME\n", done
        assert (await box.run("kill -KILL $(cat /tmp/pid)", timeout_s=20)).exit_code == 0
        await other.close()
        assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"


@pytest.mark.slow
async def test_a_container_is_copied_without_its_processes(podman: images.Engine) -> None:
    async with Container(images.NAME, directory="/testbed", limits=SMALL) as box:
        await box.run("echo kept >file; (while :; do date >/testbed/alive; sleep 0.1; done) &", timeout_s=20)
        copy = await box.copied()
        # Sparse files, each within the limit on a file, take no room here; in an image they would.
        sparse = "[open(f'/tmp/{i}', 'wb').truncate(1 << 20) for i in range(9000)]"
        await box.run(f'python3 -c "{sparse}"', timeout_s=60)
        with pytest.raises(StartError, match=r"its new files have 9,\d{3},\d{3},\d{3} bytes"):
            await box.copied()
    async with copy:
        look = "cat file; rm -f alive; sleep 0.5; ls; cut -d: -f1 -s /proc/net/dev"
        lines = (await copy.run(look, timeout_s=20)).stdout.decode().split()
    assert [one for one in lines if one not in ("Inter-|", "face")] == ["kept", "file", "lo"]


@pytest.mark.slow
async def test_an_image_is_built_from_a_folder_without_a_network(
    podman: images.Engine, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("a\nb\n")
    lines = [f"FROM {images.NAME}", "COPY data.txt /testbed/", "RUN wc -l </testbed/data.txt >/testbed/count"]
    (tmp_path / "Dockerfile").write_text("\n".join([*lines, "WORKDIR /testbed", ""]))
    built = await container_images.build(str(tmp_path), "one", limit_s=120)
    async with Container(built, directory=".", limits=SMALL) as box:
        assert (await box.run("cat count", timeout_s=20)).stdout.split() == [b"2"]
    assert await container_images.build(str(tmp_path), "one", limit_s=120) == built
    connect = "import socket; socket.create_connection(('1.1.1.1', 53), 2)"
    for line, error, problem in (
        (f'RUN python3 -c "{connect}"', StartError, "unreachable"),
        ("RUN sleep 600", StartError, "took longer than 5 s"),
        ("ADD http://127.0.0.1/a /a", SetupError, "ADD of what may be a URL"),
        ('ADD ["http://127.0.0.1/a", "/a"]', SetupError, "ADD of what may be a URL"),
        ("ADD \\\n  https://127.0.0.1/a /a", SetupError, "ADD of what may be a URL"),
        ("ENV U=http://127.0.0.1/a\nADD ${U} /a", SetupError, "ADD of what may be a URL"),
        ("RUN --network=host id", SetupError, "RUN with --network"),
        ("RUN \\ \n--network=host id", SetupError, "RUN with --network"),
        (
            "RUN --mount=type=cache,id=../../../etc,target=/mnt cat /mnt/passwd",
            SetupError,
            "RUN with --mount",
        ),
    ):
        (tmp_path / "Dockerfile").write_text("\n".join([lines[0], line, ""]))
        with pytest.raises(error, match=problem):
            await container_images.build(str(tmp_path), "two", limit_s=5 if "sleep" in line else 120)


@pytest.mark.slow
async def test_data_opens_no_image_file_of_the_machine(podman: images.Engine, tmp_path: Path) -> None:
    saved = tmp_path / "private.tar"
    assert podman.run("save", "-o", str(saved), images.NAME).returncode == 0
    for name in (f"docker-archive:{saved}", f"containers-storage:{images.NAME}", str(saved)):
        async with AsyncExitStack() as stack:
            with pytest.raises(StartError, match="names no image of a registry"):
                await stack.enter_async_context(Container(name, directory="/tmp", limits=SMALL))
    for number, text in enumerate(
        (f"FROM docker-archive:{saved}", f"FROM scratch\nCOPY --from=docker-archive:{saved} /usr /stolen")
    ):
        (tmp_path / "Dockerfile").write_text(text)
        with pytest.raises(SetupError, match="no stage and no image of a registry"):
            await container_images.build(str(tmp_path), f"private{number}", limit_s=60)


@pytest.mark.slow
async def test_stages_and_local_files_are_built(podman: images.Engine, tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("words\n")
    (tmp_path / "Dockerfile").write_text(
        f"# syntax=docker/dockerfile:1\nARG BASE={images.NAME}\nFROM $BASE AS One\n"
        f"LABEL stage={os.getpid()}\nRUN echo 1 \\\n # words\n"
        f'  2 >/made\nFROM {images.NAME}\nCOPY --from=One /made /\nADD ["a b", "/"]\n'
        f"COPY --from={images.NAME} /usr/bin/env /copied\n"
    )
    built = await container_images.build(str(tmp_path), "stages", limit_s=120)
    async with Container(built, directory=".", limits=SMALL) as box:
        done = await box.run("cat '/made' '/a b'; ls /copied", timeout_s=20)
        assert done.stdout == b"1 2\nwords\n/copied\n"
    # The engine keeps stages, without a name.
    podman.run("image", "prune", "--force", "--filter", f"label=stage={os.getpid()}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        ("RUN --mount=type=bind,from=BASE,source=/,target=/mnt ls /mnt", "ONBUILD .*: RUN with --mount"),
        ("ADD http://127.0.0.1:1/x /x", "ONBUILD .*: ADD of what may be a URL"),
        ("COPY data.txt /copied", ""),
    ],
)
async def test_what_a_base_image_brings_is_judged(
    podman: images.Engine, tmp_path: Path, trigger: str, problem: str
) -> None:
    """Its ONBUILD used to be carried out whatever it was."""
    base = f"{images.NAME}-base"
    lines = [f"FROM {images.NAME}", f"ONBUILD {trigger.replace('BASE', images.NAME)}"]
    (tmp_path / "Base").write_text("\n".join(lines))
    try:
        told = podman.run(
            "build", "--format=docker", f"--file={tmp_path}/Base", f"--tag={base}", str(tmp_path)
        )
        assert told.returncode == 0, told.stderr
        (tmp_path / "data.txt").write_text("words\n")
        (tmp_path / "Dockerfile").write_text(
            f"ARG B={base}\nFROM scratch\nFROM --platform=linux/amd64 $B AS x\n"
        )
        if problem:
            with pytest.raises(SetupError, match=problem):
                await container_images.build(str(tmp_path), "onbuild", limit_s=120)
            return
        built = await container_images.build(str(tmp_path), "onbuild-copy", limit_s=120)
        async with Container(built, directory=".", limits=SMALL) as box:
            assert (await box.run("cat /copied", timeout_s=20)).stdout == b"words\n"
    finally:
        podman.run("rmi", "--force", base)


@pytest.mark.slow
async def test_a_container_whose_image_holds_up_its_start_is_removed_at_once(podman: images.Engine) -> None:
    """Podman opens the image's ``/etc/passwd`` while it holds the container's lock."""
    image, maker = f"{images.NAME}-stuck", f"gym-{os.getpid()}-maker"
    made = podman.run("run", f"--name={maker}", images.NAME, "mkfifo", "/etc/passwd")
    assert made.returncode == 0, made.stderr
    try:
        assert podman.run("commit", maker, image).returncode == 0
        podman.run("rm", maker)
        async with container(image) as box, anyio.create_task_group() as tasks:
            tasks.start_soon(box.ready)
            with anyio.fail_after(20 * busy()):  # less than the removal would wait for the start
                child = None
                while not child or podman.run("container", "exists", child.name).returncode:
                    await anyio.sleep(0.1)
                    child = box._child  # pyright: ignore[reportPrivateUsage]
                    assert isinstance(child, container_engines.Contained)
                tasks.cancel_scope.cancel()
                await box.close()
    finally:
        podman.run("rmi", "--force", image)


async def test_a_sandbox_without_an_image_has_neither_users_nor_a_network() -> None:
    with pytest.raises(SetupError, match="no user 'alice'; name an image"):
        Container(directory="testbed").as_user("alice")
    with pytest.raises(SetupError, match="has no network; name an image"):
        await Container(directory="testbed", network="public").start()
    async with Container(directory="testbed", limits=SMALL, variables={"A": "a b"}) as box:
        assert (await box.run('echo "$A"', timeout_s=20)).stdout == b"a b\n"
        with pytest.raises(SetupError, match="no image"):
            await box.copied()
