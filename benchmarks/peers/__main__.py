"""hbtvm against its peers: ``python -m benchmarks.peers``.

Compares prediction times of hbtvm, the library that trained the model, and every other peer
that is installed (see PEERS.md beside this package), as measured on the Python call with a
contiguous float32 array (``--dtype float64``: of float64). It may be stopped at any time, and
carries on where it was stopped: finished cells are skipped.
"""

from __future__ import annotations

import sys

from benchmarks.peers.libraries import LIBRARIES
from benchmarks.peers.measure import measure
from benchmarks.peers.running import Comparison, run


def main() -> int:
    """Run the comparison; returns the exit status."""
    return run(Comparison("peers", __doc__, list(LIBRARIES), measure))


if __name__ == "__main__":
    sys.exit(main())
