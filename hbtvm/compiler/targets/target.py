"""Targets: the properties of machines that schedules depend on.

A target is described by a small JSON-able dict that goes into logs and packages::

    {"kind": "llvm", "mcpu": "znver5", "features": ["avx2", "avx512f", ...], "vector_bits": 512}

`features` lists only the instruction sets that schedules can use, so that machines
that differ in others share their logs.
"""

from __future__ import annotations

import json
from typing import Any, cast

import tvm

from hbtvm.compiler.targets import cuda as cuda_target
from hbtvm.errors import TargetError
from hbtvm.runtime.cpu import LEVELS, RELEVANT_FEATURES, vector_bits
from hbtvm.schedules.workload import Target


def resolve(target: str | dict[str, Any] = "cpu", device: int = 0) -> Target:
    """Return the description of a target.

    Parameters
    ----------
    target
        ``"cpu"`` for this machine, ``"cuda"`` for its GPU; or a TVM target: a JSON object as text, or
        a dict such as ``{"kind": "llvm", "mcpu": "haswell"}`` or ``{"kind": "cuda", "arch": "sm_90"}``.
    device
        The number of the GPU that ``"cuda"`` stands for.

    Raises
    ------
    TargetError
        If the target cannot be understood, is neither a CPU nor a CUDA GPU, or is not here.
    """
    if isinstance(target, str):
        if target in ("cpu", "llvm", "native"):
            return _host()
        if target == "cuda":
            return cuda_target.device(device)
        given = _parse(target)
    else:
        given = dict(target)
    if "vector_bits" in given and "features" in given:
        return cast(Target, given)
    kind = given.get("kind")
    if kind == "cuda":
        return cuda_target.describe(given)
    if kind != "llvm":
        raise TargetError(
            f"target kind {kind!r} is not supported; expected 'cpu', 'cuda', "
            '{"kind": "llvm", ...} or {"kind": "cuda", ...}'
        )
    mcpu = given.get("mcpu")
    if mcpu is None:
        return _host()
    triple = str(tvm.get_global_func("target.llvm_get_system_triple")())
    if not tvm.get_global_func("target.llvm_is_valid_cpu")(mcpu, triple):
        raise TargetError(
            f'LLVM knows no CPU named {mcpu!r}; try "x86-64-v3" (AVX2) or "x86-64-v4" (AVX-512)'
        )
    extra = [name.removeprefix("+") for name in given.get("mattr", ()) if not name.startswith("-")]
    return _describe(mcpu, {*_features(mcpu), *extra})


def tvm_target(target: Target, pack_scalars: bool = True) -> Any:
    """Return the `tvm.target.Target` of a description.

    Parameters
    ----------
    pack_scalars
        Whether LLVM may combine similar scalar operations into vectors.
    """
    if target["kind"] == "cuda":
        return tvm.target.Target(cuda_target.tvm_fields(target), host=tvm.target.Target({"kind": "llvm"}))
    made = {"kind": "llvm", "mcpu": target["mcpu"], "mattr": [f"+{name}" for name in target["features"]]}
    if not pack_scalars:
        made["cl-opt"] = ["-vectorize-slp:bool=0"]
    return tvm.target.Target(made)


def _parse(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            parsed: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError as error:
            raise TargetError(f"target is not valid JSON ({error}): {text}") from None
        return parsed
    if text.startswith(("cuda", "rocm", "vulkan", "metal", "opencl")):
        raise TargetError(f"target {text!r} is not supported; expected 'cpu', 'cuda' or a TVM target as JSON")
    raise TargetError(
        f"target {text!r} is not known; expected 'cpu', 'cuda' or a TVM target such as "
        '\'{"kind": "llvm", "mcpu": "x86-64-v3"}\''
    )


def _host() -> Target:
    """Return the description of this machine. In a virtual machine, only the CPU's name may be wrong."""
    found = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    features = {str(name) for name, on in found.items() if on}
    name = str(tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName")())
    relevant = set(RELEVANT_FEATURES)
    if not (_features(name) & relevant) <= features:
        name = next(level for level in LEVELS if _features(level) <= features | {"64bit", "64bit-mode"})
    return _describe(name, features)


def _features(mcpu: str) -> set[str]:
    """Return the instruction sets that a CPU has, by LLVM's names."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu})
    found = tvm.get_global_func("target.llvm_get_cpu_features")(target)
    return {str(name) for name in found}


def _describe(mcpu: str, features: set[str]) -> Target:
    relevant = [name for name in RELEVANT_FEATURES if name in features]
    bits = vector_bits(features)
    return {"kind": "llvm", "mcpu": mcpu, "features": relevant, "vector_bits": bits}
