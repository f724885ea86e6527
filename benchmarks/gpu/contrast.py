"""Make ``logs/records/contrast-sm_XX.jsonl.xz`` of a log: ``python -m benchmarks.gpu.contrast LOG``.

The log is of ``hbtvm log import``: candidates that ``hbtvm tune --export`` built and a GPU measured. The file
has one record of each candidate, marked like those of `benchmarks.contrast`: cost models learn from it.
"""

from __future__ import annotations

import argparse
import lzma
from dataclasses import replace
from pathlib import Path

from hbtvm.compiler.candidates.tasks import describe
from hbtvm.logs.query import DRAWN
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.store import Log

_LAUNCH = 1.5e-4
"""Seconds below which a single reading may be mostly the launch's overhead: it tells little of the kernel."""


def lessons(records: list[Record]) -> list[Record]:
    """Return the latest record of each candidate that this version's spaces have, marked."""
    latest: dict[tuple[tuple[str, str, str], str], Record] = {}
    for record in records:
        known = describe(record)
        if known is None or not known[1].contains(dict(record.config)):
            continue
        if len(record.times) != 1 or record.times[0] >= _LAUNCH:
            latest[record.task, canonical(record.config)] = replace(record, extra={DRAWN: True})
    return list(latest.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.contrast", description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("logs/records"), help="folder to write to")
    given = parser.parse_args()
    records = lessons(Log(given.log).read().records)
    for arch in sorted({str(record.target["arch"]) for record in records}):
        own = [record for record in records if record.target["arch"] == arch]
        packed = lzma.compress("".join(record.to_line() + "\n" for record in own).encode(), preset=9)
        path = given.out / f"contrast-{arch}.jsonl.xz"
        path.write_bytes(packed)
        print(f"{path}: {len(own)} records, {len(packed):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
