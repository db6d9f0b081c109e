"""What a model's patch may change, and what it may not."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from gym_resources.swe.patches import MAX_BYTES, checked, difference, protected, split
from tables import table

GOOD = difference({"shop/cart.py": "a\nb\nc\n"}, {"shop/cart.py": "a\nB\nc\n"})


def changing(path: str, *, header: str = "") -> str:
    """A patch that changes one line of a file."""
    return f"diff --git a/{path} b/{path}\n{header}--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"


def git(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )


@table(
    "path",
    [
        *("tests/test_cart.py", "shop/tests/cart.py", "test_cart.py", "shop/cart_test.py", "e2e/a.py"),
        *("conftest.py", "shop/conftest.py", "sitecustomize.py", "shop/usercustomize.py", "pytest.ini"),
        *("setup.cfg", "tox.ini", "pyproject.toml", "evil.pth", "shop/__pycache__/cart.pyc", "shop/fast.so"),
        *("pytest.py", "_pytest/main.py", "src/pluggy/__init__.py", "unittest/case.py", ".git/config"),
        *(
            ".gitattributes",
            "../outside.py",
            "a/../../b.py",
            "/etc/passwd",
            ".GIT/hooks/pre-commit",
            "bin/python",
        ),
    ],
)
def test_tests_and_their_runner_and_what_is_outside_cannot_be_changed(path: str) -> None:
    for patch in (changing(path), changing(path).partition("\n")[2]):
        found = checked(GOOD + patch if patch.startswith("diff") else patch)
        assert found.text == (GOOD if patch.startswith("diff") else "")
        assert found.ignored == (path,)


@pytest.mark.parametrize("path", ["shop/cart.py", "contest.py", "latest/protest.py", "docs/attestation.rst"])
def test_other_files_can_be_changed(path: str) -> None:
    assert checked(changing(path)).text == changing(path)


def test_what_the_perfect_patch_changes_may_be_changed() -> None:
    patch = changing("setup.cfg") + changing("tox.ini")
    found = checked(patch, gold=changing("setup.cfg"))
    assert (found.text, found.ignored) == (changing("setup.cfg"), ("tox.ini",))
    assert checked(changing("../x"), gold=changing("../x")).problem


@table(
    "patch",
    [
        "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+/etc\n",
        "diff --git a/sub b/sub\nnew file mode 160000\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+commit\n",
        "diff --git a/x b/x\nindex 1234567..89abcde 120000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+/etc\n",
        "diff --git a/shop/cart.py b/conftest.py\nsimilarity index 100%\nrename from shop/cart.py\n"
        "rename to conftest.py\n",
        "diff --git a/tests/a.py b/shop/a.py\nsimilarity index 100%\nrename from tests/a.py\n"
        "rename to shop/a.py\n",
        "diff --git a/x b/x\nindex 0..1\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n",
        'diff --git "a/\\056./x" "b/\\056./x"\n--- "a/\\056./x"\n+++ "b/\\056./x"\n@@ -1 +1 @@\n-a\n+b\n',
        "diff --git a/x b/x\nnew file mode 100644\n",
        "--- shop/pytest.py\n+++ shop/pytest.py\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_links_submodules_renames_and_binaries_are_left_out(patch: str) -> None:
    kept = checked(patch).text
    assert not kept or ("new file mode 100644" in patch and split(kept)[0].paths == ("x",))


@pytest.mark.parametrize("between", ["", "-- \n2.39\n", "text\n"])
def test_a_second_file_cannot_hide_behind_a_hunk(between: str, tmp_path: Path) -> None:
    hidden = changing("conftest.py").partition("\n")[2]
    found = checked(changing("cart.py") + between + hidden)
    assert (found.text, found.ignored) == (changing("cart.py"), ("conftest.py",))
    for name in ("cart.py", "conftest.py"):
        (tmp_path / name).write_text("a\n")
    git(tmp_path, "init", "-q")
    assert git(tmp_path, "apply", "-", stdin=found.text).returncode == 0
    assert [(tmp_path / name).read_text() for name in ("cart.py", "conftest.py")] == ["b\n", "a\n"]


@pytest.mark.parametrize("prefix", ["x", "zzz", "#b"])
def test_paths_are_read_as_git_reads_them(prefix: str, tmp_path: Path) -> None:
    patch = f"--- {prefix}/pytest/a.py\n+++ {prefix}/pytest/a.py\n@@ -1 +1 @@\n-a\n+b\n"
    (tmp_path / "pytest").mkdir()
    (tmp_path / "pytest/a.py").write_text("a\n")
    git(tmp_path, "init", "-q")
    assert git(tmp_path, "apply", "--check", "-", stdin=patch).returncode == 0  # git would change it
    assert checked(patch).ignored == ("pytest/a.py",)


@pytest.mark.parametrize(
    "header",
    [
        "--- a/conftest.py 2020-01-01 00:00:00\n+++ b/conftest.py 2020-01-01 00:00:00\n",
        "--- a/x y/conftest.py  2020-01-01\n+++ b/x y/conftest.py 2020-01-01 00:00:00.5 +0100\n",
        'diff --git "a/conftest.py" "b/conftest.py"\nindex 1..2 100644\n',
        'diff --git "a/conftest.p\\171" "b/conftest.p\\171"\nindex 1..2 100644\n',
    ],
)
def test_no_header_hides_the_path_that_git_reads_in_it(header: str, tmp_path: Path) -> None:
    patch = header + "@@ -1 +1 @@\n-a\n+b\n"
    (tmp_path / "x y").mkdir()
    for folder in (tmp_path, tmp_path / "x y"):
        (folder / "conftest.py").write_text("a\n")
    git(tmp_path, "init", "-q")
    assert git(tmp_path, "apply", "--check", "-", stdin=patch).returncode == 0  # git would change it
    assert not checked(patch).text


def test_a_path_may_have_spaces() -> None:
    assert checked(changing("docs/how to/set up.md")).text


def test_a_patch_has_a_bounded_size() -> None:
    assert "longer" in checked("+" * (MAX_BYTES + 1)).problem
    assert "files" in checked("".join(changing(f"f{n}.py") for n in range(501))).problem
    assert checked("no patch").problem


@table(
    "unit",
    [
        "diff --git a/x b/x\n",
        "--- a\n",
        "--- a/x\n+++ b/x\n",
        "@@ -1 +1 @@\n",
        "+\n",
        "a/",
        "@@ -1,999999999 +1,9 @@\n ",
    ],
)
def test_every_text_is_read_in_linear_time(unit: str) -> None:
    text = (GOOD + unit * (MAX_BYTES // len(unit)))[:MAX_BYTES]
    start_s = time.thread_time()
    checked(text, gold=GOOD)
    assert time.thread_time() - start_s < 5


def test_differences_are_patches_that_git_applies(tmp_path: Path) -> None:
    lines = "1\x0c2\n3\x0b\n\x1c4\u2028\n5\x85\n"  # where git sees no end of a line, and Python does
    before = {"a.py": "one\ntwo", "gone.py": "x\n", "form\nfeed.py"[:4]: f"{lines}6\n", "b.py": "\u20287\n"}
    after = {"a.py": "one\nTWO", "new/b.py": "y\n", "form": f"{lines}six\n", "b.py": "\u2028seven\n"}
    git(tmp_path, "init", "-q")
    for path, text in before.items():
        (tmp_path / path).write_text(text)
    kept = checked(difference(before, after))
    assert not kept.ignored
    done = git(tmp_path, "apply", "-", stdin=kept.text)
    assert done.returncode == 0, done.stderr
    found = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    assert found == after


def test_a_path_belongs_to_the_tests_by_whole_words() -> None:
    assert protected("a/testing/b.py")
    assert not protected("src/_pytest_helpers.py".replace("_pytest_helpers", "contested"))
