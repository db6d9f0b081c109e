"""How engines are commanded: a program of the engine's name notes what it is told, and runs it here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gym_sandbox import Container, container_engines, container_images, image_name
from gym_sandbox.sandbox_errors import SetupError, StartError
from sandbox import images

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
FAKE = """#!/bin/sh
# An engine without isolation: images are files in a folder, containers are processes.
here=$(dirname "$0")
echo "$(basename "$0") $*" >>"$here/told"
case "$1" in
image) [ -f "$here/images/$(echo "$3" | tr / _)" ] ;;
pull)
  case "$3" in *missing*) echo "manifest unknown" >&2; exit 125 ;; esac
  : >"$here/images/$(echo "$3" | tr / _)" ;;
version) echo "Engine Containerd $DOCKER_PLATFORM" ;;
rmi) rm -f "$here/images/$(echo "$3" | tr / _)" ;;
run|exec|--quiet)
  env | grep -c SECRET >>"$here/told"
  while [ "$1" != /bin/sh ]; do shift; done
  case "$here" in *broken*) exit 125 ;; esac
  exec "$@" ;;
esac
"""


class Fake:
    """The engine of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def told(self) -> list[str]:
        return (self.folder / "told").read_text().splitlines()

    @property
    def images(self) -> set[str]:
        return {path.name for path in (self.folder / "images").iterdir()}


@pytest.fixture(params=["docker", "podman", "apptainer"])
def fake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    (tmp_path / "images").mkdir()
    program = tmp_path / request.param
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(container_engines.SETTING, request.param)
    monkeypatch.setenv("MY_SECRET", "x")
    monkeypatch.setattr(container_engines, "_images", {})
    container_engines.counts.cache_clear()
    return Fake(tmp_path)


async def once(image: str, folder: Path) -> bytes:
    async with Container(image, directory=str(folder / "work")) as box:
        return (await box.run("echo on", timeout_s=20)).stdout


async def test_an_image_is_pulled_once_and_removed_when_it_is_long_unused(fake: Fake) -> None:
    if container_engines.chosen() == "apptainer":
        pytest.skip("apptainer keeps images in its own cache")
    for number in (0, 0, 1, 2, 3, 4):
        assert await once(f"a/image{number}", fake.folder) == b"on\n"
    assert len([line for line in fake.told if " pull " in line]) == 5
    assert fake.images == {f"a_image{number}" for number in (1, 2, 3, 4)}
    assert len([line for line in fake.told if " rm --force" in line]) == 6
    container_engines.remove_images()
    assert not fake.images


async def test_an_image_that_was_there_before_stays(fake: Fake) -> None:
    if container_engines.chosen() == "apptainer":
        pytest.skip("apptainer keeps images in its own cache")
    (fake.folder / "images/a_mine").touch()
    await once("a/mine", fake.folder)
    container_engines.remove_images()
    assert fake.images == {"a_mine"}


async def test_nothing_of_the_worker_reaches_an_engine_and_nothing_is_allowed(fake: Fake) -> None:
    await once("a/image", fake.folder)
    (started,) = [line for line in fake.told if line.split()[1:2] in (["run"], ["--quiet"])]
    assert fake.told[fake.told.index(started) + 1 :][:1] != ["1"]
    if container_engines.chosen() == "apptainer":
        for flag in (
            "--containall",
            "--cleanenv",
            "--no-home",
            "--no-privs",
            "--network none",
            "docker://a/image",
        ):
            assert flag in started
    else:
        for flag in (
            "--rm",
            "--network=none",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--pull=never",
        ):
            assert flag in started
        assert "--privileged" not in started
        assert "--volume" not in started


