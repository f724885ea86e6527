"""Targets: the properties of machines that schedules depend on.

A target is described by a small JSON-able dict that goes into logs and packages::

    {"kind": "llvm", "mcpu": "znver5", "features": ["avx2", "avx512f", ...], "vector_bits": 512}

`features` lists only the instruction sets that schedules can use, so that machines that differ in others
share their logs. CPUs of architectures other than x86-64 also have ``arch``::

    {"kind": "llvm", "mcpu": "cortex-a72", "arch": "aarch64", "features": ["neon"], "vector_bits": 128}
"""

from __future__ import annotations

import json
from typing import Any, cast

import tvm

from hbtvm.compiler.targets import cuda as cuda_target
from hbtvm.compiler.targets import opencl as opencl_target
from hbtvm.errors import TargetError
from hbtvm.runtime.cpu import ARCHITECTURES, LEVELS, architecture, host_architecture, known_as, vector_bits
from hbtvm.schedules.workload import Target


def resolve(target: str | dict[str, Any] = "cpu", device: int = 0) -> Target:
    """Return the description of a target.

    Raises `TargetError` if the target is invalid, of another kind, or this machine lacks it.

    `target`: ``"cpu"`` for this machine, ``"cuda"`` or ``"opencl"`` for its GPU; or a TVM target: a JSON
        object as text, or a dict such as ``{"kind": "llvm", "mcpu": "haswell"}``,
        ``{"kind": "cuda", "arch": "sm_90"}``, ``{"kind": "opencl"}`` or, for a CPU of another architecture,
        ``{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}``.
    `device`: the number of the GPU that ``"cuda"`` or ``"opencl"`` stands for.
    """
    if isinstance(target, str):
        if target in ("cpu", "llvm", "native"):
            return _host()
        if target == "cuda":
            return cuda_target.device(device)
        if target == "opencl":
            return opencl_target.device(device)
        fields = _parse(target)
    else:
        fields = dict(target)
    if "vector_bits" in fields and "features" in fields:
        return cast(Target, fields)
    kind = fields.get("kind")
    if kind == "cuda":
        return cuda_target.describe(fields)
    if kind == "opencl":
        return opencl_target.describe(fields)
    if kind != "llvm":
        raise TargetError(
            f"target kind {kind!r} is not supported; expected 'cpu', 'cuda', 'opencl', "
            '{"kind": "llvm", ...}, {"kind": "cuda", ...} or {"kind": "opencl", ...}'
        )
    return _cpu(fields)


def _cpu(fields: dict[str, Any]) -> Target:
    """Return the description of the CPU that a TVM target names."""
    mcpu = fields.get("mcpu")
    if mcpu is None and fields.get("mtriple") is None:
        return _host()
    arch = _architecture(fields.get("mtriple"))
    if mcpu is None:
        if arch == host_architecture():
            return _host()
        mcpu = _GENERIC[arch]
    if not tvm.get_global_func("target.llvm_is_valid_cpu")(mcpu, triple(arch)):
        advice = _ADVICE[arch]
        if any(
            tvm.get_global_func("target.llvm_is_valid_cpu")(mcpu, triple(architecture))
            for architecture in ARCHITECTURES
        ):
            advice += '; a CPU of another architecture is told with "mtriple"'
        raise TargetError(f"LLVM knows no CPU named {mcpu!r} for {arch}; try {advice}")
    extra = [name.removeprefix("+") for name in fields.get("mattr", ()) if not name.startswith("-")]
    return _describe(mcpu, {*_features(mcpu, arch), *extra}, arch)


_GENERIC = {"x86_64": "x86-64", "aarch64": "generic"}  # LLVM's names of the oldest CPU of an architecture

_ADVICE = {
    "x86_64": '"x86-64-v3" (AVX2) or "x86-64-v4" (AVX-512)',
    "aarch64": '"generic", "cortex-a72" or "neoverse-n1"',
}


