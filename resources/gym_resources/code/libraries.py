"""What trusted test programs need: the modules that they import, and the test methods that they define."""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.metadata import packages_distributions

LIBRARIES = (
    *("beautifulsoup4", "blake3", "chardet", "cryptography", "dnspython", "docxtpl", "faker", "flask"),
    *("flask-login", "flask-mail", "flask-restful", "flask-wtf", "folium", "gensim", "geopandas", "geopy"),
    *("holidays", "keras", "keyring", "librosa", "lxml", "matplotlib", "mechanize", "natsort", "networkx"),
    *("nltk", "numba", "numpy", "opencv-python-headless", "openpyxl", "pandas", "pillow", "prettytable"),
    *("psutil", "pycryptodome", "pyquery", "pytesseract", "python-dateutil", "python-docx", "pytz"),
    *("python-http-client", "python-Levenshtein", "pyyaml", "regex", "requests", "requests-mock", "rsa"),
    *("scikit-image", "scikit-learn", "scipy", "seaborn", "selenium", "sendgrid", "shapely", "soundfile"),
    *("statsmodels", "sympy", "tensorflow", "textblob", "texttable", "werkzeug", "wikipedia", "wordcloud"),
    *("wordninja", "wtforms", "xlrd", "xlwt", "xmltodict"),
)
"""The distributions that BigCodeBench's tests import; a sandbox shows those that are installed."""


def test_methods(program: str) -> int:
    """How many test methods a test program has; 0 if it cannot be read."""
    try:
        classes = [node for node in ast.parse(program).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    names = [
        {node.name for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        for one in classes
    ]
    return sum(name.startswith("test") for methods in names for name in methods)


def missing(*programs: str) -> list[str]:
    """The modules that trusted programs import and that are not here."""
    found: set[str] = set()
    for program in programs:
        try:
            nodes = list(ast.walk(ast.parse(program)))
        except (SyntaxError, ValueError):  # a head without its body
            nodes = list(ast.walk(ast.parse(f"{program}\n    pass")))
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    tops = {name.partition(".")[0] for name in found}
    return sorted(top for top in tops if top not in sys.stdlib_module_names and top not in _installed())


@cache
def _installed() -> frozenset[str]:
    return frozenset(packages_distributions())
