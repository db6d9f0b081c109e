"""What each provider of boxes does: the same, on this machine, in an engine and over E2B's API."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import pytest
from boxes.daytona_server import DaytonaServer
from boxes.e2b_server import E2BServer
from boxes.kubernetes_server import KubernetesServer
from boxes.modal_server import ModalServer
from gym_boxes import BoxGone, BoxRefused, BoxUnknown, Provider, provider
from gym_boxes.daytona import Daytona
from gym_boxes.e2b import E2B
from gym_boxes.engines import Engine
from gym_boxes.kubernetes import Kubernetes
from gym_boxes.modal import Modal
from gym_boxes.overlays import EMPTY, Overlays
from gym_boxes.scripts import loaded
from gym_runtime import ResourceError, UsageError
from gym_sandbox import Container, bubblewrap
from gym_sandbox.readable_files import Layers
from gym_sandbox.sandbox_errors import SetupError
from sandbox import images

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(240)]
NEVER = "0" * 12

try:
    bubblewrap.check_layers(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = str(error)


@pytest.fixture(
    params=[
        "bubblewrap",
        "daytona",
        "e2b",
        "kubernetes",
        "modal",
        pytest.param("podman", marks=pytest.mark.soak),
    ]
)
async def made(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Provider, str]]:
    if _refusal and request.param != "podman":
        pytest.skip(_refusal)
    if request.param == "bubblewrap":
        # Other users must be able to reach the folder, as in a folder of the system's.
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o711)
        boxes = Overlays(tmp_path)
        yield boxes, EMPTY
        await boxes.aclose()
        return
    if request.param == "e2b":
        async with E2BServer().run() as server:
            service = E2B("key", api_url=server.url, sandbox_url=server.url)
            yield service, "base"
            await service.aclose()
        return
    if request.param == "daytona":
        pytest.importorskip("daytona", reason="needs pip install 'gym-runtime[daytona]'")
        async with DaytonaServer().run() as server:
            sdk = Daytona("key", api_url=server.url)
            yield sdk, "base"
            await sdk.aclose()
        return
    if request.param == "modal":
        pytest.importorskip("modal", reason="needs pip install 'gym-runtime[modal]'")
        async with ModalServer().run() as server:
            monkeypatch.setenv("MODAL_SERVER_URL", server.url)
            modal = Modal("id", "secret")
            yield modal, "python:3.12"
            await modal.aclose()
        return
    if request.param == "kubernetes":
        async with KubernetesServer().run() as cluster:
            pods = Kubernetes(cluster.url, token="token")
            yield pods, "python:3.12"
            await pods.aclose()
        return
    with images.used("podman", monkeypatch):
        podman = Engine("podman")
        yield podman, images.NAME
        for one in await podman.list(f"t{os.getpid()}."):
            await podman.end(one.box)


async def test_a_box_lives_is_snapshot_forked_found_and_ended(made: tuple[Provider, str]) -> None:
    boxes, template = made
    account = f"t{os.getpid()}"
    box = await boxes.create(template, label=f"{account}.0.1", life_s=600)
    done = await boxes.exec(box, "echo out; echo err >&2; exit 3", timeout_s=30)
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert (await boxes.exec(box, "cat", timeout_s=30, stdin=b"a\0b")).stdout == b"a\0b"
    assert (await boxes.exec(box, "sleep 30", timeout_s=1)).exit_code is None
    home = (await boxes.exec(box, "pwd", timeout_s=30)).stdout.decode().strip().rstrip("/")
    await boxes.put(box, f"{home}/d/it's", b"\0\1")
    assert await boxes.get(box, f"{home}/d/it's") == b"\0\1"
    with pytest.raises(ResourceError, match="there is no file"):
        await boxes.get(box, f"{home}/nothing")
    assert await boxes.get(box, f"{home}/d/it's", most_bytes=2) == b"\0\1"
    with pytest.raises(ResourceError, match="more than 1 bytes"):
        await boxes.get(box, f"{home}/d/it's", most_bytes=1)

    kept = template
    if isinstance(boxes, Kubernetes):
        with pytest.raises(UsageError, match="no snapshots"):
            await boxes.snapshot(box)
        fork = await boxes.create(template, label=f"{account}.1.7", life_s=600)
    else:
        kept = await boxes.snapshot(box)
        await boxes.exec(box, "rm -r d; echo later >later", timeout_s=30)
        assert await boxes.snapshot(box) != kept
        fork = await boxes.create(kept, label=f"{account}.1.7", life_s=600)
        assert (await boxes.exec(fork, "ls d; ls later", timeout_s=30)).stdout == b"it's\n"
        await boxes.exec(fork, "echo fork >d/it\\'s", timeout_s=30)
        assert b"later" in (await boxes.exec(box, "ls", timeout_s=30)).stdout.split()

    listed = {one.box: one.label for one in await boxes.list(f"{account}.")}
    assert listed == {box: f"{account}.0.1", fork: f"{account}.1.7"}
    assert [one.box for one in await boxes.list(f"{account}.1.7")] == [fork]
    assert list(await boxes.list(f"{account}x.")) == []
    await boxes.renew(fork, 60)
    for _ in range(2):
        await boxes.end(fork)
    with pytest.raises(BoxGone):
        await boxes.renew(fork, 60)
    with pytest.raises(BoxGone):
        await boxes.exec(fork, "true", timeout_s=30)
    await boxes.end(box)
    assert list(await boxes.list(f"{account}.")) == []
    for _ in range(2):
        await boxes.forget(kept)


async def test_pipes_and_devices_of_a_box_hold_nothing_up(made: tuple[Provider, str]) -> None:
    boxes, template = made
    if not isinstance(boxes, (Engine, Kubernetes, Overlays)):
        pytest.skip("the service reads and writes files itself")
    box = await boxes.create(template, label=f"t{os.getpid()}.0.1", life_s=600)
    done = await boxes.exec(box, "mkfifo pipe 'other pipe'; pwd", timeout_s=30)
    home = done.stdout.decode().strip().rstrip("/")
    with anyio.fail_after(50):  # a read without an end would take a minute
        for path in (f"{home}/pipe", "/dev/zero"):
            with pytest.raises(ResourceError, match="it is a pipe or a device"):
                await boxes.get(box, path)
        await boxes.put(box, f"{home}/other pipe", b"1")
        assert await boxes.get(box, f"{home}/other pipe") == b"1"
    await boxes.end(box)


@pytest.mark.soak
async def test_a_hostile_box_of_an_engine_is_gone_and_fills_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with images.used("podman", monkeypatch):
        boxes = Engine("podman")
        box = await boxes.create(images.NAME, label=f"t{os.getpid()}.0.1", life_s=600)
        await boxes.exec(box, "dd if=/dev/null of=/tmp/sparse bs=1 seek=1T", timeout_s=60)
        with pytest.raises(ResourceError, match=r"has 1,099,\d+,\d+,\d+ bytes of new files"):
            await boxes.snapshot(box)
        done = await boxes.exec(box, f"echo a\0b; : {'x' * 300_000}", timeout_s=30)
        assert (done.exit_code, done.stdout) == (0, b"ab\n"), (
            "neither NUL nor length is an error of this process"
        )
        await boxes.exec(box, "kill -9 -1", timeout_s=30)
        with pytest.raises(BoxGone):
            await boxes.exec(box, "echo alive", timeout_s=30)
        with pytest.raises(BoxGone):
            await boxes.get(box, "/tmp/sparse")
        await boxes.end(box)


@pytest.mark.skipif(bool(_refusal), reason=_refusal)
async def test_forks_on_this_machine_copy_nothing_and_cannot_reach_each_other(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)
    boxes = Overlays(tmp_path)
    box = await boxes.create(EMPTY, label="a.0.1", life_s=60)
    await boxes.exec(box, "head -c 30000000 /dev/zero >big; mkdir d; echo 1 >d/f", timeout_s=30)
    template = await boxes.snapshot(box)
    forks = [await boxes.create(template, label=f"a.{number}.1", life_s=60) for number in range(1, 4)]
    seen = (
        await boxes.exec(forks[0], "cat /proc/*/mountinfo /proc/*/cmdline /proc/*/environ", timeout_s=30)
    ).stdout
    assert b"overlay" in seen
    assert str(tmp_path).encode() not in seen, "no path of this machine is seen in a box"
    for number, fork in enumerate(forks):
        done = await boxes.exec(fork, f"wc -c <big; rm d/f; echo {number} >>mine; cat mine", timeout_s=30)
        assert done.stdout.split() == [b"30000000", b"%d" % number]
        own = sum(path.lstat().st_blocks for path in (tmp_path / "boxes" / fork).rglob("*")) * 512
        assert own < 100_000
    assert (await boxes.exec(box, "cat d/f; ls", timeout_s=30)).stdout == b"1\nbig\nd\n"
    # A box of a worker that was killed is found, and another worker goes on with its files.
    later = Overlays(tmp_path)
    assert (await later.exec(forks[2], "cat mine", timeout_s=30)).stdout == b"2\n"
    for one in await later.list("a."):
        await later.end(one.box)
    await later.forget(template)
    await boxes.aclose()
    assert [os.listdir(tmp_path / name) for name in ("boxes", "layers", "templates")] == [[], [], []]
    # The folder is removed, and made again.
    shutil.rmtree(tmp_path)
    os.mkdir(tmp_path, 0o711)
    boxes = Overlays(tmp_path)
    box = await boxes.create(EMPTY, label="a.0.2", life_s=60)
    assert (await boxes.exec(box, "echo 1 >f; ls", timeout_s=30)).stdout == b"f\n"
    await boxes.end(box)


@pytest.fixture
def sixty_four() -> Iterator[Layers]:
    """Layers with short paths: all options of a mount have 4,096 bytes."""
    owner = bubblewrap.layers_owner()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        names = [f"{folder}/{name}" for name in (*range(64), "up", "work")]
        for name in names:
            os.mkdir(name)
            os.chown(name, owner, -1)
        yield Layers("/box", tuple(names[:64]), *names[64:])


@pytest.mark.skipif(bool(_refusal), reason=_refusal)
async def test_sixty_four_layers_cost_no_processor_time(sixty_four: Layers) -> None:
    async def cpu_s(layers: Layers | None) -> float:
        """The least of several starts, until it takes commands."""
        found: list[float] = []
        for _ in range(8):
            before = used_s()
            async with Container(directory="/box" if layers else "work", layers=layers) as container:
                await container.ready()
            found.append(used_s() - before)
        return min(found)

    without = await cpu_s(None)
    assert await cpu_s(sixty_four) - without < 0.005


def used_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


async def test_a_pod_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with KubernetesServer().run() as cluster:
        monkeypatch.setenv("GYM_KUBERNETES_URL", cluster.url)
        monkeypatch.setenv("GYM_KUBERNETES_TOKEN", "token")
        monkeypatch.setenv("GYM_KUBERNETES_NAMESPACE", "rl")
        limits = {"limits": {"cpu": "2"}}
        more = {"runtimeClassName": "gvisor", "containers": [{"resources": limits}]}
        monkeypatch.setenv("GYM_KUBERNETES_POD", json.dumps(more))
        pods = provider("kubernetes")
        cluster.busy = 1
        with pytest.raises(BoxRefused, match="429"):
            await pods.create("image", label="A_b.3.7", life_s=60)
        assert not cluster.pods, "no pod is made before what it may reach is decided"
        cluster.lose = 1
        with pytest.raises(BoxUnknown):
            await pods.create("image", label="A_b.3.7", life_s=60)
        box = await pods.create("image", label="A_b.3.7", life_s=60)
        assert list(cluster.pods) == [box], "a create that is repeated finds the pod that it has made"
        other = await pods.create("image", label="a-b.3.7", life_s=60, internet=True)
        assert len({box, other}) == 2, "names differ where labels do"
        (spec, labels) = (cluster.pods[box]["spec"], cluster.pods[box]["metadata"]["labels"])
        assert labels == {"gym-account": "A_b", "gym-label": "A_b.3.7", "gym-internet": "false"}
        assert cluster.pods[other]["metadata"]["labels"]["gym-internet"] == "true"
        assert len(cluster.policies) == 1
        assert spec["runtimeClassName"] == "gvisor"
        (container,) = spec["containers"]
        assert (container["image"], container["resources"]) == ("image", limits)
        script = f"wc -c; : {'x' * 300_000}"
        done = await pods.exec(box, script, timeout_s=30, stdin=b"y" * 200_000)
        assert done.stdout.split() == [b"200000"], "neither is in a URL"
        await pods.put(box, "/tmp/user/big", large := os.urandom(3 << 20))
        assert await pods.get(box, "/tmp/user/big") == large
        for number in range(3):
            await pods.create("image", label=f"A_b.{number}.1", life_s=60)
        assert len(await pods.list("A_b.")) == 4, "over pages"
        cluster.pods[box]["status"]["phase"] = "Failed"
        with pytest.raises(BoxGone):
            await pods.renew(box, 60)
        await pods.aclose()
        monkeypatch.setenv("GYM_KUBERNETES_TOKEN", "wrong")
        refused = provider("kubernetes")
        with pytest.raises(UsageError, match="does not let this account"):
            await refused.list("A_b.")
        await refused.aclose()


@pytest.mark.parametrize("stdin", [b"", b"a\0b", b"a" * 100_000])
def test_scripts_of_pods_get_their_input_with_the_programs_of_busybox(tmp_path: Path, stdin: bytes) -> None:
    command, told = loaded("wc -c; exit 3", stdin, 20)
    path = images.head_of_busybox(tmp_path)
    done = subprocess.run(
        command, input=told, capture_output=True, timeout=60, check=False, env={"PATH": path}
    )
    assert (done.returncode, int(done.stdout), done.stderr) == (3, len(stdin), b"")
