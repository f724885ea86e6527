"""Sizes of modules and folders, where estimators are registered, and where a sigmoid is computed.

Lists such as `LONG` and `FULL` name present exceptions. They may only shrink: a test fails if an exception
grows, and if an entry is no longer needed. `test_imports` checks who imports whom.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("hbtvm", "tuning", "schedules", "cost_model", "logs")

MOST_LINES = 400
LONG: dict[str, int] = {}
"""Modules of more than `MOST_LINES` lines, each with its lines."""

MOST_MODULES = 15
FULL: dict[str, int] = {}
"""Folders of the product with more than `MOST_MODULES` modules, each with its modules."""

LIBRARIES = {
    "sklearn",
    "imblearn",
    "xgboost",
    "lightgbm",
    "catboost",
    "interpret",
    "quantile_forest",
    "pyspark",
    "ydf",
}
LIBRARIES |= {"category_encoders", "feature_engine", "skrub", "ngboost", "sksurv", "lifelines", "pyod"}
REGISTRY = "hbtvm/frontends/registry/"
"""The modules that register estimators, in dictionaries by a library and the row that documents them."""

POINTWISE = {"abs", "absolute", "exp", "expm1", "floor", "log", "log1p", "relu", "sigmoid", "sqrt", "tanh"}
TABLES = {"hbtvm/operators/pointwise.py", "hbtvm/strategies/network/functions.py"}
"""Modules with a table of pointwise functions: references in numpy and tensor expressions."""

TABLES_BESIDE = {
    "hbtvm/strategies/network/single.py": 1,
}
"""Modules with another table of pointwise functions."""

SIGMOIDS_BESIDE = {
    "cost_model/rank_loss.py": 1,  # of pairs: n exponentials give n^2 sigmoids
    "hbtvm/strategies/recursive/functions.py": 1,
}
"""Modules, beside those in `TABLES`, with functions that compute a sigmoid."""

SIGMOID_IN_C = {"hbtvm/native/epilogue/transforms.h": 2}
"""Files of C that compute a sigmoid: of double and of float."""


@cache
def files(*suffixes: str, folders: tuple[str, ...] = PRODUCT) -> dict[str, str]:
    """Return the text of every file with a suffix, by path; links are not followed."""
    found = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    return found


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in files(".py").items()}


def assert_shrinks(counts: Mapping[str, int], limit: int, exceptions: Mapping[str, int]) -> None:
    """Check that only exceptions exceed a limit, none has grown, and all of them still exceed it."""
    over = {name: count for name, count in counts.items() if count > limit}
    grown = {name: count for name, count in over.items() if count > exceptions.get(name, limit)}
    assert not grown, f"more than {limit}, or than the exception allows: {grown}"
    fine = exceptions.keys() - over.keys()
    assert not fine, f"no exceptions any more; remove them from the list: {fine}"


def test_modules_are_short() -> None:
    texts = {**files(".py", ".c", ".h"), **files(".py", folders=("tests", "benchmarks"))}
    assert len(texts) > 500
    assert_shrinks({name: len(text.splitlines()) for name, text in texts.items()}, MOST_LINES, LONG)


def test_folders_are_small() -> None:
    modules = (Path(name) for name in files(".py") if not name.endswith("__init__.py"))
    counts = Counter(module.parent.as_posix() for module in modules)
    assert len(counts) > 20
    assert_shrinks(counts, MOST_MODULES, FULL)


def test_estimators_are_named_in_the_registry_alone() -> None:
    counts = {name: sum(map(_is_estimator, ast.walk(tree))) for name, tree in trees().items()}
    assert sum(counts.pop(name) for name in list(counts) if name.startswith(REGISTRY)) > 10
    assert_shrinks(counts, 0, {})


def test_no_estimator_is_registered_twice() -> None:
    found: Counter[tuple[str, str]] = Counter()
    modules = [tree for name, tree in trees().items() if name.startswith(REGISTRY)]
    for node in (node for tree in modules for node in ast.walk(tree)):
        for key, rows in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if key is None or not _is_estimator(key):
                continue
            assert isinstance(rows, ast.Dict)
            library, _ = ast.literal_eval(key)
            names = [key.value for key in rows.keys if isinstance(key, ast.Constant)]
            found.update((library, name) for name in " ".join(map(str, names)).split())
    assert len(found) > 100
    assert [key for key, count in found.items() if count > 1] == []


def test_pointwise_functions_are_in_one_table_each() -> None:
    counts: Counter[str] = Counter()
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                counts[name] += len(keys & POINTWISE) >= 4
    assert_shrinks({name: count for name, count in counts.items() if name not in TABLES}, 0, TABLES_BESIDE)


def test_a_sigmoid_is_computed_once_in_each_language() -> None:
    counts: Counter[str] = Counter()
    for name, tree in trees().items():
        for node in ast.walk(tree):
            counts[name] += isinstance(node, ast.FunctionDef | ast.Lambda) and _computes_sigmoid(node)
    assert all(counts[name] == 1 for name in TABLES), counts
    assert_shrinks({name: count for name, count in counts.items() if name not in TABLES}, 0, SIGMOIDS_BESIDE)
    inverse = re.compile(r"1\.0f?\s*/\s*\(\s*1\.0f?\s*\+\s*exp")
    in_c = {name: len(inverse.findall(text)) for name, text in files(".c", ".h").items()}
    assert_shrinks(in_c, 0, SIGMOID_IN_C)


def _is_estimator(node: ast.AST) -> bool:
    """Return whether an expression is a pair of constants: library and class."""
    if not (isinstance(node, ast.Tuple) and len(node.elts) == 2):
        return False
    first, second = (part.value if isinstance(part, ast.Constant) else None for part in node.elts)
    return first in LIBRARIES and isinstance(second, str) and second not in LIBRARIES


def _computes_sigmoid(function: ast.FunctionDef | ast.Lambda) -> bool:
    """Return whether a function is called sigmoid and calculates, or contains ``1 / (1 + ...exp...)``."""
    calculations = [node for node in ast.walk(function) if isinstance(node, ast.BinOp)]
    if isinstance(function, ast.FunctionDef) and function.name.strip("_") == "sigmoid":
        return bool(calculations)
    return any(
        isinstance(node.op, ast.Div)
        and _is_one(node.left)
        and isinstance(node.right, ast.BinOp)
        and isinstance(node.right.op, ast.Add)
        and _is_one(node.right.left)
        and "exp" in ast.unparse(node.right.right)
        for node in calculations
    )


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1
