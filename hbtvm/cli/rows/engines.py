"""``hbtvm predict --engine``: predict a dataset of files with the workers of a cluster.

Workers read and write the files themselves; the engine only distributes parts of the dataset, again if a
worker dies. Moving rows through Spark or Ray to Python takes several times as long
(``python -m benchmarks.engines``).
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm import atomic
from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.datasets import progress, refuse_dialect
from hbtvm.cli.show import print_line
from hbtvm.errors import HbtvmError, InputError, missing_package
from hbtvm.words import quantities as wording

if TYPE_CHECKING:
    from hbtvm.streaming.parts import Part
    from hbtvm.streaming.shipped import Shipped

ENGINES = ("dask", "ray", "spark")

_RETRIES = 3  # retries of a part whose worker dies


def predict(arguments: argparse.Namespace, package: bytes, data: Path, out: Path | None) -> int:
    """Run the command.

    Raises `UsageError` if the data is missing, or the result is not a new folder. Raises `HbtvmError` if the
    engine fails; there is no result.
    """
    engine: str = arguments.engine
    refuse_dialect(arguments)
    if out is None:
        raise UsageError(f"--engine {engine}: say with -o which folder the predictions go to")
    if not data.exists():
        raise UsageError(f"{data}: there is no such file or folder, expected rows to predict")
    if out.exists():
        raise UsageError(f"{out}: this is there already; expected the name of a new folder")
    if not out.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.parent}")
    try:
        from hbtvm.streaming.parts import parts_of
        from hbtvm.streaming.places import check_apart
        from hbtvm.streaming.reading import Dataset
        from hbtvm.streaming.shipped import Shipped
    except ModuleNotFoundError as error:
        raise missing_package(f"--engine {engine} needs", error.name, f"hbtvm[{engine}]") from error
    # Absolute paths are valid in other processes.
    rows = Dataset(data.absolute())
    check_apart(data, out)
    threads = arguments.threads or 1
    shipped = Shipped.of(package, arguments.output, arguments.keep, arguments.drop, threads)
    shipped.scorer(rows.schema)
    start = time.perf_counter()
    with _whole(out.absolute()) as (folder, folds), _explained(engine):
        parts = parts_of(rows, folder, folds)
        with progress(len(parts), "part") as show:
            done = 0
            for count in RUN[engine](parts, shipped, arguments.cluster, threads):
                done += count
                show(count, 1)
    took = time.perf_counter() - start
    predicted = f"{wording.count(done, 'row')} predicted in {wording.duration(took)}"
    print_line(f"{out}: {predicted}, {done / took:,.0f} rows/s, {wording.count(len(parts), 'file')} in all")
    return 0


Run = Callable[[Sequence["Part"], "Shipped", "str | None", int], Iterator[int]]
"""Predicts parts of a dataset; yields the rows of each finished part."""


def _dask(parts: Sequence[Part], shipped: Shipped, cluster: str | None, threads: int) -> Iterator[int]:
    import dask
    from distributed import Client, as_completed

    local: dict[str, Any] = {
        "n_workers": max(1, _cpus() // threads),
        "threads_per_worker": 1,
        "dashboard_address": None,
    }
    # `_explained` reports errors in one sentence.
    dask.config.set({"logging.distributed": "critical"})
    with Client(cluster) if cluster is not None else Client(**local) as client:
        sent = client.submit(_same, shipped, pure=False)
        begun = [client.submit(_predict, part, sent, pure=False, retries=_RETRIES) for part in parts]
        for _, count in as_completed(begun, with_results=True):
            yield count


def _ray(parts: Sequence[Part], shipped: Shipped, cluster: str | None, threads: int) -> Iterator[int]:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(address=cluster, ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
    try:
        sent = ray.put(shipped)
        task = ray.remote(num_cpus=threads, max_retries=_RETRIES)(_predict)
        begun = [task.remote(part, sent) for part in parts]
        while begun:
            done, begun = ray.wait(begun)
            for finished in done:
                yield ray.get(finished)
    finally:
        ray.shutdown()


def _spark(parts: Sequence[Part], shipped: Shipped, cluster: str | None, threads: int) -> Iterator[int]:
    from pyspark.sql import SparkSession

    # By default, a local session does not retry tasks.
    master = cluster or f"local[{max(1, _cpus() // threads)},{_RETRIES + 1}]"
    if cluster is None:
        # By default, Spark runs the `python3` of the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("hbtvm").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    # `_explained` reports errors in one sentence.
    session.sparkContext.setLogLevel("FATAL")
    try:
        context = session.sparkContext
        sent = context.broadcast(shipped)
        yield from context.parallelize(parts, len(parts)).map(lambda part: part.predict(sent.value)).collect()
    finally:
        session.stop()


def _predict(part: Part, shipped: Shipped) -> int:
    return part.predict(shipped)


def _same(value: Shipped) -> Shipped:
    return value


RUN: Mapping[str, Run] = {"dask": _dask, "ray": _ray, "spark": _spark}  # the runners by engine


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[tuple[Path, bool]]:
    """Yield a new folder and whether its file system ignores case; at the end, rename it to `out`."""
    from hbtvm.streaming.places import folds_case

    lock = out.with_name(f".{out.name}.hbtvm.lock")
    with atomic.locked(lock, f"{out}: another hbtvm predict writes this folder."):
        if out.exists():
            raise UsageError(f"{out}: this is there already; expected the name of a new folder")
        # Under the lock, these belong to killed runs.
        for left in out.parent.glob(f".{glob.escape(out.name)}.*"):
            if atomic.TEMPORARY.fullmatch(left.name) and left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        temporary = out.with_name(atomic.temporary_name(out.name))
        try:
            temporary.mkdir()
            yield temporary, folds_case(lock)
            # Leftovers of killed workers.
            for folder in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
                atomic.clear(folder)
            os.rename(temporary, out)
            atomic.sync_folder(out.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextlib.contextmanager
def _explained(engine: str) -> Iterator[None]:
    """Turn engines' errors, with pages of remote traces, into one sentence."""
    try:
        yield
    except (HbtvmError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        raise missing_package(f"--engine {engine} needs", error.name, f"hbtvm[{engine}]") from error
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        for line in lines:
            # An hbtvm error of a worker.
            head, colon, sentence = line.partition("Error: ")
            if colon and head.rpartition(".")[0].endswith("hbtvm.errors"):
                raise InputError(sentence) from error
        raise HbtvmError(f"{engine}: {type(error).__name__}: {lines[0]}") from error


def _cpus() -> int:
    return len(os.sched_getaffinity(0))