def triple(arch: str) -> str:
    """Return LLVM's name of machines of an architecture."""
    return f"{arch}-linux-gnu"


def _architecture(mtriple: object) -> str:
    """Return the architecture of an LLVM target triple; without a triple, this machine's."""
    if mtriple is None:
        return host_architecture() if host_architecture() in ARCHITECTURES else "x86_64"
    name, *rest = str(mtriple).lower().split("-")
    arch = known_as(name)
    if arch not in ARCHITECTURES or "linux" not in rest or rest[-1] not in ("gnu", "linux"):
        known = " or ".join(f'"{triple(architecture)}"' for architecture in ARCHITECTURES)
        raise TargetError(f"target mtriple {mtriple!r} is not supported; expected {known}")
    return arch


_HOST = {"kind": "llvm"}  # of the functions that start kernels; packages have their launches instead


def tvm_target(target: Target, pack_scalars: bool = True, gather: bool = True) -> Any:
    """Return the `tvm.target.Target` of a description.

    `pack_scalars`: whether LLVM may combine similar scalar operations into vectors.
    `gather`: whether LLVM may combine loads of x86 into gathers.
    """
    if target["kind"] == "cuda":
        return tvm.target.Target(cuda_target.tvm_fields(target), host=_HOST)
    if target["kind"] == "opencl":
        return tvm.target.Target(opencl_target.tvm_fields(target), host=_HOST)
    attributes = [f"+{name}" for name in target["features"]]
    keys: dict[str, Any] = {"kind": "llvm", "mcpu": target["mcpu"], "mattr": attributes}
    if architecture(target) != "x86_64" or host_architecture() != "x86_64":
        keys["mtriple"] = triple(architecture(target))
    if architecture(target) == "aarch64":
        # LLVM would use it for single 128-bit instructions; packages don't list it.
        attributes += ["-sve", "-sme"]
    if not gather:
        attributes.append("+prefer-no-gather")
    if not pack_scalars:
        keys["cl-opt"] = ["-vectorize-slp:bool=0"]
    return tvm.target.Target(keys)


def _parse(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            parsed: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError as error:
            raise TargetError(f"target is not valid JSON ({error}): {text}") from None
        return parsed
    if text.startswith(("cuda", "rocm", "vulkan", "metal", "opencl")):
        raise TargetError(
            f"target {text!r} is not supported; expected 'cpu', 'cuda', 'opencl' or a TVM target as JSON"
        )
    raise TargetError(
        f"target {text!r} is not known; expected 'cpu', 'cuda', 'opencl' or a TVM target such as "
        '\'{"kind": "llvm", "mcpu": "x86-64-v3"}\''
    )


def _host() -> Target:
    """Return the description of this machine. In a virtual machine, only the CPU's name may be wrong."""
    switches = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    features = {str(name) for name, on in switches.items() if on}
    name = str(tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName")())
    arch = host_architecture()
    if arch not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise TargetError(f"kernels are compiled for {known}, but this machine is {arch}; name a target")
    if arch == "aarch64":
        features.add("neon")  # every such CPU that Linux runs on has it
    if not (_features(name, arch) & set(ARCHITECTURES[arch])) <= features:
        name = "generic"
        if arch == "x86_64":
            usual = features | {"64bit", "64bit-mode"}
            name = next(level for level in LEVELS if _features(level, arch) <= usual)
    return _describe(name, features, arch)


def _features(mcpu: str, arch: str) -> set[str]:
    """Return the instruction sets that a CPU has, by LLVM's names."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple(arch)})
    features = tvm.get_global_func("target.llvm_get_cpu_features")(target)
    return {str(name) for name in features}


def _describe(mcpu: str, features: set[str], arch: str) -> Target:
    relevant = [name for name in ARCHITECTURES[arch] if name in features]
    target: Target = {
        "kind": "llvm", "mcpu": mcpu, "features": relevant, "vector_bits": vector_bits(features)
    }  # fmt: skip
    return target if arch == "x86_64" else {**target, "arch": arch}
