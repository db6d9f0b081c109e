"""How the tests of known repositories run in their images, and what these are called.

Rows that bring scripts of their own need nothing of this. The tables are those of SWE-bench 4.1 for the
repositories of SWE-bench Verified, and of SWE-Gym for its own. SWE-bench's package is not used, because it
needs the clients of two container services, `datasets` and a dozen more, to read a log.
Source: SWE-bench (github.com/SWE-bench/SWE-bench, MIT) and SWE-Gym (github.com/SWE-Gym/SWE-Gym, MIT).
"""

from __future__ import annotations

import re
import shlex

from gym_resources.swe.patches import split

DIRECTORY = "/testbed"
ACTIVATE = "source /opt/miniconda3/bin/activate\nconda activate testbed\n"
PYTEST = "pytest -rA"
_CASE = re.compile(r"\[case ([^\]\n]{1,200})\]")
_COMMANDS = {
    "dask/dask": "pytest -n0 -rA --color=no",
    "django/django": "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1",
    "facebookresearch/hydra": "pytest -rA --tb=long",
    "mwaskom/seaborn": "pytest --no-header -rA",
    "pandas-dev/pandas": "pytest -rA --tb=long",
    "pydantic/pydantic": "pytest -rA --tb=short -vv -o console_output_style=classic --no-header",
    "sphinx-doc/sphinx": "tox --current-env -epy39 -v --",
    "sympy/sympy": "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose",
    "conan-io/conan": "PYTHONPATH=$PYTHONPATH:$PWD pytest -n0 -rA",
    "getmoto/moto": "pytest -n0 -rA",
}
_OLD_ASTROPY = "pytest -rA -vv -o console_output_style=classic --tb=no"
_DJANGO_1_9 = "./tests/runtests.py --verbosity 2"
_ENGLISH = ("export LANG=en_US.UTF-8", "export LC_ALL=en_US.UTF-8", "export LANGUAGE=en_US:en")
_ENCODED = (*_ENGLISH, "export PYTHONIOENCODING=utf8")
_LOCALE = "sed -i '/en_US.UTF-8/s/^# //g' /etc/locale.gen && locale-gen"
# Packages cannot be fetched there: what an installation needs is in the image.
_PIP = "python -m pip install --no-index --no-deps --no-build-isolation"
_SETUP = "python setup.py install"
_INSTALLED = {
    "scikit-learn/scikit-learn": f"{_PIP} --no-use-pep517 -e .",
    "psf/requests": f"{_PIP} .",
    **dict.fromkeys(
        (
            *("astropy/astropy", "matplotlib/matplotlib", "mwaskom/seaborn", "pallets/flask"),
            *("pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest", "sphinx-doc/sphinx", "sympy/sympy"),
        ),
        f"{_PIP} -e .",
    ),
}
_TEXT_SUFFIXES = (
    ".json",
    ".png",
    "csv",
    ".txt",
    ".md",
    ".jpg",
    ".jpeg",
    ".pkl",
    ".yml",
    ".yaml",
    ".toml",
)


def image(instance_id: str, subset: str) -> str:
    """The name of an instance's image.

    >>> image("django__django-10973", "verified")
    'docker.io/swebench/sweb.eval.x86_64.django_1776_django-10973:latest'
    """
    name = instance_id.lower()
    if subset in ("gym", ""):
        return f"docker.io/xingyaoww/sweb.eval.x86_64.{name.replace('__', '_s_')}:latest"
    return f"docker.io/swebench/sweb.eval.x86_64.{name.replace('__', '_1776_')}:latest"


def setup_script(base_commit: str, test_patch: str) -> str:
    """Restores the files of the tests, and applies the row's test patch from the standard input."""
    paths = [path for change in split(test_patch) for path in change.paths]
    restored = [
        f"git checkout {shlex.quote(base_commit)} -- {shlex.quote(path)} 2>/dev/null" for path in paths
    ]
    return "\n".join([f"cd {DIRECTORY} || exit 125", *restored, "git apply -v -", ""])


def test_script(repository: str, test_patch: str, version: str) -> str:
    """Installs the repository again, and runs the tests of the files that the test patch changes.

    Both outputs are one, as in the logs that the names of the tests were read from.
    """
    command = _command(repository, version)
    if repository == "python/mypy":  # its cases stand in data files, and are chosen by their names
        cases = " or ".join(dict.fromkeys(_CASE.findall(test_patch)))
        return f"exec 2>&1\n{ACTIVATE}cd {DIRECTORY}\n{command} -k {shlex.quote(cases)}\n"
    paths = [change.paths[-1] for change in split(test_patch) if change.paths]
    directives = [path for path in dict.fromkeys(paths) if not path.endswith(_TEXT_SUFFIXES)]
    if repository == "django/django":
        directives = [
            path.removeprefix("tests/").removesuffix(".py").replace("/", ".") for path in directives
        ]
    tests = " ".join((command, *map(shlex.quote, directives)))
    return "\n".join(
        ("exec 2>&1", f"{ACTIVATE}cd {DIRECTORY}", *_preparations(repository, version), tests, "")
    )


def _command(repository: str, version: str) -> str:
    number = _number(version)
    if repository == "astropy/astropy":
        return _OLD_ASTROPY if number < (3,) else PYTEST
    if repository == "django/django" and number == (1, 9):
        return _DJANGO_1_9
    return _COMMANDS.get(repository, PYTEST)


def _preparations(repository: str, version: str) -> tuple[str, ...]:
    """What runs before the tests; a failure of it is left to the tests."""
    number = _number(version)
    if repository == "django/django" and number:
        own = _ENCODED if (1, 7) <= number < (3,) else (_LOCALE, *_ENGLISH) if (3,) <= number < (4,) else ()
        return (*own, _SETUP if number < (3,) else f"{_PIP} -e .")
    if repository == "matplotlib/matplotlib" and () < number < (3,):
        return ("python setup.py build", _SETUP)
    installed = _INSTALLED.get(repository)
    return (installed,) if installed else ()


def _number(version: str) -> tuple[int, ...]:
    """The numbers of a version; empty if the text holds no version.

    >>> _number("v5.3"), _number("2022.03")
    ((5, 3), (2022, 3))
    """
    return tuple(int(part) for part in re.findall(r"[0-9]{1,6}", version[:40]))
