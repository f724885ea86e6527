"""Identity of machines in tuning logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

FEATURES = frozenset(
    name
    for line in (
        "sse4.1 sse4.2 avx avx2 fma f16c bmi bmi2 popcnt gfni avxvnni avx10.1 avx10.2",
        "avx512f avx512bw avx512cd avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni",
        "avx512bitalg avx512vpopcntdq avx512bf16 avx512fp16 amx-tile amx-int8 amx-bf16 amx-fp16",
        "neon dotprod i8mm bf16 fullfp16 sve sve2 sme sme2",
        "v zvfh",
    )
    for name in line.split()
)
"""Instruction sets that affect which schedule is fastest, by LLVM's names."""

MULTIPROCESSORS = {70: 80, 75: 40, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 120: 188}
"""Usual number of multiprocessors of a GPU architecture, by compute capability.

From common data-centre GPUs: V100, T4, A100, A40, L40, H100 (SXM, and H200), B200, RTX PRO 6000."""

_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


def target_key(target: Mapping[str, Any]) -> str:
    """Return the properties of a machine that affect schedules, as canonical JSON.

    The key has ``kind``, ``arch``, ``cores`` (or TVM's ``num-cores``; a GPU's multiprocessors) and, sorted,
    the ``features`` (or TVM's ``mattr``) in `FEATURES`. A feature may carry LLVM's sign; a disabled feature
    (``-avx2``) counts as absent. The key drops everything else: the CPU's name (``mcpu``, which LLVM often
    gets wrong in virtual machines), ``model``, ``tag``, ``keys``, ``host``, the operating system in a triple,
    and features such as ``aes``. A log therefore survives another spelling of the same target, but never
    gives an AVX-512 schedule to a machine without AVX-512. A GPU without ``cores`` gets its architecture's
    usual number, so that a bare architecture matches measurements on such a GPU.
    """
    kept: dict[str, Any] = {
        "kind": str(target.get("kind", "")).lower(),
        "features": sorted(_features(target.get("features", target.get("mattr")))),
    }
    arch = str(target.get("arch") or "").lower()
    if arch:
        kept["arch"] = _ARCHITECTURES.get(arch, arch)
    cores = target.get("cores", target.get("num-cores"))
    if cores is None and kept["kind"] == "cuda":
        cores = multiprocessors(arch)
    if cores is not None:
        kept["cores"] = str(cores)
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def multiprocessors(arch: object) -> int | None:
    """Return the usual number for an architecture such as ``"sm_90"``; None if unknown."""
    match = re.fullmatch(r"sm_([0-9]{2,3})[af]?", str(arch))
    return None if match is None else MULTIPROCESSORS.get(int(match.group(1)))


def _features(features: object) -> set[str]:
    names = features.split(",") if isinstance(features, str) else features
    # Targets may come from untrusted logs: never raise.
    if not isinstance(names, Iterable):
        return set()
    return {str(name).strip().removeprefix("+") for name in names} & FEATURES
