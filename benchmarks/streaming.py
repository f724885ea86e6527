"""Predicting a folder of Parquet files against reading it alone: ``python -m benchmarks.streaming``.

A dataset of some million rows is written once, and streamed again and again until as many rows went by as
asked for, in turns: reading alone, of the columns that the model reads, by pyarrow's scanner and by the
reader of ``hbtvm predict`` on all CPUs; and ``hbtvm predict``'s own loop, with predictions written. Peak
memory is that of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hbtvm.streaming.reading import Piece

COLUMNS = 28
_PART = 1_000_000
"""Rows of a file."""


def prepare(folder: Path, trees: int, files: int) -> None:
    """Write the package, of a linear pipeline for no trees, and the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from lightgbm import LGBMClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import hbtvm

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, COLUMNS)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + X[:, 2] > 0
    model = make_pipeline(StandardScaler(), LogisticRegression())
    if trees:
        model = LGBMClassifier(n_estimators=trees, num_leaves=31, verbose=-1)
    hbtvm.compile(model.fit(X, y), batch_sizes=(10_000,)).save(folder / "model.tar")
    (folder / "rows").mkdir()
    for i in range(files):
        # Values as measurements have them, which repeat and so are stored as a dictionary.
        part = np.round(rng.normal(size=(_PART, COLUMNS)), 3).astype(np.float32)
        columns = {f"x{j}": pa.array(part[:, j]) for j in range(COLUMNS)}
        columns["id"] = pa.array(np.arange(i * _PART, (i + 1) * _PART))
        pq.write_table(pa.table(columns), folder / "rows" / f"{i}.parquet", row_group_size=100_000)


def _rows(piece: Piece) -> int:
    return sum(batch.num_rows for batch in piece())


def work(what: str, folder: Path, times: int) -> None:
    """Stream the dataset some times; print seconds and peak memory in MB as JSON."""
    import pyarrow.dataset

    from hbtvm.streaming import dataset, reading

    columns = [*(f"x{j}" for j in range(COLUMNS)), "id"]
    start = time.perf_counter()
    rows = 0
    for _ in range(times):
        if what == "scanner":
            data = pyarrow.dataset.dataset(str(folder / "rows"))
            rows += sum(batch.num_rows for batch in data.to_batches(columns=columns))
        elif what == "reader":
            own = reading.Dataset(folder / "rows")
            pieces = [piece for file in own.files for piece in own.source(file).pieces(columns)]
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                rows += sum(pool.map(_rows, pieces))
        else:
            out = folder / "scores"
            shutil.rmtree(out, ignore_errors=True)
            job = dataset.Job(folder / "model.tar", folder / "rows", out, "proba", ("id",))
            rows += dataset.predict(job)
    seconds = time.perf_counter() - start
    # (The maximum that the system counts begins with what the parent process had.)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "peak": peak}))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to stream in each turn, in all")
    parser.add_argument("--files", type=int, default=4, help="files of a million rows each")
    parser.add_argument("--trees", type=int, default=100, help="of 31 leaves; 0 for a linear pipeline")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    times = max(1, arguments.rows // (arguments.files * _PART))
    with tempfile.TemporaryDirectory(prefix="hbtvm-streaming-") as name:
        folder = Path(name)
        prepare(folder, arguments.trees, arguments.files)
        code = "import sys, pathlib; from benchmarks.streaming import work; "
        found: dict[str, list[dict[str, float]]] = {"scanner": [], "reader": [], "predict": []}
        for _ in range(arguments.rounds):
            for what, results in found.items():
                call = f"{code}work({what!r}, pathlib.Path({name!r}), {times})"
                done = subprocess.run(
                    [sys.executable, "-c", call], check=True, capture_output=True, text=True
                )
                results.append(json.loads(done.stdout.splitlines()[-1]))
                last = results[-1]
                pace = last["rows"] / last["seconds"]
                print(
                    f"{what:<8} {last['rows']:,} rows, {pace:,.0f} rows/s, peak {last['peak']:.0f} MB",
                    flush=True,
                )
    medians = {what: statistics.median(one["seconds"] for one in results) for what, results in found.items()}
    for what in ("scanner", "reader"):
        ratio = medians["predict"] / medians[what]
        print(f"predicting takes {ratio:.2f} times as long as reading alone by the {what}")


if __name__ == "__main__":
    main()
