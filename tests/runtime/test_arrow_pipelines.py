"""Pipelines of scikit-learn: the matrix that C reads from Arrow is the one that Python's readers make."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from hbtvm.compiler.building.cpu import text_library
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from hbtvm.graph.passes.in_kernel import in_kernel
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native.front.front import Front, lowered, lowered_input
from hbtvm.runtime.rows.inputs import Inputs
from hbtvm.runtime.text.library import TextLibrary
from tests.arrow_checks import BOTH, compare
from tests.arrow_fronts import STATUS, FrontReader, assert_same, compiled
from tests.runtime_models import kernel, package
from tests.texts import DOCUMENTS, random_texts

NUMBERS, TEXTS = ["age", "pay"], ["job", "plan"]


def people(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 9, rows).round(1),
            "pay": rng.normal(size=rows),
            "job": pd.Series(rng.choice(["tech", "sales", "law", "home"], rows), dtype="str"),
            "plan": pd.Series(rng.choice(["basic", "pro"], rows), dtype="str"),
            "kind": rng.integers(0, 5, rows),
            "flag": rng.random(rows) < 0.5,
        }
    )
    for name in (*NUMBERS, *TEXTS):
        frame.loc[rng.random(rows) < 0.15, name] = np.nan
    return frame


def split(number: Any, text: Any) -> ColumnTransformer:
    return ColumnTransformer(
        [("n", number, NUMBERS), ("t", text, TEXTS), ("k", "passthrough", ["kind", "flag"])]
    )


IMPUTE = SimpleImputer(strategy="median")
CASES: dict[str, Callable[[], Any]] = {
    "onehot, linear": lambda: make_pipeline(
        split(make_pipeline(IMPUTE, StandardScaler()), OneHotEncoder(handle_unknown="ignore")),
        LogisticRegression(),
    ),
    "onehot, few": lambda: make_pipeline(
        split(IMPUTE, OneHotEncoder(min_frequency=60, handle_unknown="infrequent_if_exist", drop="first")),
        DecisionTreeClassifier(max_depth=4),
    ),
    "imputed onehot": lambda: make_pipeline(
        split(
            SimpleImputer(add_indicator=True),
            make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="error")),
        ),
        DecisionTreeClassifier(max_depth=4),
    ),
    "constant": lambda: make_pipeline(
        split(
            SimpleImputer(strategy="constant", fill_value=-1.5),
            make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OrdinalEncoder()),
        ),
        LogisticRegression(max_iter=500),
    ),
    "ordinal": lambda: make_pipeline(
        split(
            "passthrough",
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
        ),
        DecisionTreeClassifier(max_depth=4),
    ),
    "target": lambda: make_pipeline(
        split(IMPUTE, TargetEncoder(cv=2, random_state=0)), DecisionTreeClassifier(max_depth=4)
    ),
    "zeros are missing": lambda: make_pipeline(
        split(make_pipeline(IMPUTE, StandardScaler()), OneHotEncoder(handle_unknown="ignore")),
        XGBClassifier(n_estimators=3, n_jobs=1),
    ),
    "bins": lambda: make_pipeline(
        split(make_pipeline(IMPUTE, KBinsDiscretizer(4, strategy="uniform")), OrdinalEncoder()),
        DecisionTreeClassifier(max_depth=4),
    ),
    "curves": lambda: make_pipeline(
        split(
            make_pipeline(IMPUTE, QuantileTransformer(n_quantiles=50), MinMaxScaler(clip=True)),
            OneHotEncoder(handle_unknown="ignore"),
        ),
        LogisticRegression(),
    ),
    "roots": lambda: make_pipeline(
        split(
            make_pipeline(IMPUTE, FunctionTransformer(np.abs), FunctionTransformer(np.sqrt)),
            OneHotEncoder(handle_unknown="ignore"),
        ),
        DecisionTreeClassifier(max_depth=4),
    ),
}  # fmt: skip


def graph_of(name: str) -> Graph:
    frame = people()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return in_kernel(from_object(CASES[name]().fit(frame, np.arange(len(frame)) % 2)))


def both(graph: Graph, dtypes: tuple[str, ...]) -> tuple[Front, FeedReader]:
    compared: str = getattr(graph.anchor, "compare_dtype", "float64")
    apart = graph.single is not None
    front = lowered_input(graph.input, graph.feeds, compared, dtypes, apart)
    library = TextLibrary(text_library())
    return front, FeedReader(graph.input, graph.feeds, compared, dtypes, apart, library)


def tables(frame: pd.DataFrame) -> dict[str, Any]:
    """A frame in forms that Arrow has for it."""
    table = pa.Table.from_pandas(frame, preserve_index=False)

    def cast(**types: Any) -> Any:
        made = table
        for name, kind in types.items():
            made = made.set_column(made.schema.get_field_index(name), name, made[name].cast(kind))
        return made

    encoded = pa.dictionary(pa.int8(), pa.string())
    order = [3, 1, 0, 5, 4, 2]
    return {
        "plain": table,
        "large": cast(job=pa.large_string(), plan=pa.large_string()),
        "views": cast(job=pa.string_view(), plan=pa.string_view()),
        "dictionaries": cast(job=encoded, plan=pa.dictionary(pa.uint32(), pa.large_string())),
        "narrow": cast(age=pa.float32(), pay=pa.float32(), kind=pa.int8()),
        "mixed": cast(kind=pa.uint64(), pay=pa.float32(), flag=pa.uint8()),
        "categories of numbers": table.set_column(4, "kind", table["kind"].dictionary_encode()),
        "nulls": cast(job=pa.string()).set_column(4, "kind", pa.nulls(len(frame), pa.int32())),
        "other order": table.select(order).append_column("more", pa.array(["x"] * len(frame))),
        "slice": pa.concat_tables([table, table]).combine_chunks().slice(3, len(frame)),
    }


def batch_of(table: Any) -> Any:
    return table.combine_chunks().to_batches()[0]


@pytest.mark.parametrize("name", CASES)
def test_pipelines(reader: FrontReader, name: str) -> None:
    graph, frame = graph_of(name), people(90, 1)
    unseen = frame.assign(job=frame["job"].where(frame.index % 7 != 3, "nurse"))
    for dtypes in (BOTH, ("float64",)):
        front, inputs = both(graph, dtypes)
        read = 0
        for X in (frame, unseen):
            for table in tables(X).values():
                batch = batch_of(table)
                read += sum(compare(reader, front, inputs, one) for one in (batch, batch[5:6], batch[7:60]))
        assert read > 20


def test_packages(reader: FrontReader) -> None:
    """`lowered` takes what readers are told from the package."""
    graph = graph_of("ordinal")
    made = package(graph, kernel(graph, 1, dtype="float64"), kernel(graph, 1, dtype="float32"))
    front, inputs = both(graph, BOTH)
    batch = batch_of(tables(people(50, 2))["plain"])
    found, same = reader.read(lowered(made), batch), reader.read(front, batch)
    assert found.matrix is not None and same.matrix is not None
    assert_same(found.matrix, same.matrix)
    assert_same(found.matrix, inputs.prepare(batch))
    with pytest.raises(UnsupportedModel, match="only transforms"):
        lowered(replace(made, kernels=()))


def bare(name: str) -> Any:
    """A model without a pipeline, trained on a frame with columns of categories."""
    frame = people().astype({"job": "category", "plan": "category"})
    # One that both of them tell.
    target = frame["job"].isin(["law", "home"]) ^ (frame["plan"] == "pro")
    if name == "xgboost":
        return XGBClassifier(n_estimators=3, enable_categorical=True, n_jobs=1).fit(frame, target)
    if name == "lightgbm":
        return LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(frame, target)
    return HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype").fit(frame, target)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "scikit-learn"])
def test_categories_of_bare_models(reader: FrontReader, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = from_object(bare(name))
    compared: str = getattr(graph.anchor, "compare_dtype", "float64")
    assert not graph.feeds and (graph.input.categories or graph.input.category_order)
    given = [*tables(people(90, 1)).values(), *tables(people(5, 2)).values()]
    spec = graph.input
    for dtypes in (BOTH, ("float64",)):
        front, inputs = lowered_input(spec, (), compared, dtypes), Inputs(spec, compared, dtypes)
        read = [compare(reader, front, inputs, batch_of(table)) for table in given]
        assert 2 <= sum(read) < len(read)


TEXT_CASES: dict[str, Callable[[], Any]] = {
    "tf-idf": lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()),
    "accents": lambda: make_pipeline(
        TfidfVectorizer(strip_accents="unicode", ngram_range=(1, 2)), DecisionTreeClassifier(max_depth=3)
    ),
    "hashes": lambda: make_pipeline(HashingVectorizer(n_features=64), DecisionTreeClassifier(max_depth=4)),
    "beside numbers": lambda: make_pipeline(
        ColumnTransformer([("t", CountVectorizer(analyzer="char_wb"), "text"), ("n", IMPUTE, ["number"])]),
        LogisticRegression(max_iter=500),
    ),
}  # fmt: skip


@functools.cache
def text_graph(name: str) -> Graph:
    texts = [*DOCUMENTS, *random_texts(0, 80)]
    frame = pd.DataFrame({"text": pd.Series(texts, dtype="str"), "number": np.arange(float(len(texts)))})
    X: Any = frame if name == "beside numbers" else frame["text"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return in_kernel(from_object(TEXT_CASES[name]().fit(X, np.arange(len(texts)) % 2)))


@pytest.mark.parametrize("name", TEXT_CASES)
def test_texts(reader: FrontReader, name: str) -> None:
    front, inputs = both(text_graph(name), BOTH)
    assert front.texts
    more = [*DOCUMENTS, *random_texts(1, 200), "ΟΔΟΣ", "ΑΣ.Β Σ", "aΣ\u0301", "Σ"]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(more, kind)
        given = {"text": column, "number": pa.array(np.linspace(0, 1, len(more)))}
        batch = pa.record_batch(given if name == "beside numbers" else {"any": column})
        for one in (batch, batch[3:4], batch[20:]):
            assert compare(reader, front, inputs, one)
    for values in (["a", None], [None, None], [1, 2]):
        given = {"text": pa.array(values), "number": pa.array([1.0, 2.0])}
        batch = pa.record_batch(given if name == "beside numbers" else {"any": given["text"]})
        assert not compare(reader, front, inputs, batch)
        assert reader.read(front, batch).status == STATUS["not_a_text"]


def test_sanitizers(tmp_path: Path) -> None:
    """No undefined behaviour, and no byte outside the buffers."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no address sanitizer")
    made = compiled(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
    texts = tmp_path / "texts"
    column = pa.array([*DOCUMENTS, *random_texts(1, 50), "ΟΔΟΣ", "Σ", "aΣ"], pa.string_view())
    batch = pa.record_batch({"text": column, "number": pa.array(np.ones(len(column)))})
    fronts = [both(text_graph(name), BOTH)[0] for name in TEXT_CASES]
    batches = [batch if len(front.columns) == 2 else batch.select(["text"]) for front in fronts]
    texts.write_bytes(pickle.dumps(list(zip(fronts, batches, strict=True))))
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.arrow_checks", str(made), str(texts)],
        cwd=root,
        env={
            **os.environ,
            "LD_PRELOAD": str(Path(library).resolve()),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": str(root),
            "PYTHONMALLOC": "malloc",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"
