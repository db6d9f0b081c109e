"""What is read of Harbor's files: task files, reward files, and which files of a task count."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_resources.harbor_tasks import grading, task_file, task_folder
from gym_runtime.errors import UsageError
from resources.guests.harbor_folders import INSTRUCTION, STEPS, TOML, task

READ = (
    TOML,
    "",
    "unknown = 1\n",
    'version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "512M"\nallow_internet = false\n',
    '[environment]\nallow_internet = true\nnetwork_mode = "no-network"\nmemory = "1.5g"\nmemory_mb = 1536\n',
    '[verifier.environment]\ndocker_image = "a"\n',
    '[verifier]\nenvironment_mode = "separate"\ntimeout_sec = 5\nuser = 0\n',
    '[agent]\nuser = "a"\ntimeout_sec = 1.5\n',
    f'multi_step_reward_strategy = "final"\n{STEPS}',
    'artifacts = ["/a", { source = "b", exclude = ["*.o"] }]\n[environment]\nenv = { A = "${B:-c}" }\n',
)
REFUSED = (
    "[",
    '[agent]\ntimeout_sec = "long"\n',
    '[environment]\nnetwork_mode = "some"\n',
    '[environment]\nmemory = "2T"\n',
    '[environment]\nmemory = "2G"\nmemory_mb = 1\n',
    '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\n',
    'artifacts = ["/a/../b"]\n',
    "[[verifier.collect]]\ntimeout_sec = 5.0\n",
    '[[steps]]\nname = "a"\n[[steps]]\nname = "A"\n',
    '[[steps]]\nname = "a/b"\n',
)


def test_what_harborignore_names_stays_out(tmp_path: Path) -> None:
    where = task(tmp_path / "count", **{"tests/cache/a": "x", "tests/b.log": "x", "tests/c.py": "x"})
    (where / "tests" / ".harborignore").write_text("# comment\n\n*.log\ncache/\n")
    assert [path for path, _, _ in task_folder.files(where / "tests")] == ["c.py", "test.sh"]
    (where / "tests" / ".harborignore").write_text("!c.py\n")
    with pytest.raises(UsageError, match=r"'!c\.py' is not supported"):
        list(task_folder.files(where / "tests"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_task_files_are_read_as_harbor_reads_them() -> None:
    config = pytest.importorskip("harbor.models.task.config", reason="needs harbor: pip install harbor")
    for text in READ:
        ours, theirs = task_file.parse(text, "task.toml"), config.TaskConfig.model_validate_toml(text)
        assert ours.environment.network == theirs.environment.network_mode.value
        for size, megabytes in (
            (ours.environment.memory_bytes, theirs.environment.memory_mb),
            (ours.environment.storage_bytes, theirs.environment.storage_mb),
        ):
            assert size == (megabytes * 2**20 if megabytes else None)
        assert ours.verifier.timeout_sec == theirs.verifier.timeout_sec
        assert (ours.agent.user, ours.agent.timeout_sec) == (theirs.agent.user, theirs.agent.timeout_sec)
        assert ours.environment.env == theirs.environment.env
        assert [one.source for one in ours.artifacts_of(task_file.StepPart())] == [
            getattr(one, "source", one) for one in theirs.artifacts
        ]
    for text in REFUSED:
        with pytest.raises(UsageError):
            task_file.parse(text, "task.toml")
        with pytest.raises(ValueError, match=r"."):
            config.TaskConfig.model_validate_toml(text)


def test_reward_files() -> None:
    assert grading.read_rewards("txt", b" 1.5\n") == {"reward": 1.5}
    assert grading.read_rewards("json", b'{"a": -1, "b": 2.5}') == {"a": -1.0, "b": 2.5}
    wrong = {
        "txt": [b"inf", b"1 2", b"\xff", b""],
        "json": [b"{}", b"1", b'{"a": "1"}', b"[" * 9999, b'{"a": 1' + b"0" * 400 + b"}", b'{"a": null}'],
        "none": [b"1"],
    }
    for kind, contents in wrong.items():
        for content in contents:
            with pytest.raises(ValueError, match=r"."):
                grading.read_rewards(kind, content)
    assert INSTRUCTION.count("canary") == 2
