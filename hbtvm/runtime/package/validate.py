"""What has to hold of a package beyond the types of its fields: tables and parts that fit each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

from hbtvm.codec import Via
from hbtvm.runtime.cpu import architecture
from hbtvm.runtime.package.contents import check_contents
from hbtvm.runtime.package.signature import Dtype
from hbtvm.runtime.recursive.check import check_entry

if TYPE_CHECKING:
    from hbtvm.runtime.package.entry import KernelEntry, Package

_MOST = 2**40
"""No count is as large as this."""

_COUNTS = {
    "trees": {"trees": 1, "nodes": 0, "leaves": 0, "depth": 0},
    "linear": {"numbers": 0, "categories": 0, "entries": 0},
    "columns": {},
    "network": {},
}
"""By operator, counts and their least values."""


def _check_facts(given: dict[str, Any]) -> dict[str, Any]:
    """Check what `hbtvm.runtime.package.entry.anchor_facts` tells."""
    operator = given.get("operator")
    if not isinstance(operator, str) or operator not in _COUNTS:
        raise ValueError(f"operator is {operator!r:.100}")
    for name, least in {"n_features": 1, "n_outputs": 1, **_COUNTS[operator]}.items():
        value = given.get(name)
        if type(value) is not int or not least <= value < _MOST:
            raise ValueError(f"{name} is {value!r:.100}")
    base: Any = given.get("base_score")
    divisor: Any = given.get("divisor")
    operators: Any = given.get("operators")
    if not isinstance(base, list) or not all(map(_is_finite, [divisor, *base])) or divisor <= 0:
        raise ValueError(f"base_score is {base!r:.100}, divisor {divisor!r:.100}")
    if len(base) != given["n_outputs"] or given.get("compare_dtype") not in get_args(Dtype):
        raise ValueError(f"{len(base)} base scores, compare_dtype {given.get('compare_dtype')!r:.100}")
    if operator == "network" and not (
        isinstance(operators, list) and all(isinstance(one, str) for one in operators)
    ):
        raise ValueError(f"operators are {operators!r:.100}")
    return given


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _check_target(target: dict[str, Any]) -> dict[str, Any]:
    """Check a machine, as `hbtvm.compiler.targets.target` describes it."""
    if target.get("kind") == "cuda":
        if not re.fullmatch(r"sm_\d{2,3}[af]?", str(target.get("arch"))):
            raise ValueError(f"the target's arch is {target.get('arch')!r:.100}")
        return target
    if not re.fullmatch(r"[0-9a-z_]{1,20}", architecture(target)):
        raise ValueError(f"the target's arch is {target.get('arch')!r:.100}")
    features: Any = target.get("features")
    plain = isinstance(features, list) and all(isinstance(one, str) for one in features)
    if not plain or not all(re.fullmatch(r"[0-9a-z._-]{1,40}", one) for one in features):
        raise ValueError(f"the target's features are {features!r:.100}")
    return target


def _check_cuda_version(version: str) -> str:
    if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", version):
        raise ValueError(f"the version of a CUDA toolkit is {version!r:.100}")
    return version


Facts = Annotated[Mapping[str, Any], Via(Mapping[str, Any], None, _check_facts)]
Target = Annotated[Mapping[str, Any], Via(Mapping[str, Any], None, _check_target)]
CudaVersion = Annotated[str, Via(str, None, _check_cuda_version)]


def check_kernel(kernel: KernelEntry) -> None:
    """Check a kernel's tables by its signature.

    Raises
    ------
    ValueError
        If something is wrong.
    """
    if not kernel.library:
        raise ValueError("a kernel's library is empty")
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
    on_gpu = package.target.get("kind") == "cuda"
    package.parts.check(inputs.n_features)
    if package.parts.reads_texts and not package.text_library:
        raise ValueError("it reads texts, but has no library for them")
    if package.frame is not None and (table is None or table.names is None):
        raise ValueError(f"it gives data frames of {package.frame} without names")
    if package.recursion is not None:
        check_entry(package.recursion, on_gpu)
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
    if output.n_outputs != forest["n_outputs"]:
        raise ValueError(f"n_outputs is {forest['n_outputs']} and {output.n_outputs}")
    if not on_gpu and package.kernels and not package.executor:
        raise ValueError("it has no executor for a CPU")
    if any((kernel.launch is not None) != on_gpu for kernel in package.all_kernels):
        raise ValueError(f"a kernel is not for {package.target.get('kind', 'a CPU')!r:.100}")
    dtypes = {kernel.dtype for kernel in package.kernels}
    if dtypes != {kernel.dtype for kernel in package.kernels if kernel.missing}:
        raise ValueError("no kernel takes missing values")
    for kernel in package.kernels:
        signature = kernel.signature
        if signature.outputs != output.n_outputs:
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


def _check_columns(columns: Sequence[int], there: int) -> None:
    if not columns or max(columns) >= there:
        raise ValueError(f"columns are {columns!r:.100} of {there}")
