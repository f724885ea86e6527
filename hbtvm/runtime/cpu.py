"""Instruction sets of this machine's CPU, found without a compiler."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable
from pathlib import Path

from hbtvm.errors import PackageError

RELEVANT_FEATURES = (
    "avx", "avx2", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vbmi",
    "avx512vl", "avx512vnni", "avx512vpopcntdq", "bmi2", "fma", "popcnt", "sse4.2",
)  # fmt: skip
"""Instruction sets that a kernel can use, by LLVM's names; packages list those they were built for."""

LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi2", "fma"),
    "x86-64-v2": ("sse4.2", "popcnt"),
    "x86-64": (),
}
"""LLVM's names of x86-64 levels, the newest first, and what each adds of `RELEVANT_FEATURES`."""

_WIDE = frozenset(("avx512f", "avx512bw", "avx512vl"))

_LINUX_NAMES = {
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "sse4.2": "sse4_2",
}


def vector_bits(features: Collection[str]) -> int:
    """Return the width of the vectors that kernels use on a CPU with these instruction sets."""
    if _WIDE.issubset(features):
        return 512
    return 256 if "avx2" in features else 128


def host_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """Return this machine's instruction sets out of `RELEVANT_FEATURES`; None where they are unknown."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        text = cpuinfo.read_text()
    except OSError:
        return None
    flags = next(
        (line.split(":", 1)[1].split() for line in text.splitlines() if line.startswith("flags")), None
    )
    if flags is None:
        return None
    return frozenset(name for name in RELEVANT_FEATURES if _LINUX_NAMES.get(name, name) in flags)


def missing_features(needed: list[str]) -> list[str]:
    """Return which of these instruction sets this machine lacks (none where that is unknown)."""
    have = host_features()
    return [] if have is None else sorted(set(needed) - have)


def check_cpu(features: Iterable[str]) -> None:
    """Check that this machine's CPU has the instruction sets that code was compiled for.

    Raises
    ------
    PackageError
        Names those that it lacks.
    """
    lacking = missing_features(list(features))
    if lacking:
        have = host_features() or frozenset()
        level = next(name for name, needs in LEVELS.items() if have.issuperset(needs))
        raise PackageError(
            f"the model was compiled for a CPU with {', '.join(lacking)}, which this machine lacks; "
            f'compile it again on this machine, or with --target \'{{"kind": "llvm", "mcpu": "{level}"}}\'.'
        )
