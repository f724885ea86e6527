"""Arrow files that lie about offsets, indices and sizes; read in child processes, where signals show."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import hbtvm
from tests.engines.cases import Case

CITIES = ["Rome", "Oslo", "Lima", "Rome", "Oslo", "Oslo", "Lima", "Lima"]

_CHILD = """
import contextlib, io, json, sys
from pathlib import Path
import pyarrow as pa
from hbtvm import errors, load
from hbtvm.cli.main import main
package, folder = sys.argv[1:]
model = load(package)
for path in sorted(Path(folder).iterdir()):
    print(path.name, end=" ", flush=True)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(["predict", package, str(path), "-o", folder + ".csv"])
    try:
        table = pa.ipc.open_file(str(path)).read_all()
        table = table.combine_chunks() if len(path.name) % 2 else table
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        table = None
    memory = "unread"
    if table is not None:
        for rows in [*(table.slice(i, 1) for i in range(min(len(table), 8))), table]:
            try:
                memory = len(model.predict(rows))
            except errors.HbtvmError as error:
                memory = str(error)
    print(json.dumps([status, said.getvalue(), memory]), flush=True)
"""

_TEXTS = """
import sys
from pathlib import Path
import pyarrow as pa
from hbtvm import errors, load
model = load(sys.argv[1])
for path in sorted(Path(sys.argv[2]).iterdir()):
    cities = pa.ipc.open_file(str(path)).read_all().column("city")
    for i in range(len(cities)):
        try:
            model.predict(cities.slice(i, 1))
        except errors.HbtvmError:
            pass
    try:
        text = str(len(model.predict(cities)))
    except errors.HbtvmError as error:
        text = str(error)
    print(path.name, text, flush=True)
