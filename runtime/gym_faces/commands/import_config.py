"""``import-config``: configurations of NeMo Gym as files and commands of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from gym_runtime.cli import AsJson, Output, terminal
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.escapes import shown
from gym_runtime.files import write_whole

from gym_faces.nemo_gym_configs import translated, yaml_files


def import_config(
    *files: Path,
    settings: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    output: Output = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: AsJson = False,
) -> int:
    """Read YAML configurations of NeMo Gym into files and commands here.

    Writes DIR/models.toml with the policy and the judges, and DIR/SERVER.toml for each resources server with
    its own settings; prints the commands that run the configuration, and a line for each part that could
    not be carried over. Keys are not copied.

    Args:
        files: Configurations, as NeMo Gym's --config takes them, and its env.yaml; later ones win.
        settings: NAME=VALUE, a value of the configuration by its dotted path, such as
            policy_model_name=Qwen/Qwen3-4B; repeatable.
        output: The folder of the written files; by default the first file's name.
        overwrite: Replace files that are there.
    """
    if not files:
        raise UsageError("say which: gym-runtime import-config FILE.yaml")
    folder = output or Path(files[0].stem)
    overrides = dict(_override(one) for one in settings)
    imported = translated.translate(yaml_files.read(files, overrides), [*files], folder)
    for name, near in yaml_files.unknown(files, overrides, translated.OPTIONS):
        hint = f"; did you mean '{near}'?" if near else ""
        remark = translated.Remark(f"--set {name}", f"no file has such a name, or refers to it{hint}")
        imported.remarks[:] = [remark, *(one for one in imported.remarks if one.where != name)]
    there = next((path for path in imported.files if path.exists()), None)
    if there and not overwrite:
        raise UsageError(f"{there} exists: --overwrite, or another folder with -o DIR")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in imported.files.items():
            write_whole(path, iter([text.encode()]))
        for path in translated.stale(folder, imported):
            terminal.note(
                f"{path} is of an earlier import, and not of this one: remove it if nothing uses it"
            )
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from None
    if json:
        terminal.print_json(
            {
                "files": [str(path) for path in imported.files],
                "commands": imported.commands,
                "not_carried_over": imported.remarks,
            }
        )
    else:
        _show(imported)
    # A configuration without a command has become nothing that runs; the remarks say why.
    return 0 if imported.commands or imported.files else 1


def _override(text: str) -> tuple[str, object]:
    name, separator, value = text.lstrip("+").partition("=")
    if not separator or not name:
        raise UsageError(f"--set {text}: write it as NAME=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except UNREADABLE:
        return name, value


def _show(imported: translated.Imported) -> None:
    console = terminal.output()
    for line in (*(f"wrote {path}" for path in imported.files), *imported.lines):
        console.print(shown(line), soft_wrap=True, highlight=False, markup=False)
    if imported.remarks:
        terminal.note("not carried over:")
    for remark in imported.remarks:
        text = shown(f"  {remark.where}: {remark.what}")
        terminal.errors().print(text, soft_wrap=True, highlight=False, markup=False)
