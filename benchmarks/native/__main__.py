"""hbtvm's exported C library against other libraries' C interfaces: ``python -m benchmarks.native``.

Models, data, options and environments are those of `benchmarks.peers` (see PEERS.md beside this package);
each library is called from a C program of its own, which takes gcc. It may be stopped at any time, and
carries on where it was stopped: finished cells are skipped.
"""

from __future__ import annotations

import sys

from benchmarks.native.interfaces import INTERFACES
from benchmarks.native.measure import measure
from benchmarks.peers import report
from benchmarks.peers.running import Comparison, run

GOALS = report.Goals(cell=1.0, means={}, overall=2.0)


def main() -> int:
    """Run the comparison; returns the exit status."""
    title = "hbtvm and its peers, called from C"
    return run(Comparison("native", __doc__, list(INTERFACES), measure, title, GOALS))


if __name__ == "__main__":
    sys.exit(main())