"""


def column(kind: str) -> pa.Array:
    """Eight cities, as a column of a type."""
    if kind == "dictionary":
        return pa.array(CITIES).dictionary_encode()
    if kind == "run_end_encoded":
        return pa.RunEndEncodedArray.from_arrays(
            [3, 8], ["Rome", "Oslo"], pa.run_end_encoded(pa.int32(), pa.string())
        )
    if kind == "string_view":
        return pa.array([city * 5 for city in CITIES], pa.string()).cast(pa.string_view())
    return pa.array(CITIES, getattr(pa, kind)())


def written(city: pa.Array, **options: object) -> bytes:
    """An Arrow file of ages and cities."""
    sink = io.BytesIO()
    batch = pa.record_batch([np.arange(20.0, 28.0), city], ["age", "city"])
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def lies() -> Iterator[tuple[str, bytes]]:
    """Files with one number changed, where it matters, by what it is and its new value."""
    wrong = [2_000_000_000, -1, -(2**31), 3, 33]
    for kind, dtype in (("string", np.int32), ("large_string", np.int64)):
        data = written(column(kind))
        offsets = np.arange(0, 33, 4).astype(dtype)
        assert data.count(offsets.tobytes()) == 1
        for at in range(9):
            for value in [*wrong, *([2**62, -(2**62)] if dtype is np.int64 else [])]:
                lie = offsets.copy()
                lie[at] = value
                if lie[0] < 0 or lie[-1] > 32 or (lie[1:] < lie[:-1]).any():
                    yield f"{kind}-{at}-{value}", data.replace(offsets.tobytes(), lie.tobytes())
    data = written(column("dictionary"))
    indices = np.array([0, 1, 2, 0, 1, 1, 2, 2], np.int32)
    assert data.count(indices.tobytes()) == 1
    for value in (3, -1, 2**31 - 1, -(2**31)):
        lie = indices.copy()
        lie[4] = value
        yield f"dictionary-{value}", data.replace(indices.tobytes(), lie.tobytes())
    array = column("string_view")
    data, views = written(array), array.buffers()[1].to_pybytes()
    assert data.count(views) == 1
    for at in range(4):
        for value in (2_000_000_000, -1, -(2**31)):
            lie = np.frombuffer(views, np.int32).copy()
            lie[8 + at] = value
            yield f"string_view-{at}-{value}", data.replace(views, lie.tobytes())
    data, ends = written(column("run_end_encoded")), np.array([3, 8], np.int32).tobytes()
    for first, last in ((3, 2), (-1, 8), (3, 7), (9, 8), (3, 2**31 - 1)):
        yield f"run-{first}-{last}", data.replace(ends, np.array([first, last], np.int32).tobytes())
    text = written(column("string"))
    yield "utf8", text.replace(b"RomeOslo", b"Rom\xffOs\xc3o")


def mutants() -> Iterator[tuple[str, bytes]]:
    """Files cut short, and with a few bytes changed anywhere."""
    rng = np.random.default_rng(3)
    for kind in ("string", "dictionary", "string_view", "run_end_encoded"):
        for compression in (None, "zstd"):
            data = written(column(kind), compression=compression)
            for i in range(12):
                bad = bytearray(data)
                for at in rng.integers(8, len(data) - 10, rng.integers(1, 4)):
                    bad[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
                yield f"{kind}-{compression}-{i}", bytes(bad)
            for end in rng.integers(0, len(data), 4):
                yield f"{kind}-{compression}-cut-{end}", data[:end]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("crafted"))


def outcomes(package: Path, folder: Path) -> dict[str, tuple[int, str, int | str]]:
    """What becomes of each file in a folder."""
    command = [sys.executable, "-c", _CHILD, str(package), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode} at {lines[-1:]}: {done.stderr[-2000:]}"
    found = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        found[name] = status, said, memory = json.loads(rest)
        # A size that is claimed may be more than there is.
        if "there is not enough memory" not in said:
            assert status in (0, 2), (name, said)
        assert "bug" not in said and said.count("\n") == (status != 0), (
            name,
            said,
        )
        assert memory == "unread" or isinstance(memory, int) or "\n" not in memory, (name, memory)
    return found


def save(folder: Path, files: Iterator[tuple[str, bytes]]) -> int:
    folder.mkdir()
    count = 0
    for name, data in files:
        (folder / f"{name}.arrow").write_bytes(data)
        count += 1
    return count


def test_lies_are_refused(case: Case, tmp_path: Path) -> None:
    count = save(tmp_path / "lies", lies())
    found = outcomes(case.package, tmp_path / "lies")
    assert len(found) == count
    for name, (status, said, memory) in found.items():
        # No model reads runs.
        assert status == 2 and ("not a readable Arrow file" in said or "run_end_encoded" in said), (
            name,
            said,
        )
        # In memory, bytes of texts are not looked at.
        assert not isinstance(memory, int) or name == "utf8.arrow", name


@pytest.mark.parametrize("kind", ["string", "dictionary"])
def test_lies_in_a_folder_are_refused(kind: str, case: Case, tmp_path: Path) -> None:
    lie = next(data for name, data in lies() if name.startswith(kind))
    for i, data in enumerate([written(column(kind)), lie]):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{i}.arrow").write_bytes(data)
    command = [sys.executable, "-m", "hbtvm", "predict", str(case.package), "data", "-o", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "1.arrow: this file is damaged" in done.stderr
    assert len(pd.read_parquet(tmp_path / "out" / "0.parquet")) == 8


def test_mutants_end_in_a_sentence(case: Case, tmp_path: Path) -> None:
    count = save(tmp_path / "mutants", mutants())
    found = outcomes(case.package, tmp_path / "mutants")
    assert len(found) == count
    statuses = [status for status, *_ in found.values()]
    assert statuses.count(0) > 5 and statuses.count(2) > 30


def test_texts_that_lie(tmp_path: Path) -> None:
    """Texts that compiled code reads where they lie."""
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(CITIES, [0, 1, 0, 0, 1, 1, 0, 0])
    hbtvm.compile(model, batch_sizes=(8,), threads=1).save(tmp_path / "model.tar")
    folder = tmp_path / "lies"
    count = save(folder, (one for one in lies() if not one[0].startswith("run")))
    command = [sys.executable, "-c", _TEXTS, str(tmp_path / "model.tar"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode} after {lines[-1:]}: {done.stderr[-2000:]}"
    assert len(lines) == count
    for line in lines:
        assert "damaged" in line or line.startswith("utf8"), line
