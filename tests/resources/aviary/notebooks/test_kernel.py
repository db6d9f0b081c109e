"""The kernel of a notebook: what its cells see, and what they cannot reach."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from gym_resources.aviary_episodes import bixbench
from gym_resources.aviary_episodes.kernel_inside import COPIED_BYTES
from gym_resources.aviary_episodes.notebook_kernel import OUTPUT_CHARACTERS, Kernel
from gym_runtime.errors import ResourceError

pytestmark = pytest.mark.anyio


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    place = tmp_path / "capsule"
    (place / "more").mkdir(parents=True)
    (place / "a.csv").write_text("x,y\n1,2\n")
    (place / "more" / "large.bin").write_bytes(bytes(COPIED_BYTES + 1))
    for folder in (*tmp_path.parents[:2], tmp_path):
        folder.chmod(0o755)
    return place


@pytest.fixture
async def kernel(capsule: Path) -> Any:
    made = Kernel(capsule)
    yield made
    await made.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_figures_are_named_once(kernel: Kernel) -> None:
    """As a notebook shows those of a cell, and then begins new ones."""
    drawn = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show(); plt.figure(figsize=(2, 1)); 1 / 0"
    # On a busy machine the import takes seconds.
    said = await kernel.run(drawn, 100)
    assert "ZeroDivisionError" in said
    assert "<Figure size 640x480 with 1 Axes>\n<Figure size 200x100 with 0 Axes>" in said
    assert await kernel.run("plt.get_fignums()", 20) == "[]"


@pytest.mark.slow
async def test_a_kernel_is_a_notebooks(kernel: Kernel) -> None:
    cells = {
        "x = 20": "",
        "x + 1": "21",
        "print('one'); 2": "one\n2",
        "!cat a.csv": "x,y\n1,2",
        "%%bash\necho $((x + 5))": "5",
        "%matplotlib inline": "",
        "await __import__('asyncio').sleep(0); x": "20",
        "exit()": "",
        "x": "20",
        "open('a.csv', 'a').write('3,4') and None": "",
        "open('a.csv').read()": "'x,y\\n1,2\\n3,4'",
        "len(open('more/large.bin', 'rb').read())": str(COPIED_BYTES + 1),
        "open('new', 'w').close()": "",
    }
    assert {code: await kernel.run(code, 20) for code in cells} == cells
    for code, problem in {
        "1 / 0": "ZeroDivisionError: division by zero",
        "x =": "SyntaxError: invalid syntax",
        "open('more/large.bin', 'wb')": "Read-only file system",
        "input()": "EOFError",
        "\0": "null bytes",
        "'\ud800'": "",
    }.items():
        assert problem in await kernel.run(code, 20)
    assert json.loads(await kernel.files(".", 10, hidden=False)) == {
        "files": ["a.csv", "new"],
        "directories": {"more": {"files": ["large.bin"]}},
    }
    assert json.loads(await kernel.files("more", 10, hidden=True)) == {"files": ["large.bin"]}
    assert "left out" in json.loads(await kernel.files(".", 1, hidden=True))
    for folder in ("..", "/etc", "more/../..", "nope"):
        assert (await kernel.files(folder, 10, hidden=True)).startswith("There is no folder")


async def test_what_runs_in_a_kernel_reaches_nothing_else(
    kernel: Kernel, capsule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    examples = Path(bixbench.__file__).parents[1] / "bixbench_aviary.jsonl"
    assert "FileNotFoundError" in await kernel.run(f"open({str(examples)!r})", 20)
    assert "Read-only" in await kernel.run(f"open({str(capsule / 'a.csv')!r}, 'w')", 20)
    assert await kernel.run("import os; [v for v in os.environ.values() if 'secret' in v]", 20) == "[]"
    reach = "import socket; socket.create_connection(('1.1.1.1', 53), 2)"
    assert "Network is unreachable" in await kernel.run(reach, 20)
    assert (capsule / "a.csv").read_text() == "x,y\n1,2\n"


@pytest.mark.slow
async def test_a_kernel_that_will_not_stop_is_killed_and_the_next_cell_gets_a_new_one(kernel: Kernel) -> None:
    await kernel.run("x = 1; open('a.csv', 'w').close()", 20)
    assert "TimeoutError" in await kernel.run("import time; time.sleep(60)", 0.5)
    assert await kernel.run("x", 20) == "1"
    stubborn = "while True:\n  try:\n    time.sleep(60)\n  except BaseException: pass"
    assert "all variables are lost" in await kernel.run(stubborn, 0.5)
    assert "NameError" in await kernel.run("x", 20)
    assert await kernel.run("open('a.csv').read()", 20) == "'x,y\\n1,2\\n'"
    assert "all variables are lost" in await kernel.run("import os; os._exit(0)", 20)


async def test_a_kernel_ends_with_all_that_it_started(capsule: Path) -> None:
    kernel, mark = Kernel(capsule), f"612.{os.getpid()}"

    def runs() -> bool:
        return any(mark in (one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))

    try:
        assert await kernel.run(f"import subprocess; p = subprocess.Popen(['sleep', '{mark}'])", 20) == ""
        with anyio.fail_after(15):
            while not runs():
                await anyio.sleep(0.02)
    finally:
        await kernel.close()
    assert not runs()


async def test_a_long_output_is_shortened_in_the_middle(kernel: Kernel) -> None:
    shown = await kernel.run("print('a' + 10**6 * '.' + 'z')", 20)
    assert len(shown) < OUTPUT_CHARACTERS + 100
    assert shown.startswith("a..")
    assert "characters left out" in shown


async def test_folders_deeper_than_a_list_can_be_are_no_failure(kernel: Kernel) -> None:
    await kernel.run("import os\nfor _ in range(3000):\n  os.mkdir('d'); os.chdir('d')", 20)
    assert "RecursionError" in await kernel.files(".", 10**6, hidden=True)


async def test_without_isolation_a_kernel_has_the_same_files(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    assert await kernel.run("open('a.csv').read(), len(open('more/large.bin').read())", 20) == str(
        ("x,y\n1,2\n", COPIED_BYTES + 1)
    )


async def test_a_capsule_that_cannot_be_read_is_a_failure_with_the_remedy(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "nowhere")
    with pytest.raises(ResourceError, match=r"kernel does not start|sandbox does not start"):
        await kernel.run("1", 20)
    await kernel.close()
