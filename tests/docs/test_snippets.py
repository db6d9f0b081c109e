"""Every command and snippet of README.md and docs/ is run, as it stands there; see `pages` for how.

Filled in are only the addresses of engines (stub engines answer) and of the metrics (another program may have
that port), and the id of a run for ``RUN``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from docs.notebook import Notebook, notebook
from docs.pages import GENERATED, PAGES, README, ROOT, Block, blocks, commands, first_command
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BIN = Path(sys.executable).parent
ENGINES = ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1")
METRICS = "http://127.0.0.1:9464/metrics"
EXTRAS = {
    "reasoning_gym": "reasoning-gym",
    "math_with_judge": "math-verify",
    "skyrl_gym": "skyrl-gym",
    "trl": "trl",
}
PROGRAMS = {"claude-code", "codex", "langgraph", "mini-swe-agent", "verifiers"}
"""Pages that play rollouts with another program, which is in a folder of the page's name."""
FILES = (ROOT / "docs" / "reference" / "files.md").read_text()
RUN = {"bash", "python", "json", "toml", "text"}


class Reader:
    """Somebody who follows a page in their own folder."""

    def __init__(self, folder: Path, engines: Mapping[str, str], stack: ExitStack) -> None:
        self._folder = folder
        self._addresses = dict(engines)
        self._stack = stack
        self._run = ""
        self.said = ""
        self._notebook: Notebook | None = None
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": engines.get(ENGINES[0], ENGINES[0]),
            "OPENAI_API_KEY": "any",
            "NO_COLOR": "1",
        }

    def follow(self, block: Block) -> None:
        if block.title:
            path = self._folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._filled_in(block.text))
        match block.language:
            case "bash":
                self.said = ""
                for command in commands(block):
                    self.type(self._filled_in(command))
            case "python" if block.remark == "cell":
                if self._notebook is None:
                    opened = notebook(self._folder, self._environment)
                    self._notebook = self._stack.enter_context(opened)
                shown = self._notebook.run(self._filled_in(block.text))
                self.said = "\n".join(output["text/plain"] for output in shown)
            case "python" if not block.title:
                (self._folder / "snippet.py").write_text(block.text)
                self.type("python snippet.py")
            case "json":
                for line in block.text.splitlines() if block.title.endswith(".jsonl") else [block.text]:
                    json.loads(line)
            case "toml":
                tomllib.loads(block.text)
            case "text" if not block.title:
                self._compare(block.text)
            case _:
                pass

    def type(self, command: str) -> None:
        for module, extra in EXTRAS.items():
            if f" {module}" in command or f'"{extra}:' in command:
                pytest.importorskip(module, reason=f"needs pip install 'gym-runtime[{extra}]'")
        stays = re.match(r"gym-runtime (start|gateway|gym-server|view|metrics)\b", command)
        if stays and "--print-config" not in command:
            self._stack.enter_context(self._staying(command))
            return
        done = subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=100 * busy(),
            env=self._environment,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        self.said += done.stdout + done.stderr
        if command.startswith("gym-runtime publish"):
            self._run = done.stdout.split()[-1]

    @contextmanager
    def _staying(self, command: str) -> Generator[None]:
        """A command that stays while the page is followed; what it says of its address is remembered."""
        with subprocess.Popen(
            shlex.split(f"{command} --port 0" if command == "gym-runtime metrics" else command),
            cwd=self._folder,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        ) as process:
            assert process.stdout is not None
            while not (found := re.search(r"(nats|http)://\S+", line := process.stdout.readline())):
                assert line, f"{command} ended before it was ready"
            if found[1] == "nats":  # another command that joins prints it without its password
                self._environment.setdefault("GYM_NATS_URL", found.group())
            elif command == "gym-runtime metrics":
                self._addresses[METRICS] = found.group()
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(30 * busy()) in (0, -signal.SIGTERM), command

    def _filled_in(self, text: str) -> str:
        for written, real in self._addresses.items():
            text = text.replace(written, real)
        return re.sub(r"\bRUN\b", self._run, text) if self._run else text

    def _compare(self, shown: str) -> None:
        said = "\n".join(" ".join(line.split()) for line in self.said.splitlines())
        for line in filter(None, (" ".join(line.split()) for line in shown.splitlines())):
            pattern = ".*".join(map(re.escape, re.split(r" ?… ?", line)))
            assert re.search(pattern, said), f"not in the output: {line}\n\n{self.said}"


def followed(page: Path) -> list[Block]:
    """What is tried of a page. The README's first two commands are run by .ci/run."""
    found = [block for block in blocks(page) if not block.shown_only]
    if page == README:
        first_two = [block for block in found if block.language == "bash"][:2]
        found = [block for block in found if block not in first_two]
    return found


WITH_SNIPPETS = [
    page
    for page in PAGES
    if not page.read_text().startswith(GENERATED) and any(block.language in RUN for block in followed(page))
]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path) -> None:
    if page.stem in PROGRAMS:
        installed = Path(os.environ.get("GYM_TEST_PROGRAMS", "/nowhere"), page.stem)
        if not installed.is_dir():
            pytest.skip(f"needs the program {page.stem}: .ci/programs installs it and runs this test")
        (tmp_path / page.stem).symlink_to(installed)
    text = page.read_text()
    models = ",".join(sorted(set(re.findall(r"(?:openai|vllm)/([\w./-]+)", text))))
    rows = (ROOT / "resources" / "gym_resources" / "mcqa.jsonl").read_text()
    if page != README:  # it shows all that it uses
        (tmp_path / "rows.jsonl").write_text(rows)
    with ExitStack() as stack:
        engines = {
            address: stack.enter_context(stub_engine.running("--models", models)).url
            for number, address in enumerate(ENGINES)
            if address in text or (models and number == 0)
        }
        reader = Reader(tmp_path, engines, stack)
        for block in followed(page):
            reader.follow(block)
    for path in tmp_path.glob("results/*.jsonl"):
        # As bytes: of text, `splitlines` would also split at separators that a model has written.
        for row in map(json.loads, path.read_bytes().splitlines()):
            undocumented = [name for name in row.get("_gym", ()) if f"`{name}`" not in FILES]
            assert not undocumented, f"docs/reference/files.md does not name {undocumented} of _gym"


def test_ci_runs_the_two_commands_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert 'bash -euc "$(readme_command 1)"' in script
    assert script.rstrip().endswith('bash -euc "$(readme_command 2)"')
    first, second = (block.text for block in [one for one in blocks(README) if one.language == "bash"][:2])
    assert "gym-runtime run" in first
    assert ".venv/bin/pytest" in second


@pytest.mark.soak
def test_first_command(tmp_path: Path) -> None:
    for module, extra in (("xllamacpp", "embedded"), ("langdetect", "instruction-following")):
        pytest.importorskip(module, reason=f"needs pip install 'gym-runtime[{extra}]'")
    with ExitStack() as stack:
        reader = Reader(tmp_path, {}, stack)
        reader.type(first_command())
    assert "of 20 rollouts" in reader.said
    assert len((tmp_path / "results" / "xstest-instruction_following.jsonl").read_text().splitlines()) == 20
