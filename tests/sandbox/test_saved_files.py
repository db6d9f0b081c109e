"""A container's files, saved and brought back by another one, and what cannot be saved."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from anyio import to_thread
from gym_sandbox import Container, Limits, bubblewrap, container_engines, file_walk, saved_files, seen_files
from gym_sandbox.sandbox_errors import SetupError, StartError
from gym_sandbox.saved_files import MOST_FAILURES, MOST_LAYERS, PART_BYTES, TURN, SavedFiles
from gym_testing.memory.memory_store import MemoryStore
from sandbox import images

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(_refusal), reason=_refusal)]
SMALL = Limits(memory_bytes=512 << 20, disk_bytes=64 << 20, file_bytes=8 << 20)
LOOK = (
    "cd /; find ./tmp ./extra ! -path './tmp/tmp.*' -printf '%y %m %P %l\\n' | sort; "
    "find ./tmp ./extra -type f ! -path './tmp/tmp.*' -print0 | sort -z | xargs -0 -r sha256sum"
)


SEEN = seen_files.seen
BESIDE, INSIDE = "beside", "inside"


@pytest.fixture(params=[BESIDE, INSIDE])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What packs the files: a process beside the worker, or the container."""
    use(request.param, monkeypatch)
    return request.param


def use(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def seen(container: Container, folders: list[str]) -> Any:
        if way == INSIDE:
            return None
        found = await SEEN(container, folders)
        assert found is not None
        return found

    monkeypatch.setattr(seen_files, "seen", seen)


@asynccontextmanager
async def box(
    store: MemoryStore, saved: Any = None, image: str | None = None
) -> AsyncGenerator[tuple[Container, SavedFiles]]:
    writable = () if image else ("/extra",)
    async with Container(image, directory="/tmp/work", limits=SMALL, writable=writable) as container:
        files = SavedFiles(container, store)
        await files.begin(saved)
        yield container, files


async def run(container: Container, script: str) -> bytes:
    done = await container.run(script, timeout_s=20)
    assert done.exit_code == 0, done
    return done.stdout


async def settled() -> None:
    """Wait until a save has for good what was changed before; what is changed in its tick is saved twice."""
    await to_thread.run_sync(file_walk.tick)


ENGINE = """#!/bin/sh
[ "$1" = run ] || exit 0
while [ "$1" != plain ]; do shift; done; shift
exec bwrap --unshare-all --as-pid-1 --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin \\
  --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --dir /extra \\
  --dir /etc --chdir / "$@"
"""
"""Stands for podman: its containers are sandboxes of bubblewrap in which all but `/usr` can be written."""


@pytest.fixture(
    params=[
        *((way, "") for way in (BESIDE, INSIDE)),
        pytest.param((INSIDE, "plain"), marks=pytest.mark.slow),
        *(pytest.param((way, "podman"), marks=pytest.mark.slow) for way in (BESIDE, INSIDE)),
    ],
    ids="-".join,
)
def image(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str | None]:
    """The image of a container, None for bubblewrap, each with what packs its files."""
    way, name = request.param
    use(way, monkeypatch)
    if name == "podman":
        with images.used("podman", monkeypatch):
            yield images.NAME
        return
    if not name:
        yield None
        return
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not in the path")
    (tmp_path / "podman").write_text(ENGINE)
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(container_engines.SETTING, "podman")
    yield name


CHANGES = (
    "mkdir -p d/e; echo 1 >d/e/f; echo 2 >a; ln -s a l; ln a h; touch -d 2001-01-01 old; echo e >/extra/e",
    # Folders are moved with what is in them, and back into one of the old name.
    "mkdir -p m/n/o stays /extra/x/y; echo 1 >m/n/o/f; echo 2 >m/g; ln -s g m/l; echo 3 >stays/h",
    "mv m moved; echo 4 >moved/new; mkdir m; mv stays m/inner; echo 5 >/extra/x/y/z",
    "mv moved/n /extra/n; mv /extra/x .; mv m/inner stays; touch x/y/late",
    "rm -r d; echo file >d; cp -p old older; chmod 640 a",  # a folder becomes a file
    "rm d l; mkdir d; ln -s /extra d/x; mkdir l; echo y >l/z; printf x >$'n\\n l'",  # and back; and a link
    "rm -r l; ln -s d l; touch -- -rf; mkfifo pipe; mkdir ../beside; rm /extra/e",
)


@pytest.mark.slow
async def test_another_container_gets_the_files_and_only_changes_are_stored(image: str | None) -> None:
    store, look = MemoryStore(), LOOK
    saved: Any = None
    if image:
        look = f"{LOOK}; ls /; ls -l /etc/root; true"
    async with box(store, image=image) as (first, files):
        await run(first, "mkdir -p /extra" if image else ":")
        for change in CHANGES:
            await run(first, change)
            saved = await files.save()
        if image:
            await run(first, "mkdir /deep; echo root >/etc/root; rm -rf /extra/*; echo 1 >/extra/1")
            saved = await files.save()
        expected = await run(first, f"rm pipe; {look}")
    assert len(saved["layers"]) == len(CHANGES) + bool(image)
    async with box(store, saved, image) as (second, files):
        assert await run(second, look) == expected
        await run(second, "echo more >more")
        again = await files.save()
        assert again is not None
        assert again["layers"][:-1] == saved["layers"]
        assert again["layers"][-1][1] < 500  # what was brought back is not stored again
        expected = await run(second, look)
    async with box(store, again, image) as (third, _):
        assert await run(third, look) == expected
    other = {**saved, "base": "0" * 32}
    with pytest.raises(StartError, match="are not those of the lost one"):
        async with box(store, other, image):
            pass


@pytest.mark.parametrize("engine", ["", pytest.param("podman", marks=pytest.mark.slow)])
async def test_to_begin_runs_no_program(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs as much as to save the files of ten turns, an engine's own as of forty."""

    async def asked(*_: object) -> str:
        raise AssertionError("the engine is asked")

    use(BESIDE, monkeypatch)
    monkeypatch.setattr(container_engines, "said", asked)
    with images.used(engine, monkeypatch) if engine else nullcontext():
        image = images.NAME if engine else None
        async with Container(image, directory="/tmp/work", limits=SMALL) as container:
            first = await run(container, "echo $$")
        async with box(MemoryStore(), image=image) as (container, _):
            assert await run(container, "echo $$; ls -d /tmp/.[!.]*; true") == first


@pytest.mark.slow
@pytest.mark.usefixtures("way")
async def test_what_an_engine_writes_into_a_container_is_no_part_of_its_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Podman writes the container's name into ``/etc/hosts``, and what is in the machine's own."""
    store = MemoryStore()
    with images.used("podman", monkeypatch):
        async with box(store, image=images.NAME) as (container, files):
            hosts = await run(container, "cat /etc/hosts")
            await run(container, "echo 1 >/etc/one")
            saved = await files.save()

        def longer(size: int) -> str:
            return "longer" + 2 * size * "0"

        monkeypatch.setattr(container_engines.secrets, "token_hex", longer)
        async with box(store, saved, images.NAME) as (container, _):
            assert len(await run(container, "cat /etc/hosts")) > len(hosts)
            assert await run(container, "cat /etc/one") == b"1\n"


@pytest.mark.slow
async def test_either_way_unpacks_what_the_other_has_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    saved: Any = None
    looks: list[bytes] = []
    for number, way in enumerate((BESIDE, INSIDE, BESIDE)):
        use(way, monkeypatch)
        async with box(store, saved) as (container, files):
            looks.append(await run(container, LOOK))
            await run(container, f"mkdir -p d{number}/{'long' * 40}; echo 1 >d{number}/{'long' * 40}/f")
            await run(
                container, f"ln -s {'target' * 30} l{number}; rm -rf d{number - 2}; chmod 500 d{number}"
            )
            saved = await files.save()
            looks.append(await run(container, LOOK))
    assert len(saved["layers"]) == 3
    assert looks[1:-1:2] == looks[2::2]


@pytest.mark.slow
async def test_large_changes_are_stored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    use(BESIDE, monkeypatch)
    store = MemoryStore()
    large = Limits(memory_bytes=512 << 20, disk_bytes=128 << 20, file_bytes=64 << 20)
    async with Container(directory="/tmp/work", limits=large) as container:
        files = SavedFiles(container, store)
        await files.begin()
        before = psutil.Process().memory_info().rss
        await run(container, "head -c 50000000 /dev/urandom >large; echo 1 >small")
        await settled()
        saved = await files.save()
        assert saved is not None
        kept = sum(map(len, store.parts.values()))
        assert psutil.Process().memory_info().rss - before - kept < 40 << 20
        digest = await run(container, "sha256sum large small")
        assert await files.save() == saved  # nothing was changed
    ((_, size),) = saved["layers"]
    assert size > 50_000_000
    assert max(map(len, store.parts.values())) < PART_BYTES + (1 << 20)
    async with Container(directory="/tmp/work", limits=large) as container:
        await SavedFiles(container, store).begin(saved)
        assert await run(container, "sha256sum large small") == digest
    monkeypatch.setenv(TURN, "9")
    async with Container(directory="/tmp/work", limits=large) as container:
        files = SavedFiles(container, MemoryStore())
        await files.begin()
        await run(container, "head -c 50000000 /dev/urandom >large")
        assert await files.save() is None
        await run(container, "rm large; echo 1 >small")
        assert await files.save() is not None
    use(INSIDE, monkeypatch)
    with pytest.raises(StartError, match="too large for one that unpacks them by itself"):
        async with Container(directory="/tmp/work", limits=large) as container:
            await SavedFiles(container, store).begin(saved)
    monkeypatch.setenv(TURN, "much")
    with pytest.raises(SetupError, match="GYM_SAVED_TURN_MIB=much is no number of MiB"):
        SavedFiles(container, store)


async def test_without_changes_nothing_is_stored_and_the_end_of_the_container_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(BESIDE, monkeypatch)
    async with box(MemoryStore()) as (container, files):
        begun = await files.save()
        assert begun is not None
        assert begun["layers"] == []
        await run(container, "touch ../beside; ls / >/dev/null")
        await settled()
        saved = await files.save()
        assert saved is not None
        await run(container, "cat ../beside; echo $$ >/dev/null")
        seen_files.server().end()  # another one is started
        assert await files.save() == saved
        await container.run("kill -9 -1", timeout_s=5)
        assert await files.save() is None
        assert container.ended


WRITING = """
(until [ -e ../stop ]; do i=$((i + 1)); echo $i >$i; sleep 0.0002; done; touch ../ended) >/dev/null 2>&1 &
"""


async def test_a_change_right_after_a_save_is_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's times of change have steps of some milliseconds: many changes come within the same one."""
    use(BESIDE, monkeypatch)
    store = MemoryStore()
    async with box(store) as (container, files):
        await run(container, WRITING)
        for _ in range(40):
            assert await files.save() is not None
        await run(container, "touch ../stop; until [ -e ../ended ]; do sleep 0.01; done")
        saved = await files.save()
        expected = await run(container, LOOK)
    async with box(store, saved) as (other, _):
        assert await run(other, LOOK) == expected


def readers() -> list[psutil.Process]:
    """The processes that read the files of containers of this process."""
    return psutil.Process(seen_files.server().pid).children()


async def test_what_reads_the_files_stays_for_the_next_time_and_may_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(BESIDE, monkeypatch)
    store = MemoryStore()
    async with box(store) as (container, files):
        (reader,) = readers()
        await run(container, "echo 1 >one")
        assert await files.save() is not None
        assert readers() == [reader]
        reader.kill()  # between two times: another one reads
        reader.wait()
        await run(container, "echo 2 >two")
        saved = await files.save()
        assert saved is not None
        (reader,) = readers()

        async def put(part: bytes) -> str:
            with suppress(psutil.NoSuchProcess):  # of the parts that it has sent before, too
                reader.kill()  # while it packs
            return await MemoryStore.put(store, part)

        monkeypatch.setattr(store, "put", put)
        await run(container, "head -c 3000000 /dev/urandom >three")
        monkeypatch.setattr(saved_files, "PART_BYTES", 1 << 18)
        assert await files.save() is None
        monkeypatch.undo()
        saved = await files.save()
        assert saved is not None
        digest = await run(container, "sha256sum one two three")
        (reader,) = readers()
    reader.wait(20)  # it ends with its container
    async with box(store, saved) as (container, _):
        assert await run(container, "sha256sum one two three") == digest


@pytest.mark.usefixtures("way")
async def test_many_layers_become_one() -> None:
    store = MemoryStore()
    async with box(store) as (container, files):
        await run(container, "echo 1 >kept; echo 2 >gone")
        saved = await files.save()
        assert saved is not None
        layers = saved["layers"] * MOST_LAYERS
        files._saved = type(files._saved)(base=saved["base"], layers=layers)  # pyright: ignore
        await run(container, "rm gone; echo 3 >new")
        saved = await files.save()
        assert saved is not None
        assert len(saved["layers"]) == 1
    async with box(store, saved) as (other, _):
        assert await run(other, "ls") == b"kept\nnew\n"


@pytest.mark.slow
@pytest.mark.usefixtures("way")
async def test_what_cannot_be_saved_leaves_the_older_state_and_a_container_that_works() -> None:
    store = MemoryStore()
    store.limit_bytes = 1 << 20
    async with box(store) as (container, files):
        await run(container, "echo 1 >small")
        assert await files.save() is not None
        await run(container, "head -c 3000000 /dev/urandom >large")
        assert [await files.save() for _ in range(MOST_FAILURES)] == [None] * MOST_FAILURES
        await run(container, "rm large")
        assert await files.save() is None  # given up
        assert await run(container, "cat small") == b"1\n"
    assert len(store.parts) == 1
    async with box(store) as (container, files):
        await run(container, "mkdir -m 0 secret")
        await files.save()
        await container.run("kill -9 -1", timeout_s=5)
        assert await files.save() is None


@pytest.mark.usefixtures("way")
async def test_a_forged_layer_reaches_nothing_but_its_own_container() -> None:
    store = MemoryStore()
    async with box(store) as (_, files):
        saved = await files.save()
    assert saved is not None
    name = await store.put(b"no archive")
    with pytest.raises(StartError, match="cannot be unpacked"):
        async with box(store, {**saved, "layers": [(name, 10)]}):
            pass


HOSTILE = r"""
mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
ln -s / root; ln -s /etc/passwd passwd; ln -s OUTSIDE out
printf bytes >"$(printf 'n\377\376 \n x')"; touch -- '--checkpoint-action=exec=sh x' '-rf'
truncate -s 8M sparse; echo s >bits; chmod 6755 bits
mkdir many; cd many; seq NAMES | xargs touch; cd ..; touch moving
(until [ -e stop ]; do mv many other; mv other many; done; rm moving) >/dev/null 2>&1 &
"""
"""Names that change while they are read, and names and files that programs take for something else."""
LOOK_AT = r"ls many | wc -l; readlink out passwd; wc -c <sparse; cat n*; echo; ls -d ./-*; ls -d pipe socket"


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("names", [2000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_hostile_files_reach_nothing_outside_and_cost_no_memory(names: int, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    outside.chmod(0o666)
    store = MemoryStore()
    limits = Limits(memory_bytes=1 << 30, disk_bytes=512 << 20, file_bytes=256 << 20)
    process = psutil.Process()
    async with Container(directory="/tmp/work", limits=limits) as container:
        files = SavedFiles(container, store)
        await files.begin()
        before = process.memory_info().rss
        await run(container, HOSTILE.replace("OUTSIDE", str(outside)).replace("NAMES", str(names)))
        await files.save()  # names that change meanwhile may be left for the next time
        await run(container, "touch stop; while [ -e moving ]; do sleep 0.05; done; rm stop")
        saved = await files.save()
        assert saved is not None
        assert process.memory_info().rss - before < 64 << 20
    async with Container(directory="/tmp/work", limits=limits) as other:
        await SavedFiles(other, store).begin(saved)
        found = await other.run(LOOK_AT, timeout_s=20)
    lines = found.stdout.decode().splitlines()
    assert lines == [
        *(str(names), str(outside), "/etc/passwd", str(8 << 20), "bytes"),
        *("./--checkpoint-action=exec=sh x", "./-rf"),
    ]
    assert outside.read_text() == "untouched"
