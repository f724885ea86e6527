"""``python -m benchmarks.search``: measure spaces once, then replay searches on them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.search.measure import ENOUGH, measure
from benchmarks.search.spaces import SPOTS


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("all", "measure"), default="all")
    parser.add_argument("--folder", type=Path, default=Path(".cache/search"), help="where all is kept")
    parser.add_argument("--spaces", default="", metavar="TEXT", help="only those with this in their names")
    parser.add_argument("--candidates", type=int, default=ENOUGH, help="to measure of each space")
    parser.add_argument("--lock", type=Path, help="file to lock, a minute at a time, while measuring")
    arguments = parser.parse_args()
    spots = [spot for spot in SPOTS if arguments.spaces in spot.name]
    if arguments.what in ("all", "measure"):
        measure(spots, arguments.folder, enough=arguments.candidates, lock=arguments.lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
