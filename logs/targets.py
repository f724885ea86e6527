"""When two machines count as the same for a tuning log."""

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
"""Instruction sets that change which schedule is fastest, by LLVM's names."""

MULTIPROCESSORS = {70: 80, 75: 40, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 120: 188}
"""Multiprocessors of a GPU of which only the architecture is known, by compute capability.

Those of the data centers' usual ones: V100, T4, A100, A40, L40, H100 (SXM, and H200), B200, RTX PRO 6000."""

_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


def target_key(target: Mapping[str, Any]) -> str:
    """Name the machine by what a schedule can notice, as canonical JSON.

    Kept are ``kind``, ``arch``, ``cores`` (or TVM's ``num-cores``; a GPU's multiprocessors)
    and, sorted, those of ``features`` (or TVM's ``mattr``) that are in `FEATURES`; a feature
    may carry LLVM's sign, and one that is switched off (``-avx2``) counts as absent. All else
    is dropped: the CPU's marketing name (``mcpu``: in virtual machines LLVM often gets it
    wrong), ``model``, ``tag``, ``keys``, ``host``, the operating system in a triple, and
    features such as ``aes``. So a log survives a new spelling of the same target, and still
    never lends an AVX-512 schedule to a machine without AVX-512. A GPU without ``cores`` has
    the usual number of its architecture, so that what was measured on one is found for the
    architecture alone.
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
    """Return how many a GPU of an architecture, such as ``"sm_90"``, usually has; None if not known."""
    match = re.fullmatch(r"sm_([0-9]{2,3})[af]?", str(arch))
    return None if match is None else MULTIPROCESSORS.get(int(match.group(1)))


def _features(given: object) -> set[str]:
    names = given.split(",") if isinstance(given, str) else given
    # The target may come from a line of a log that somebody else wrote: never fatal.
    if not isinstance(names, Iterable):
        return set()
    return {str(name).strip().removeprefix("+") for name in names} & FEATURES
