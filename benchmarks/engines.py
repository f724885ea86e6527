"""Predicting on Dask, Ray and Spark: ``python -m benchmarks.engines command`` or ``frames``.

``command`` runs ``hbtvm predict FOLDER`` with and without ``--engine``, on one CPU and on two, for two
folders; the longer one's rows over the difference of the two times is the pace, the rest the engine's start.

``frames`` times the functions of `hbtvm.dask`, `hbtvm.ray` and `hbtvm.spark` from files to files, in clusters
of one worker and of two, from the second job on. `bare` is the same job with a function that returns
constants: what the engine takes for itself to read, to pass batches to Python and to write.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.streaming import prepare

ENGINES = ("dask", "ray", "spark")

Job = Callable[[], None]
"""Predicts all rows and writes the predictions."""


def local(folder: Path, workers: int, bare: bool) -> contextlib.AbstractContextManager[Job]:
    """``hbtvm predict``."""
    from hbtvm.streaming import dataset

    out = folder / "out"
    job = dataset.Job(folder / "model.tar", folder / "rows", out, "proba", ("id",))
    return contextlib.nullcontext(lambda: print(dataset.predict(job, threads=workers), file=sys.stderr))


@contextlib.contextmanager
def dask(folder: Path, workers: int, bare: bool) -> Iterator[Job]:
    """Dask's own cluster of processes on this machine."""
    import dask.dataframe
    import pandas as pd
    from distributed import Client

    import hbtvm.dask

    def constants(part: pd.DataFrame) -> pd.DataFrame:
        return part[["id"]].assign(**{"False": 0.5, "True": 0.5})

    def job() -> None:
        rows = dask.dataframe.read_parquet(str(folder / "rows"), split_row_groups=5)
        if bare:
            made = rows.map_partitions(constants, meta=constants(rows._meta))
        else:
            made = hbtvm.dask.predict(rows, folder / "model.tar", "proba", keep=["id"])
        made.to_parquet(str(folder / "out"), write_index=False)

    with Client(n_workers=workers, threads_per_worker=1, dashboard_address=None):
        yield job


@contextlib.contextmanager
def ray(folder: Path, workers: int, bare: bool) -> Iterator[Job]:
    """Ray on this machine."""
    import pyarrow as pa
    import ray

    import hbtvm.ray

    def constants(part: pa.Table) -> pa.Table:
        half = pa.repeat(0.5, len(part))
        return pa.table({"id": part["id"], "False": half, "True": half})

    def job() -> None:
        rows = ray.data.read_parquet(str(folder / "rows"))
        if bare:
            made = rows.map_batches(
                constants, batch_format="pyarrow", batch_size=65_536, zero_copy_batch=True
            )
        else:
            made = hbtvm.ray.predict(rows, folder / "model.tar", "proba", keep=["id"])
        made.write_parquet(str(folder / "out"))

    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.init(num_cpus=workers, log_to_driver=False, configure_logging=False)
    try:
        yield job
    finally:
        ray.shutdown()


@contextlib.contextmanager
def spark(folder: Path, workers: int, bare: bool) -> Iterator[Job]:
    """Spark in one process, whose workers are processes of Python."""
    import pyarrow as pa
    from pyspark.sql import SparkSession

    import hbtvm.spark

    def constants(batches: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            half = pa.repeat(0.5, batch.num_rows)
            yield pa.record_batch({"id": batch["id"], "False": half, "True": half})

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "4g").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def job() -> None:
        rows = session.read.parquet(str(folder / "rows"))
        if bare:
            made = rows.mapInArrow(constants, "id long, `False` double, `True` double")
        else:
            made = hbtvm.spark.predict(rows, folder / "model.tar", "proba", keep=["id"])
        made.write.parquet(str(folder / "out"))

    yield job
    session.stop()


def work(name: str, folder: Path, workers: int, bare: bool, times: int) -> None:
    """Run a job some times after one that is not timed; print the seconds of each as JSON."""
    ways: dict[str, Any] = {"local": local, "dask": dask, "ray": ray, "spark": spark}
    seconds = []
    with ways[name](folder, workers, bare) as job:
        for _ in range(times + 1):
            shutil.rmtree(folder / "out", ignore_errors=True)
            start = time.perf_counter()
            job()
            seconds.append(time.perf_counter() - start)
    print("\n" + json.dumps(seconds[1:]))


