"""Which CPUs gather fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def gathers(target: Mapping[str, Any]) -> bool:
    """Return whether a CPU gathers faster than it loads lane by lane: Intel's from Sapphire Rapids on.

    LLVM may name them as an older CPU. Of those with wide vectors, only they and AMD's have bfloat16.
    """
    known = target.get("features", ())
    return "avx512bf16" in known and "avx512vbmi" in known and not str(target.get("mcpu")).startswith("znver")
