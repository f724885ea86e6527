"""Write the comparison with nvForest as a table: ``python -m benchmarks.gpu.head_table head.jsonl``.

The file is what `benchmarks.gpu.head_to_head` wrote with ``--kernels``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.common import duration, markdown

OWN, PEER = "hbtvm", "nvForest best"
HEAD = ("model", "rows", "kernel", "nvForest's", "", "call, rows on the GPU", "nvForest's", "", "call, numpy",
        "nvForest's", "")  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table of all cells; a ratio is nvForest's time over hbtvm's.

    A kernel's time is the sum of all that a call runs on the device. nvForest has its fastest layout and
    chunk size.
    """
    kernels = {
        (line["model"], line["rows"]): {name: sum(parts.values()) for name, parts in line["kernels"].items()}
        for line in lines
        if "kernels" in line
    }
    cells = []
    for line in lines:
        if "times" not in line:
            continue
        key = line["model"], line["rows"]
        cell = [line["model"], f"{line['rows']:,}"]
        for times in (kernels.get(key, {}), line["times"]["waited"], line["times"]["host"]):
            own, peer = times.get(OWN), times.get(PEER)
            ratio = f"{peer / own:.2f}×" if own and peer else "–"
            cell += [duration(own) if own else "–", duration(peer) if peer else "–", ratio]
        cells.append(tuple(cell))
    return markdown(HEAD, cells)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.head_table", description=__doc__)
    parser.add_argument("lines", type=Path)
    print(table([json.loads(line) for line in parser.parse_args().lines.read_text().splitlines()]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
