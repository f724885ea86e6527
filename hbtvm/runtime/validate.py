"""What has to hold of a package's manifest beyond its form: strict types, and facts that go together.

JSON's ``true`` is no number here, and neither is NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from hbtvm.runtime.contents import check_contents
from hbtvm.runtime.cpu import architecture
from hbtvm.runtime.entry import KernelEntry, Package
from hbtvm.runtime.parallelism import Parallel
from hbtvm.runtime.signature import Dtype

_MOST = 2**40
"""No count, and no number of rows, is as large as this."""

_MOST_THREADS = 2**16


def whole(values: Mapping[str, Any], name: str, least: int = 1, most: int = _MOST) -> int:
    """A whole number out of a manifest.

    Raises
    ------
    ValueError
        If it is anything else, or out of range.
    """
    value = values[name]
    if type(value) is not int or not least <= value < most:
        raise ValueError(f"{name} is {value!r:.100}")
    return value


def check_plain(manifest: Mapping[str, Any]) -> None:
    """Check types in all parts of a manifest but its kernels.

    Raises
    ------
    KeyError, TypeError, ValueError
        If one is wrong, or is missing.
    """
    for name in ("model", "input", "output", "anchor", "front", "target", "tuning"):
        _is(dict, manifest, name)
    _is(list, manifest, "kernels")
    for name in ("hbtvm", "tvm"):
        _is(str, manifest, name)
    for name in ("library", "class"):
        _is(str, manifest["model"], name)
    _is(list, manifest, "stages")
    for one in (manifest, *manifest["stages"]):
        _is(dict, one, "anchor")
        _is(list, one, "columns")
        _is(list, one, "kernels")
        _check_anchor(one["anchor"])
        _numbers(one["anchor"]["base_score"], "base_score")
        _numbers([one["anchor"]["divisor"]], "divisor")
    _check_input(manifest["input"])
    _check_output(manifest["output"])
    _check_target(manifest["target"])


_FACTS = {
    "trees": {"trees": 1, "nodes": 0, "leaves": 0, "depth": 0},
    "linear": {"numbers": 0, "categories": 0, "entries": 0},
    "neighbors": {"points": 1, "k": 1},
    "columns": {},
    "network": {},
}
"""By operator, counts and their least values."""


def _check_anchor(given: Mapping[str, Any]) -> None:
    operator = given["operator"]
    if not isinstance(operator, str) or operator not in _FACTS:
        raise ValueError(f"operator is {operator!r:.100}")
    for name, least in {"n_features": 1, "n_outputs": 1, **_FACTS[operator]}.items():
        whole(given, name, least)
    if operator == "neighbors":
        _check_neighbors(given)
    if operator == "network":
        _is(list, given, "operators")
        if not all(isinstance(one, str) for one in given["operators"]):
            raise ValueError(f"operators are {given['operators']!r:.100}")


def _check_neighbors(given: Mapping[str, Any]) -> None:
    if given["k"] > given["points"] or given["weights"] not in ("uniform", "distance"):
        raise ValueError(f"{given['k']} of {given['points']} points, weights {given['weights']!r:.100}")
    _is(list, given, "values")
    if len(given["values"]) != given["points"]:
        raise ValueError(f"{len(given['values'])} values of {given['points']} points")
    for one in given["values"]:
        _numbers(one, "values")
        if len(one) != given["n_outputs"]:
            raise ValueError(f"values are {one!r:.100}")


def _check_input(given: Mapping[str, Any]) -> None:
    whole(given, "n_features")
    names = given["feature_names"]
    if names is not None and not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
        raise ValueError(f"feature_names are {names!r:.100}")
    for name in (
        "allow_nan",
        "allow_inf",
        "numbers_are_categories",
        *(name for name in ("by_name", "rows_are_values", "takes_vectors") if name in given),
    ):
        _is(bool, given, name)
    value = given["missing_value"]
    if value is not None and type(value) not in (int, float):
        raise ValueError(f"missing_value is {value!r:.100}")
    _is(list, given, "categories")
    for pair in given["categories"]:
        column, known = pair
        if type(column) is not int or not isinstance(known, list):
            raise ValueError(f"categories are {pair!r:.100}")
        if not all(one is None or isinstance(one, str | int | float) for one in known):
            raise ValueError(f"categories of column {column} are {known!r:.100}")
    if len({column for column, _ in given["categories"]}) != len(given["categories"]):
        raise ValueError("categories are told twice of a column")


def _check_output(given: Mapping[str, Any]) -> None:
    whole(given, "n_outputs")
    _numbers([given[name] for name in ("scale", "raw_factor", "offset")], "scale, raw_factor, offset")
    label = given["label_dtype"]
    if label not in (None, "rows") and not (isinstance(label, str) and np.dtype(label).kind in "biuf"):
        raise ValueError(f"label_dtype is {label!r:.100}")
    _is(list, given, "outputs")
    _is(list, given, "classes")


def _check_target(target: Mapping[str, Any]) -> None:
    if target.get("kind") == "cuda":
        if not re.fullmatch(r"sm_\d{2,3}[af]?", str(target["arch"])):
            raise ValueError(f"the target's arch is {target['arch']!r:.100}")
        return
    if not re.fullmatch(r"[0-9a-z_]{1,20}", architecture(target)):
        raise ValueError(f"the target's arch is {target['arch']!r:.100}")
    features = target["features"]
    plain = isinstance(features, list) and all(isinstance(one, str) for one in features)
    if not plain or not all(re.fullmatch(r"[0-9a-z._-]{1,40}", one) for one in features):
        raise ValueError(f"the target's features are {features!r:.100}")


def check_kernel(kernel: KernelEntry) -> None:
    """Check a kernel by itself: its fields, and its tables by its signature.

    Raises
    ------
    ValueError
        If something is wrong.
    """
    if not isinstance(kernel.strategy, str) or not isinstance(kernel.config, dict):
        raise ValueError(
            f"a kernel's strategy is {kernel.strategy!r:.100}, its config {kernel.config!r:.100}"
        )
    given = {name: getattr(kernel, name) for name in ("rows", "threads", "grain")}
    for name in given:
        whole(given, name, most=_MOST_THREADS if name == "threads" else _MOST)
    if kernel.value_dtype not in get_args(Dtype) or kernel.parallel not in get_args(Parallel):
        raise ValueError(
            f"a kernel's value_dtype is {kernel.value_dtype!r}, its parallel {kernel.parallel!r}"
        )
    if type(kernel.missing) is not bool:
        raise ValueError(f"a kernel's missing is {kernel.missing!r:.100}")
    if kernel.seconds is not None:
        _numbers([kernel.seconds], "a kernel's seconds", above=0)
    signature = kernel.signature
    signature.check_tables(kernel.tables)
    check_contents(signature, kernel.tables)
    for argument in signature.tables:
        if argument.name == "value" and argument.dtype != kernel.value_dtype:
            raise ValueError(f"a kernel's leaf values are {argument.dtype}, not {kernel.value_dtype}")
    if kernel.launch is None:
        if signature.parts != 1 or len(signature.scores.shape) not in (3, 4):
            raise ValueError(
                f"a CPU's kernel leaves sums in {signature.parts} parts, {signature.scores.shape}"
            )
    else:
        kernel.launch.check([argument.shape for argument in signature.arguments])


def check_package(package: Package) -> None:
    """Check that the parts of a package fit each other.

    Raises
    ------
    KeyError, TypeError, ValueError
        If they don't.
    """
    forest, inputs, output = package.forest, package.input, package.output
    table, feeds = package.parts.table, package.parts.feeds
    hosted = table is not None
    bare = package.recursion is not None and _check_recursion(package)
    if (forest["operator"] == "columns") != hosted or bool(package.kernels) == (hosted or bare):
        raise ValueError(f"there are {len(package.kernels)} kernels of {forest['operator']}")
    if table is not None and len(table) != forest["n_outputs"]:
        raise ValueError(f"n_outputs is {forest['n_outputs']} and {len(table)}")
    read = len(feeds) or inputs.n_features
    if package.stages:
        read = _check_stages(package)
    elif package.columns:
        raise ValueError(f"columns are {package.columns!r:.100} of no matrix")
    if read != forest["n_features"]:
        raise ValueError(f"n_features is {forest['n_features']} and {read}")
    if not output.n_outputs == forest["n_outputs"] == len(forest["base_score"]):
        raise ValueError(f"n_outputs is {forest['n_outputs']} and {output.n_outputs}")
    if not forest["divisor"] > 0 or forest["compare_dtype"] not in get_args(Dtype):
        raise ValueError(f"divisor is {forest['divisor']!r}, compare_dtype {forest['compare_dtype']!r:.100}")
    on_gpu = package.target.get("kind") == "cuda"
    if any((kernel.launch is not None) != on_gpu for kernel in package.all_kernels):
        raise ValueError(f"a kernel is not for {package.target.get('kind', 'a CPU')!r:.100}")
    dtypes = {kernel.dtype for kernel in package.kernels}
    if dtypes != {kernel.dtype for kernel in package.kernels if kernel.missing}:
        raise ValueError("no kernel takes missing values")
    for kernel in package.kernels:
        signature = kernel.signature
        # Distances are not yet scores.
        made = forest["points"] if forest["operator"] == "neighbors" else output.n_outputs
        if signature.outputs != made:
            raise ValueError(f"a kernel has {signature.groups} groups of {signature.width} outputs")
        if signature.n_features != read:
            raise ValueError(f"a kernel takes rows of {signature.n_features} columns")


def _check_recursion(package: Package) -> bool:
    """Check what reads the readout of a recursive model; whether nothing does, and that is the result."""
    assert package.recursion is not None
    forest, width = package.forest, math.prod(package.recursion.shape)
    if package.input.n_features != width:
        raise ValueError(f"n_features is {package.input.n_features}, and the readout has {width} numbers")
    if package.parts.table is not None or package.parts.feeds or package.transforms:
        raise ValueError("a recursive model is in front of a pipeline")
    if not package.executor:
        raise ValueError("a recursive model has no executor for a CPU")
    if package.kernels:
        return False
    plain = forest["divisor"] == 1 and not any(forest["base_score"]) and not package.stages
    if not plain or forest["operator"] != "network" or forest["n_outputs"] != width:
        raise ValueError(f"no kernel makes {forest['n_outputs']} outputs of {width} columns")
    return True


def _check_stages(package: Package) -> int:
    """Check that each stage reads columns that are there; the number of those that the last kernels read."""
    there = package.n_read
    if package.forest["operator"] not in ("trees", "network"):
        raise ValueError(f"there are stages in front of {package.forest['operator']!r:.100}")
    for stage in package.stages:
        _check_columns(stage.columns, there)
        facts = stage.facts
        if facts["operator"] not in ("trees", "network") or facts["divisor"] != 1 or any(facts["base_score"]):
            raise ValueError(
                f"a stage computes {facts['operator']!r:.100}, divided by {facts['divisor']!r:.100}"
            )
        if facts["n_features"] != len(stage.columns):
            raise ValueError(f"a stage reads {len(stage.columns)} columns, not {facts['n_features']}")
        if not stage.kernels:
            raise ValueError("a stage has no kernel")
        for kernel in stage.kernels:
            signature = kernel.signature
            if (signature.n_features, signature.outputs) != (facts["n_features"], facts["n_outputs"]):
                raise ValueError(
                    f"a stage's kernel makes {signature.outputs} of {signature.n_features} columns"
                )
            if not kernel.missing:
                raise ValueError("a stage's kernel takes no missing values")
        there += facts["n_outputs"]
    _check_columns(package.columns, there)
    if not all(kernel.missing for kernel in package.kernels):
        raise ValueError("a kernel behind stages takes no missing values")
    return len(package.columns)


def _check_columns(columns: Sequence[Any], there: int) -> None:
    good = all(type(column) is int and 0 <= column < there for column in columns)
    if not columns or not good:
        raise ValueError(f"columns are {columns!r:.100} of {there}")


def _is(kind: type, values: Mapping[str, Any], name: str) -> None:
    if not isinstance(values[name], kind):
        raise ValueError(f"{name} is {values[name]!r:.100}")


def _numbers(values: Any, name: str, above: float = -math.inf) -> None:
    """Check a list of finite numbers."""
    good = isinstance(values, Sequence) and all(type(one) in (int, float) for one in values)
    if not good or not all(math.isfinite(one) and one > above for one in values):
        raise ValueError(f"{name} is {values!r:.100}")