def command(folder: Path, arguments: argparse.Namespace) -> None:
    """Time the command."""
    import hbtvm

    few = folder / "few"
    few.mkdir()
    os.symlink(folder / "rows" / "0.parquet", few / "0.parquet")
    cpus = sorted(os.sched_getaffinity(0))[:2]
    start = [sys.executable, "-m", "hbtvm", "predict", str(folder / "model.tar")]
    environment = {**os.environ, "PYTHONPATH": str(Path(hbtvm.__file__).resolve().parents[1])}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(arguments.rounds):
        for number in (1, 2):
            for engine in ("local", *arguments.engines):
                seconds = []
                for rows in (few, folder / "rows"):
                    shutil.rmtree(folder / "out", ignore_errors=True)
                    given = [
                        *start,
                        str(rows),
                        "-o",
                        str(folder / "out"),
                        "--output",
                        "proba",
                        "--keep",
                        "id",
                    ]
                    if engine != "local":
                        given += ["--engine", engine]
                    began = time.perf_counter()
                    done = subprocess.run(
                        given,
                        capture_output=True,
                        text=True,
                        env=environment,
                        preexec_fn=lambda number=number: os.sched_setaffinity(0, cpus[:number]),  # type: ignore[misc]
                    )
                    seconds.append(time.perf_counter() - began)
                    if done.returncode:
                        raise SystemExit(done.stderr)
                print(engine, number, seconds, file=sys.stderr, flush=True)
                found.setdefault((engine, number), []).append((seconds[0], seconds[1]))
    print(f"{'':8}{'CPUs':>6}{'rows/s':>14}{'over local':>12}{'start, s':>10}{'two over one':>14}")
    pace = {}
    for (engine, number), times in found.items():
        row = statistics.median(long - short for short, long in times) / ((arguments.files - 1) * 1_000_000)
        begin = statistics.median(short for short, _ in times) - row * 1_000_000
        pace[engine, number] = row
        line = f"{engine:8}{number:>6}{1 / row:>14,.0f}{row / pace['local', number]:>12.2f}{begin:>10.1f}"
        print(line + (f"{pace[engine, 1] / row:>14.2f}" if number == 2 else ""))


def frames(folder: Path, arguments: argparse.Namespace) -> None:
    """Time the functions for engines' own data frames."""
    ways = [("local", 1, False), ("local", 2, False)]
    ways += [(name, n, bare) for name in arguments.engines for n in (1, 2) for bare in (False, True)]
    found: dict[tuple[str, int, bool], list[float]] = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way in ways:
            call = (
                "import pathlib; from benchmarks.engines import work; "
                f"work({way[0]!r}, pathlib.Path({str(folder)!r}), {way[1]}, {way[2]}, {arguments.times})"
            )
            done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{way[0]}: {done.stderr[-2000:]}")
            found[way] += json.loads(done.stdout.splitlines()[-1])
            print(*way, [round(one, 2) for one in found[way]], file=sys.stderr, flush=True)
    rows = arguments.files * 1_000_000
    medians = {way: statistics.median(seconds) for way, seconds in found.items()}
    print(f"{'':8}{'workers':>8}{'rows/s':>14}{'over local':>12}{'bare, rows/s':>14}{'two over one':>14}")
    for name, workers, bare in ways:
        if bare:
            continue
        own = medians[name, workers, False]
        line = f"{name:8}{workers:>8}{rows / own:>14,.0f}{own / medians['local', workers, False]:>12.2f}"
        empty = medians.get((name, workers, True))
        line += f"{rows / empty:>14,.0f}" if empty else f"{'':>14}"
        line += f"{medians[name, 1, False] / own:>14.2f}" if workers == 2 else ""
        print(line)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("what", choices=["command", "frames"])
    parser.add_argument("--engines", nargs="*", default=ENGINES, choices=ENGINES)
    parser.add_argument("--files", type=int, default=4, help="files of a million rows each")
    parser.add_argument("--trees", type=int, default=500, help="of 31 leaves; 0 for a linear pipeline")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="timed jobs of a process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hbtvm-engines-") as name:
        folder = Path(name)
        prepare(folder, arguments.trees, arguments.files)
        (command if arguments.what == "command" else frames)(folder, arguments)


if __name__ == "__main__":
    main()
