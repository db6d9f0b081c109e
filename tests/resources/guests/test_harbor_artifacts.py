"""What an agent can put among the artifacts that a separate verifier of a Harbor task gets."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from gym_resources.harbor_tasks import artifact_archive, task_folder
from gym_resources.harbor_tasks.task_trial import Settings, Trial
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from resources.guests.harbor_folders import task
from sandbox import images

pytestmark = pytest.mark.anyio
JUDGE = """#!/bin/sh
[ "$(cat /logs/artifacts/answer.txt)" = "$(cat /tests/expected.txt)" ] && r=1 || r=0
echo $r >/logs/verifier/reward.txt
"""
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
WRITE = "echo {} >/logs/artifacts/answer.txt"


async def judged(folder: Path, settings: Settings, script: str) -> tuple[float, str]:
    (found,) = task_folder.find(folder)
    trial = Trial(found, settings)
    try:
        await trial.open()
        done = await trial.box.run(script, timeout_s=20)
        assert done.exit_code == 0, done
        await trial.judge()
        return trial.grades[-1].rewards["reward"], trial.grades[-1].log
    finally:
        await trial.close()


ANSWERED = JUDGE.replace("/logs/artifacts/answer.txt", "/app/answer.txt")
LINKS = [
    ("echo 8675309 >answer; ln -s answer answer.txt; ln -s /nowhere no", 1.0, ""),
    ("ln -s /tests/expected.txt answer.txt", 0.0, "/app/answer.txt"),
    ("ln -s ../tests answers; ln -s answers/expected.txt answer.txt", 0.0, "/app/answer.txt"),
    ("mkdir /tmp/a; ln -s / /tmp/a/b; ln -s /tmp/a/b/tests/expected.txt answer.txt", 0.0, "/app/answer.txt"),
    (
        "printf '#!/bin/sh\\necho 8675309' >/tests/test.sh; ln -s /proc/self/cwd/expected.txt answer.txt",
        0.0,
        "/app/",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "reward", "removed"), LINKS)
async def test_a_shared_verifier_sees_no_link_to_its_tests(
    tmp_path: Path, script: str, reward: float, removed: str
) -> None:
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    task(tmp_path / "task", tests=ANSWERED, **{"tests/expected.txt": "8675309\n"})
    found, log = await judged(tmp_path / "task", Settings(image="none"), script)
    assert found == reward
    assert removed in log
    assert ("as links to them" in log) == bool(removed)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_nor_does_that_of_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    with images.used("podman", monkeypatch):
        where = f'[environment]\ndocker_image = "{images.NAME}"\nworkdir = "/app"\n'
        task(tmp_path / "task", toml=where, tests=ANSWERED, **{"tests/expected.txt": "8675309\n"})
        (tmp_path / "task" / "environment" / "Dockerfile").unlink()
        settings = Settings(shared=shared)
        for script in (
            "ln -s /tests/expected.txt answer.txt",
            "mkdir -p /opt/a; ln -s /tests /opt/a/b; ln -s /opt/a a; ln -s a/b/expected.txt answer.txt",
            "mkdir /x; echo echo 1 >/x/test.sh; ln -s /x /tests; ln -s /tests/expected.txt answer.txt",
        ):
            found, log = await judged(tmp_path / "task", settings, script)
            assert found == 0.0
            assert "removed before the tests, as links to them: /app/answer.txt" in log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "reward", "left_out"),
    [
        (WRITE.format(8675309), 1.0, ""),
        (WRITE.format(1), 0.0, ""),
        ("cd /logs/artifacts; mkdir a; echo 8675309 >a/b; ln -s ../a/b a/c; ln -s a/c answer.txt", 1.0, ""),
        ("ln -s /tests/expected.txt /logs/artifacts/answer.txt", 0.0, "logs/artifacts/answer.txt"),
        ("ln -s ../../tests/expected.txt /logs/artifacts/answer.txt", 0.0, "logs/artifacts/answer.txt"),
        (
            "cd /logs/artifacts; mkdir -p a/b; ln -s ../.. a/b/up"
            "; ln -s a/b/up/../../tests/expected.txt answer.txt",
            0.0,
            "logs/artifacts/answer.txt",
        ),
        ("rmdir /logs/artifacts; ln -s /tests /logs/artifacts; :", 0.0, "logs/artifacts"),
    ],
)
async def test_no_link_leads_to_the_expected_answer(
    tmp_path: Path, script: str, reward: float, left_out: str
) -> None:
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    task(tmp_path / "task", toml=SEPARATE, tests=JUDGE, **{"tests/expected.txt": "8675309\n"})
    found, log = await judged(tmp_path / "task", Settings(image="none"), script)
    assert found == reward
    assert left_out in log
    assert ("left out of the artifacts" in log) == bool(left_out)


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """An image with tests of its own."""
    with images.used("podman", monkeypatch) as engine:
        name = f"{images.NAME}-verifier"
        (tmp_path / "root" / "tests").mkdir(parents=True)
        test = tmp_path / "root" / "tests" / "test.sh"
        test.write_text(JUDGE.replace("/tests/expected.txt", "/tests/answer"))
        test.chmod(0o755)
        (tmp_path / "root" / "tests" / "answer").write_text("42\n")
        assert images.imported(engine, name, tmp_path / "root") == ""
        yield name


FORGED = """mkdir -p /evil/tests /usr/local/bin
printf '#!/bin/sh\\necho 1 >/logs/verifier/reward.txt\\n' >/evil/tests/test.sh; chmod 755 /evil/tests/test.sh
printf '#!/bin/sh\\nexec /bin/tar -cf /tmp/.harbor-export -C /evil tests\\n' >/usr/local/bin/tar
chmod 755 /usr/local/bin/tar
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_root_of_an_image_forges_no_archive(tmp_path: Path, verifier: str) -> None:
    toml = f'[environment]\ndocker_image = "{images.NAME}"\n{SEPARATE}'
    task(tmp_path / "task", toml=f'{toml}[verifier.environment]\ndocker_image = "{verifier}"\n')
    assert (await judged(tmp_path / "task", Settings(), WRITE.format(42)))[0] == 1.0
    reward, log = await judged(tmp_path / "task", Settings(), FORGED)
    assert (reward, "as links out of them and no files are: tests/, tests/test.sh" in log) == (0.0, True)


