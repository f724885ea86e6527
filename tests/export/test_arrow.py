"""Batches of Arrow give in C what they give in Python: categories, texts, numbers with nulls."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.compiler.exporting.methods import Method, methods_of
from hbtvm.frontends import from_object
from hbtvm.runtime.model import Model
from hbtvm.runtime.native.objects.build import SOURCES
from tests.exported import Error, Loaded, compile_program, in_python, run_program

RNG = np.random.default_rng(3)
WORDS = ["red", "green", "blue", "grün"]
N = 200


def frame(n: int, rng: np.random.Generator = RNG) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n).round(2)),
            "colour": rng.choice(WORDS, n),
            "count": rng.integers(0, 50, n),
        }
    )


FRAME = frame(N)
LABEL = (FRAME["colour"].isin(["red", "blue"]) ^ (FRAME["count"] > 20)).astype(int).to_numpy()
TEXTS = [" ".join(RNG.choice(["good", "bad", "ugly", "Straße", "the"], 4)) for _ in range(N)]


def categories(one: pd.DataFrame) -> pd.DataFrame:
    return one.assign(colour=pd.Categorical(one["colour"], categories=WORDS))


def pipeline() -> Any:
    columns = ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["size", "count"]),
            ("c", OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        ]
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, np.where(LABEL, "yes", "no"))


def unsure(one: pd.DataFrame) -> pd.DataFrame:
    """Columns of which LightGBM's file does not tell which one held categories."""
    two = np.arange(len(one)) % 2
    return categories(one).assign(half=two, kind=pd.Categorical(np.array(["v", "x"])[two], ["v", "x"]))


def lightgbm_file() -> Any:
    model = lgb.LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1).fit(
        unsure(FRAME), np.arange(N) % 2
    )
    read = from_object(model.booster_)
    assert read.input.category_order
    return read


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "pipeline": (pipeline, lambda n: frame(n, np.random.default_rng(n))),
    "lightgbm": (
        lambda: lgb.LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1).fit(
            categories(FRAME), LABEL
        ),
        lambda n: categories(frame(n, np.random.default_rng(n))),
    ),
    "unsure": (lightgbm_file, lambda n: unsure(frame(n, np.random.default_rng(n)))),
    "hist": (
        lambda: HistGradientBoostingClassifier(max_iter=4, categorical_features="from_dtype").fit(
            categories(FRAME), LABEL
        ),
        lambda n: categories(frame(n, np.random.default_rng(n))),
    ),
    "texts": (
        lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, LABEL),
        lambda n: TEXTS[:n],
    ),
}


def batch(rows: Any) -> pa.RecordBatch:
    if isinstance(rows, pd.DataFrame):
        return pa.RecordBatch.from_pandas(rows, preserve_index=False)
    return pa.RecordBatch.from_pydict({"text": rows})


def run(loaded: Loaded, method: Method, rows: pa.RecordBatch, out: np.ndarray, error: Error) -> int:
    """Call a function with a batch, which is exported by pyarrow."""
    schema, array = ctypes.create_string_buffer(72), ctypes.create_string_buffer(80)
    rows._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    code = loaded.function(f"{method.name}_arrow")(
        loaded.model, schema, array, ctypes.c_void_p(out.ctypes.data), 0, ctypes.byref(error)
    )
    pa.RecordBatch._import_from_c(ctypes.addressof(array), ctypes.addressof(schema))  # which releases both
    return int(code)


@pytest.fixture(scope="module", params=MODELS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    train, rows = MODELS[request.param]
    model = hbtvm.compile(train(), batch_sizes=(64,), threads=1, explain=True)
    folder = tmp_path_factory.mktemp("arrow") / request.param
    exported = hbtvm.export(model, folder, request.param)
    assert ("contributions" in exported.functions) == ("reasons" in model.package.views)
    return model, Loaded(folder / f"lib{request.param}.so"), rows, folder


def test_batches_give_the_same_bits_as_in_python(
    made: tuple[Model, Loaded, Callable[[int], Any], Path],
) -> None:
    model, loaded, rows, _ = made
    methods, _ = methods_of(model.package)
    assert loaded.name != "pipeline" or "contributions" in [method.name for method in methods]
    for n in (1, 37, 150):
        for method in methods:
            given = rows(n)
            wanted = in_python(model, method, given).reshape(n, -1)
            out = np.zeros((n, method.columns), method.epilogues[0].dtype)
            assert run(loaded, method, batch(given), out, Error()) == 0
            assert out.tobytes() == np.ascontiguousarray(wanted).tobytes(), (method.name, n)


def test_what_is_wrong_with_a_batch(made: tuple[Model, Loaded, Callable[[int], Any], Path]) -> None:
    model, loaded, rows, _ = made
    method, error = methods_of(model.package)[0][0], Error()
    given = rows(5)
    out = np.zeros((5, method.columns), method.epilogues[0].dtype)
    if isinstance(given, pd.DataFrame):
        assert run(loaded, method, batch(given.drop(columns="count")), out, error) != 0
        assert error.code >= 8 and b"column" in loaded.function("message")(error.code)
        wrong = given.assign(size=["a text"] * 5)
        assert run(loaded, method, batch(wrong), out, error) != 0
        assert error.column == 0
    else:
        assert run(loaded, method, batch([*given[:2], None, *given[:2]]), out, error) != 0
        assert (error.row, error.column) == (2, 0)


def test_the_example_of_a_library_that_reads_batches(
    made: tuple[Model, Loaded, Callable[[int], Any], Path],
) -> None:
    """It predicts its row: that of a text, or of known categories and zeros."""
    model, *_, folder = made
    program, name = folder / "example", folder.name
    for compiler in filter(shutil.which, ("gcc", "clang")):
        compile_program(compiler, [folder / "example.c"], program, str(folder / f"lib{name}.a"))
        if name != "unsure":  # its file does not say which columns are categories
            printed = run_program(program)
            assert printed
    if name == "pipeline":
        row = {"size": 0.0, "colour": min(WORDS), "count": 0.0}
        assert printed.split() == [str(model.classes_.tolist().index(model.predict(row)[0]))]
    if name == "texts":
        assert printed.split() == [str(model.predict(["some text"])[0])]


@pytest.mark.parametrize("options", [[], ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_another_process_makes_the_batch(options: list[str], tmp_path: Path) -> None:
    """From rows to probabilities without Python: columns in another order, sliced, with nulls."""
    model = hbtvm.compile(pipeline(), batch_sizes=(64,), threads=1)
    hbtvm.export(model, tmp_path / "lib", "pipeline")
    rows = frame(300, np.random.default_rng(8))
    program, source = tmp_path / "reader", Path(__file__).with_name("arrow_reader.c")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", *options, "-I", str(SOURCES)]
    command += ["-I", str(tmp_path / "lib"), str(source), str(tmp_path / "lib" / "libpipeline.a")]
    subprocess.run([*command, "-lm", "-pthread", "-o", str(program)], check=True)
    lines = [
        f"{'null' if np.isnan(size) else size.hex()} {colour} {count}\n"
        for size, colour, count in rows.itertuples(index=False)
    ]
    done = subprocess.run([program], input="".join(lines), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = np.array([float.fromhex(line) for line in done.stdout.split()]).reshape(-1, 2)
    np.testing.assert_array_equal(found, model.predict_proba(pa.Table.from_pandas(rows)))
