"""Which Lean checks proofs, as the setting `SETTING` says; one interface for all.

- the address of a server (`gym_resources.lean.server`): ``http://HOST:8000/verify``
- ``repl``, the default: processes on this machine with warm headers (`gym_resources.lean.repl_pool`)
- ``lake``: a new process on this machine for each proof

The last two need the folder of `LEAN`: ``elan`` with the toolchain, ``project`` with Mathlib, ``repl`` with
the built REPL.
"""

from __future__ import annotations

import os
from pathlib import Path

from anyio.lowlevel import RunVar
from gym_runtime import Asset, UsageError
from gym_runtime.assets import folder

from gym_resources.lean import server
from gym_resources.lean.lean_messages import Checked
from gym_resources.lean.program import Program
from gym_resources.lean.repl_pool import Pool

SETTING = "GYM_LEAN"
FOLDER = "GYM_LEAN_FOLDER"
VERSION = "v4.9.0"
LEAN = Asset(
    name=f"lean-{VERSION}",
    description="Lean 4 with Mathlib and the REPL",
    licence="Apache-2.0",
    urls={
        "elan.tar.gz": "https://github.com/leanprover/elan/releases/download/v3.1.1/"
        "elan-x86_64-unknown-linux-gnu.tar.gz"
    },
    size_bytes=16 << 20,
    setting=FOLDER,
    install=f"""
set -e
export ELAN_HOME="$PWD/elan" PATH="$PWD/elan/bin:$PATH"
tar -xzf elan.tar.gz
./elan-init -y --no-modify-path --default-toolchain leanprover/lean4:{VERSION}
[ -d repl ] || git clone --depth 1 --branch {VERSION} https://github.com/leanprover-community/repl repl
(cd repl && lake build)
mkdir -p project
cd project
echo leanprover/lean4:{VERSION} >lean-toolchain
cat >lakefile.lean <<'END'
import Lake
open Lake DSL
package «project»
require mathlib from git "https://github.com/leanprover-community/mathlib4" @ "{VERSION}"
END
lake update
lake exe cache get
""",
)
_pools: RunVar[dict[tuple[str, str], Pool]] = RunVar("gym_resources_lean_pools")


def require() -> None:
    """Check that proofs can be checked.

    Raises:
        UsageError: the setting is unknown, or Lean is not installed; with the remedy.
    """
    setting = _setting()
    if setting not in ("repl", "lake"):
        return
    missing = [path for path in (_lake(), _repl()) if not path.is_file()]
    if missing:
        raise UsageError(
            f"there is no Lean: {missing[0]} is missing. gym-runtime prepare --assets math_formal_lean "
            f"installs it, {FOLDER} names a folder that has it, {SETTING}=http://HOST:8000/verify a server"
        )


async def check(program: Program, timeout_s: float) -> Checked:
    """What Lean says of a program within ``timeout_s`` seconds, and which axioms its theorem needs.

    Raises:
        ResourceError: Lean could not check it, for a reason that no proof causes.
        UsageError: as `require`.
    """
    setting = _setting()
    if setting not in ("repl", "lake"):
        return await server.check(setting, program, timeout_s, os.environ.get(server.KEY, ""))
    require()
    place = str(folder(LEAN).resolve())
    try:
        pools = _pools.get()
    except LookupError:
        pools = dict[tuple[str, str], Pool]()
        _pools.set(pools)
    pool = pools.get((setting, place)) or pools.setdefault(
        (setting, place), Pool(_command(), place, fresh=setting == "lake")
    )
    return await pool.check(program, timeout_s)


async def close() -> None:
    """End the processes of this event loop that are idle."""
    for pool in _pools.get(dict[tuple[str, str], Pool]()).values():
        await pool.close()


def _setting() -> str:
    setting = os.environ.get(SETTING, "") or "repl"
    if setting not in ("repl", "lake") and not setting.startswith(("http://", "https://")):
        raise UsageError(f"{SETTING}={setting} is unknown; it is repl, lake, or the address of a server")
    return setting


def _command() -> list[str]:
    place = folder(LEAN).resolve()
    path = f"PATH={place}/elan/bin:/usr/local/bin:/usr/bin:/bin"
    project = f"--dir={place}/project"
    return ["/usr/bin/env", f"ELAN_HOME={place}/elan", path, str(_lake()), project, "env", str(_repl())]


def _lake() -> Path:
    return folder(LEAN).resolve() / "elan/bin/lake"


def _repl() -> Path:
    return folder(LEAN).resolve() / "repl/.lake/build/bin/repl"
