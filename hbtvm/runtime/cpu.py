"""Instruction sets of this machine's CPU, read without a compiler."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hbtvm.errors import PackageError

RELEVANT_FEATURES = (
    "avx", "avx2", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vbmi",
    "avx512vl", "avx512vnni", "avx512vpopcntdq", "bmi2", "fma", "popcnt", "sse4.2",
)  # fmt: skip
"""Instruction sets that kernels can use, by LLVM's names; packages list those that they were built for."""

ARM_FEATURES = ("dotprod", "fullfp16", "neon")
"""The same for 64-bit Arm CPUs. Kernels for them use 128-bit vectors, hence no SVE."""

ARCHITECTURES = {"x86_64": RELEVANT_FEATURES, "aarch64": ARM_FEATURES}
"""Architectures that kernels can be compiled for, by Linux's names, and their instruction sets."""

_SPELLINGS = {"amd64": "x86_64", "arm64": "aarch64"}

LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi2", "fma"),
    "x86-64-v2": ("sse4.2", "popcnt"),
    "x86-64": (),
}
"""LLVM's names of x86-64 levels, newest first, and the `RELEVANT_FEATURES` that each adds."""

_WIDE = frozenset(("avx512f", "avx512bw", "avx512vl"))

_LINUX_NAMES = {
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "sse4.2": "sse4_2",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "neon": "asimd",
}


def host_architecture() -> str:
    """Return this machine's architecture, as Linux names it."""
    return known_as(platform.machine())


def known_as(name: str) -> str:
    """Return Linux's name of an architecture that has other spellings."""
    return _SPELLINGS.get(name.lower(), name.lower())


def architecture(target: Mapping[str, Any]) -> str:
    """Return the architecture of a CPU's description, which states it only if it is not x86-64."""
    return str(target.get("arch", "x86_64"))


def vector_bits(features: Collection[str]) -> int:
    """Return the width of the vectors that kernels use on a CPU with these instruction sets."""
    if _WIDE.issubset(features):
        return 512
    return 256 if "avx2" in features else 128


def host_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """Return this machine's instruction sets among `ARCHITECTURES`; None if unknown."""
    known = ARCHITECTURES.get(host_architecture())
    if known is None:
        return frozenset()
    try:
        text = cpuinfo.read_text()
    except OSError:
        return None
    lines = (line.split(":", 1) for line in text.splitlines() if line.startswith(("flags", "Features")))
    flags = next((values.split() for _, values in lines), None)
    if flags is None:
        return None
    return frozenset(name for name in known if _LINUX_NAMES.get(name, name) in flags)


def missing_features(target: Mapping[str, Any]) -> list[str]:
    """Return the architecture or instruction sets that this machine lacks to run a CPU's code.

    Only the architecture if it differs; no instruction sets if this machine's are unknown.
    """
    if architecture(target) != host_architecture():
        return [architecture(target)]
    have = host_features()
    return [] if have is None else sorted(set(target["features"]) - have)


def check_architecture(target: Mapping[str, Any]) -> None:
    """Check that this machine's architecture is that of a CPU's description.

    Raises `PackageError` if they differ; it names both.
    """
    wanted, here = architecture(target), host_architecture()
    if wanted != here:
        raise PackageError(
            f"the model was compiled for {wanted}, but this machine is {here}; compile it again on this "
            "machine, or for it with --target."
        )


def check_cpu(target: Mapping[str, Any]) -> None:
    """Check that this machine's CPU can run code that was compiled for a CPU's description.

    Raises `PackageError` if not; it names the architecture, or the missing instruction sets.
    """
    check_architecture(target)
    lacking = missing_features(target)
    if not lacking:
        return
    example = {"kind": "llvm", "mcpu": "generic", "mtriple": f"{host_architecture()}-linux-gnu"}
    if host_architecture() == "x86_64":
        have = host_features() or frozenset()
        level = next(name for name, needs in LEVELS.items() if have.issuperset(needs))
        example = {"kind": "llvm", "mcpu": level}
    raise PackageError(
        f"the model was compiled for a CPU with {', '.join(lacking)}, which this machine lacks; "
        f"compile it again on this machine, or with --target '{json.dumps(example)}'."
    )
