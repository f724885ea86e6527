"""The least time that a batch takes on this machine: for its products, and for the weights that levels read.

The products could run at the speed of torch's best product of matrices. A level waits for those below it,
so each but the first reads the recurrent weights again, as fast as a working set of their size can be read
(threads read shares of it, which stay in their own caches)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.recursive.cases import operations, recurrent_bytes
from benchmarks.recursive.structures import Linear

_SHAPES = ((512, 256, 1024), (1024, 512, 512), (1024, 512, 2048), (1024, 1024, 1024))
"""Rows, columns and sums of products that are tried: of sizes as levels of these models have, and larger."""

_SECONDS = 0.1
"""How long each speed is measured for."""

Limits = Mapping[str, Any]
"""``product``: operations a second; ``read``: bytes a second by bytes of the working set, as text."""


def measured(threads: int, sizes: Sequence[int], seconds: float = _SECONDS) -> dict[str, Any]:
    """Measure `Limits` with so many threads, for working sets of these bytes."""
    import torch

    from benchmarks.recursive.timing import library

    torch.set_num_threads(threads)
    best = 0.0
    for m, k, n in _SHAPES:
        a, b = torch.randn(m, k), torch.randn(k, n)
        best = max(best, 2 * m * k * n / _least(lambda a=a, b=b: a @ b, seconds))
    read = {}
    for size in sorted(set(sizes)):
        # Written to, or all its pages would be one page of zeros.
        x = np.ones(size // 4 + 16, np.float32)
        x = x[(-x.ctypes.data // 4) % 16 :][: size // 4]
        passes = max(1, int(seconds / 10 * 20e9 / size))
        took = min(library().read_seconds(x.ctypes.data, x.size, passes, threads) for _ in range(10))
        read[str(size)] = size / took
    return {"product": best, "read": read}


def _least(call: Any, seconds: float) -> float:
    call()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
    return least


def bound(model: str, hidden: int, linear: Linear, limits: Limits) -> float:
    """Seconds that a batch takes at least.

    Raises
    ------
    KeyError
        If reading was not measured for this model's weights.
    """
    size = recurrent_bytes(model, hidden)
    reading = (len(linear.levels) - 1) * size / limits["read"][str(size)]
    return float(max(operations(model, hidden, linear) / limits["product"], reading))
