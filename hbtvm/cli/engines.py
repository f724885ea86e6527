"""``hbtvm predict --engine``: a dataset of Parquet files, by the workers of a cluster."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.show import print_line
from hbtvm.errors import HbtvmError, InputError, MissingPackageError

ENGINES = ("dask", "ray", "spark")


def predict(arguments: argparse.Namespace, package: Path, data: Path, out: Path | None) -> int:
    """Run the command.

    Raises
    ------
    UsageError
        If the data or the result is no folder or file of Parquet.
    HbtvmError
        If the engine fails; there is no result then.
    """
    engine: str = arguments.engine
    if out is None:
        raise UsageError(f"--engine {engine}: say with -o which folder the predictions go to")
    if data.is_file() and data.suffix.lower() != ".parquet":
        raise UsageError(f"{data}: --engine {engine} reads .parquet files, or a folder of them")
    if not data.exists():
        raise UsageError(f"{data}: there is no such file or folder, expected rows to predict")
    if out.exists():
        raise UsageError(f"{out}: this is there already; expected the name of a new folder")
    if not out.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.parent}")
    run = {"dask": _dask, "ray": _ray, "spark": _spark}[engine]
    options = {
        "output": arguments.output,
        "keep": arguments.keep,
        "drop": arguments.drop,
        "threads": arguments.threads or 1,
    }
    with _whole(out) as folder, _explained(engine):
        run(data, package, folder, arguments.cluster, options)
    print_line(f"{out}: {_count(out)}")
    return 0


def _dask(data: Path, package: Path, out: str, cluster: str | None, options: dict[str, Any]) -> None:
    import dask
    import dask.dataframe
    from distributed import Client

    import hbtvm.dask

    local: dict[str, Any] = {"n_workers": _cpus(), "threads_per_worker": 1, "dashboard_address": None}
    # What fails is told in a sentence at the end.
    dask.config.set({"logging.distributed": "critical"})
    with Client(cluster) if cluster is not None else Client(**local):
        frame = dask.dataframe.read_parquet(str(data))
        hbtvm.dask.predict(frame, package, **options).to_parquet(out, write_index=False)


def _ray(data: Path, package: Path, out: str, cluster: str | None, options: dict[str, Any]) -> None:
    import ray

    import hbtvm.ray

    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(address=cluster, ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
    try:
        rows = ray.data.read_parquet(str(data))
        hbtvm.ray.predict(rows, package, **options).write_parquet(out)
    finally:
        ray.shutdown()


def _spark(data: Path, package: Path, out: str, cluster: str | None, options: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    import hbtvm.spark

    # Tasks of a local session are tried once only unless told otherwise.
    master = cluster or f"local[{_cpus()},4]"
    if cluster is None:
        # Spark takes the `python3` of the path, which need not be the environment that runs this.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("hbtvm").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    # What fails is told in a sentence at the end. (And Spark warns of pandas' version, which is not used.)
    session.sparkContext.setLogLevel("FATAL")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    try:
        rows = session.read.parquet(os.path.abspath(data))
        hbtvm.spark.predict(rows, package, **options).write.parquet(os.path.abspath(out))
    finally:
        session.stop()


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[str]:
    """The name of a folder that becomes `out` if all goes well, and is gone if not."""
    temporary = out.parent / f".{out.name[:40]}.{secrets.token_hex(4)}"
    try:
        yield str(temporary)
        os.rename(temporary, out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def _explained(engine: str) -> Iterator[None]:
    """Turn engines' errors, which come with pages of traces of other processes, into one sentence."""
    try:
        yield
    except (HbtvmError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"--engine {engine} needs {error.name}, which is not installed: pip install 'hbtvm[{engine}]'",
            name=error.name,
        ) from error
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        for line in lines:
            # What a worker raised, if it is hbtvm's.
            head, colon, sentence = line.partition("Error: ")
            if colon and head.rpartition(".")[0].endswith("hbtvm.errors"):
                raise InputError(sentence) from error
        raise HbtvmError(f"{engine}: {type(error).__name__}: {lines[0]}") from error


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _count(out: Path) -> str:
    import pyarrow.parquet

    files = sorted(out.rglob("*.parquet"))
    rows = sum(pyarrow.parquet.read_metadata(one).num_rows for one in files)
    return f"{rows:,} predictions in {len(files)} files"