async def test_what_a_container_may_have_is_told_to_the_engine(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake.folder / "Dockerfile").write_text("FROM scratch\n")
    if container_engines.chosen() == "apptainer":
        box = Container("a/image", directory=str(fake.folder / "work"))
        with pytest.raises(SetupError, match="users of an image need podman or docker"):
            await box.as_user("alice").run("id", timeout_s=20)
        with pytest.raises(SetupError, match="a container is copied by podman or docker"):
            await box.copied()
        await box.close()
        with pytest.raises(SetupError, match="an image is built by podman or docker"):
            await container_images.build(str(fake.folder), "one", limit_s=20)
        with pytest.raises(SetupError, match="a separate network needs podman or docker"):
            await Container("a/image", directory="/", network="public").start()
        return
    variables = {"TOKEN": "secret words"}
    work = str(fake.folder / "work")
    async with Container("a/image", directory=work, network="public", variables=variables) as box:
        assert (await box.run('echo "$TOKEN"', timeout_s=20)).stdout == b"secret words\n"
        assert (await box.as_user("alice").run("echo on", timeout_s=20)).stdout == b"on\n"
        copy = await box.copied()
    (name,) = [word for line in fake.told for word in line.split() if word.startswith("--name=")]
    assert copy.image is not None
    (fake.folder / "images" / copy.image.replace("/", "_")).touch()
    async with copy:
        await copy.run("true", timeout_s=20)
    assert not [image for image in fake.images if "copy" in image]
    await container_images.build(str(fake.folder), "one", limit_s=20)
    if container_engines.chosen() == "docker":  # its client also speaks to podman, which builds otherwise
        monkeypatch.setenv("DOCKER_PLATFORM", "Podman Engine")
        with pytest.raises(SetupError, match="docker is podman here; set GYM_CONTAINERS=podman"):
            await container_images.build(str(fake.folder), "two", limit_s=20)
    told = "\n".join(fake.told)
    assert "secret" not in told
    run, again = (line for line in fake.told if line.split()[1:2] == ["run"])
    assert ("--network" in run, "--network=none" in again) == (False, True)
    assert f"exec --interactive --user=alice {name.removeprefix('--name=')} /bin/sh" in told
    assert f"commit --pause=false --change=LABEL gym-runtime=copy {name.removeprefix('--name=')}" in told
    (build,) = [line for line in fake.told if line.split()[1:2] == ["build"]]
    assert "--network=none" in build
    assert ("--cap-drop=ALL" in build) == (container_engines.chosen() == "podman")
    assert build.endswith(f" {fake.folder}")


async def test_an_input_is_read_with_the_programs_of_busybox(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", images.head_of_busybox(fake.folder))
    async with Container("a/image", directory=str(fake.folder / "work")) as box:
        for size in (1, 100_000):
            done = await box.run("wc -c", stdin=b"a" * size, timeout_s=20)
            assert int(done.stdout) == size, done


@pytest.mark.slow
async def test_an_image_that_cannot_be_pulled_is_a_failure_with_the_engines_words(fake: Fake) -> None:
    if container_engines.chosen() == "apptainer":
        pytest.skip("apptainer pulls by itself")
    with pytest.raises(StartError, match="manifest unknown"):
        await once("a/missing", fake.folder)


async def test_data_names_no_file_of_the_machine_but_a_sif_for_apptainer(fake: Fake) -> None:
    (fake.folder / "a.sif").touch()
    (fake.folder / "a.tar").touch()
    for name in (
        f"docker-archive:{fake.folder}/a.tar",
        f"{fake.folder}/a.tar",
        "dir:a",
        "--privileged",
        "a\0b",
    ):
        with pytest.raises(StartError, match="names no image of a registry"):
            await once(name, fake.folder)
    assert not (fake.folder / "told").exists()
    if container_engines.chosen() == "apptainer":
        assert await once(f"{fake.folder}/a.sif", fake.folder) == b"on\n"
    else:
        with pytest.raises(StartError, match="names no image of a registry"):
            await once(f"{fake.folder}/a.sif", fake.folder)


def test_without_an_engine_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match="apt-get install podman"):
        container_engines.chosen()
    monkeypatch.setenv(container_engines.SETTING, "rkt")
    with pytest.raises(SetupError, match="one of podman, docker, apptainer"):
        container_engines.chosen()


def test_the_names_of_images(tmp_path: Path) -> None:
    assert image_name("docker.io/a/b:latest") == "docker.io/a/b:latest"
    assert image_name("/x/xingyaoww_sweb.eval.x86_64.dask_s_dask-9378.sif") == (
        "docker.io/xingyaoww/sweb.eval.x86_64.dask_s_dask-9378"
    )
    (tmp_path / "a_b.sif").touch()
    assert image_name(f"{tmp_path}/a_b.sif") == f"{tmp_path}/a_b.sif"