def names(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
        return {one.name: one for one in opened.getmembers()}


@pytest.mark.parametrize("kind", ["gnu", "posix", "ustar"])
def test_what_tar_writes_is_read(tmp_path: Path, kind: str) -> None:
    app = tmp_path / "app"
    deep = app / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    (deep / "é\n").write_bytes(b"x" * 1000)
    (app / "empty").touch()
    os.link(deep / "é\n", app / "same")
    (app / "run").write_text("#!/bin/sh\n")
    (app / "run").chmod(0o4755)
    (app / "link").symlink_to("run")
    (app / "out").symlink_to("/etc/passwd")
    os.mkfifo(app / "pipe")
    (tmp_path / "other").write_text("-")
    if kind != "ustar":
        (deep / ("f" * 200)).write_text("long")
    told = ["tar", f"--format={kind}", "-cf", "-", "-C", str(tmp_path), "./app", "other", "app/run"]
    made, left_out = artifact_archive.only(
        subprocess.run(told, check=True, capture_output=True).stdout, ["/app"]
    )
    assert sorted(left_out) == ["./app/out", "./app/pipe", "other"]
    (tmp_path / "there").mkdir()
    subprocess.run(["tar", "-xf", "-", "-C", str(tmp_path / "there")], input=made, check=True)
    before, after = (
        {
            str(one.relative_to(top)): one
            for one in (top / "app").rglob("*")
            if one.name not in ("out", "pipe")
        }
        for top in (tmp_path, tmp_path / "there")
    )
    assert before.keys() == after.keys()
    for name, one in before.items():
        assert after[name].is_symlink() == one.is_symlink()
        assert after[name].is_dir() or after[name].read_bytes() == one.read_bytes()
    assert (after["app/same"].stat().st_nlink, after["app/run"].stat().st_mode & 0o7777) == (2, 0o755)
    assert after["app/run"].stat().st_mtime == int(before["app/run"].stat().st_mtime)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"") -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, len(content)
    return made.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


@pytest.mark.parametrize(
    "forged",
    [
        entry("../app/a"),
        entry("app/../tests/a"),
        entry("apple"),
        entry("tests/test.sh"),
        entry("app/a", tarfile.SYMTYPE, "../tests"),
        entry("app/a", tarfile.SYMTYPE, "/tests"),
        entry("app/a", tarfile.SYMTYPE, "b/../../tests"),
        entry("app/a", tarfile.SYMTYPE, ""),
        entry("app", tarfile.SYMTYPE, "tests"),
        entry("app/a", tarfile.LNKTYPE, "tests/test.sh"),
        entry("app/a", tarfile.CHRTYPE),
        entry("app/a", tarfile.BLKTYPE),
        entry("app/a", tarfile.GNUTYPE_SPARSE),
    ],
)
def test_forged_members_are_left_out(forged: bytes) -> None:
    made, left_out = artifact_archive.only(forged + entry("/app//./b", content=b"-"), ["app/"])
    assert list(names(made)) == ["app/b"]
    assert len(left_out) == 1


def test_no_file_is_written_through_a_link() -> None:
    through = entry("app/a", tarfile.SYMTYPE, "b") + entry("app/a/c") + entry("app/b", tarfile.DIRTYPE)
    made, left_out = artifact_archive.only(through, ["/app"])
    assert (list(names(made)), left_out) == (["app/a/c", "app/b"], ["app/a"])


@pytest.mark.slow
def test_broken_archives_are_refused_and_end() -> None:
    for broken in (b"x" * 600, entry("app/a", content=b"-" * 600)[:-600]):
        with pytest.raises(ValueError, match=r"cannot be read|in the middle"):
            artifact_archive.only(broken, ["/app"])
    draw = random.Random(1)
    whole = entry("app/" + "n" * 200, content=b"1 a=b\n9 size=7\n" * 40) + entry(
        "app/l", b"x", "", b"9 path=a\n"
    )
    begun_s = time.thread_time()
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.choice(b"\0-0179xLK5 \xff\x80")
        with suppress(ValueError):
            assert all(
                one.startswith("app") for one in names(artifact_archive.only(bytes(changed), ["app"])[0])
            )
    assert time.thread_time() - begun_s < 15
