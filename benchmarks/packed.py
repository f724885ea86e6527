"""Measured candidates in small files."""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hbtvm.logs.record import Record


def pack(records: Sequence[Record], path: Path, extra: Mapping[str, Any] | None = None) -> None:
    """Write records compressed: of each what was tried, and its fastest reading or that it failed.

    Parameters
    ----------
    extra
        Fields that every record gets (see `hbtvm.logs.record.Record.extra`).
    """
    lines = [
        replace(
            record,
            times=(float(f"{min(record.times):.5g}"),) if record.times else (),
            error={**record.error, "message": ""} if record.error else None,
            build_seconds=0.0,
            measure_seconds=0.0,
            session=None,
            extra=extra or {},
        ).to_line()
        for record in records
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9))
    print(f"{path}: {len(records)} records, {path.stat().st_size:,} bytes", flush=True)
