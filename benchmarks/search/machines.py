"""Transfer between machines: small spaces of the random candidates that ship.

One machine (AMD Zen 4) measured them for two targets, x86-64-v3 (AVX2) and x86-64-v4 (AVX-512).
"""

from __future__ import annotations

from benchmarks.search.replay import Recorded, space_of
from hbtvm.logs.query import contrast
from hbtvm.logs.record import Record

MACHINES = {"avx2": 256, "avx512": 512}
"""Sets of spaces, by the bits of the vectors."""

_FEWEST = 16  # candidates of a space
_STEP = 3  # of the spaces, sorted by workload, every third is searched: a search learns for seconds


def drawn_spaces(name: str) -> list[Recorded]:
    """Return spaces of a set in `MACHINES`, of 16 to 32 candidates each."""
    tasks: dict[tuple[str, str, str], list[Record]] = {}
    for record in contrast():
        if record.target["kind"] == "llvm" and record.target["vector_bits"] == MACHINES[name]:
            tasks.setdefault(record.task, []).append(record)
    spaces: list[Recorded] = []
    for number, (_, records) in enumerate(sorted(tasks.items())[::_STEP]):
        sizes = records[0].workload
        trees, leaves, rows = sizes["trees"] * sizes["groups"], sizes["leaves"], int(sizes["rows"])
        title = f"{records[0].strategy}-{trees}x{leaves}-{rows}-{name}-{number}"
        space = space_of(records, title, f"{trees}x{leaves}", rows, int(sizes["threads"]))
        if space is not None and len(space.costs) >= _FEWEST:
            spaces.append(space)
    return spaces
