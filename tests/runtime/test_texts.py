"""Texts at run time: every container, any bytes, threads, packages that are damaged, and errors."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

import hbtvm
from hbtvm.compiler.building.cpu import text_library
from hbtvm.errors import InputError, PackageError
from hbtvm.graph.columns.text import Vectorize
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.archive import read_archive
from hbtvm.runtime.package.file import _package, from_bytes, to_bytes
from hbtvm.runtime.package.manifest import MANIFEST
from hbtvm.runtime.text import kernel as text_kernel
from hbtvm.runtime.text import library as code
from hbtvm.runtime.text.kernel import TextKernel
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.text.texts import of_strings
from hbtvm.runtime.threads import ThreadPool
from tests.graph.test_text import operation_of
from tests.texts import DOCUMENTS, random_texts, texts_of

TEXTS = [*DOCUMENTS, *random_texts(2, 30)]


@pytest.fixture(scope="module")
def counts() -> Model:
    return hbtvm.compile(CountVectorizer().fit(TEXTS), threads=1)


def dense(model: Model, rows: Any) -> np.ndarray:
    found: np.ndarray = model.transform(rows).toarray()
    return found


CONTAINERS: dict[str, Callable[[list[str]], Any]] = {
    "tuple": tuple,
    "iterator": iter,
    "objects": lambda texts: np.array(texts, object),
    "pandas": pd.Series,
    "pandas objects": lambda texts: pd.Series(texts, dtype=object),
    "pandas categories": lambda texts: pd.Series(texts, dtype="category"),
    "pandas arrow": lambda texts: pd.Series(texts, dtype=pd.ArrowDtype(pa.large_string())),
    "pandas part": lambda texts: pd.Series(["x", *texts, "y"])[1:-1],
    "arrow": pa.array,
    "arrow large": lambda texts: pa.array(texts, pa.large_string()),
    "arrow view": lambda texts: pa.array(texts, pa.string_view()),
    "arrow dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "arrow chunks": lambda texts: pa.chunked_array([texts[:3], texts[3:]]),
    "arrow part": lambda texts: pa.array(["x", "yy", *texts, "z"])[2:-1],
    "polars": pl.Series,
    "polars part": lambda texts: pl.Series(["x", *texts, "y"])[1:-1],
    "frame": lambda texts: pd.DataFrame({"text": texts}),
    "table": lambda texts: pa.table({"text": texts}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(name: str, counts: Model) -> None:
    make = CONTAINERS[name]
    expected = dense(counts, TEXTS)
    assert np.array_equal(dense(counts, make(TEXTS)), expected)
    assert np.array_equal(dense(counts, make(TEXTS[4:5])), expected[4:5])


def test_numpy_texts(counts: Model) -> None:
    # (numpy drops NULs at the end of its own texts.)
    texts = np.array(["The fox", "a dog"])
    assert np.array_equal(dense(counts, texts), dense(counts, texts.tolist()))


def test_bytes() -> None:
    vectorizer = CountVectorizer(encoding="latin-1").fit(["café"])
    model = hbtvm.compile(vectorizer, threads=1)
    rows = ["café".encode("latin-1"), "café"]
    assert np.array_equal(dense(model, rows), vectorizer.transform(rows).toarray())
    ignoring = CountVectorizer(decode_error="ignore").fit(["caf"])
    rows = [b"caf\xe9", "caf"]
    assert np.array_equal(dense(hbtvm.compile(ignoring), rows), ignoring.transform(rows).toarray())
    with pytest.raises(InputError, match="row 1: the bytes of a text"):
        hbtvm.compile(CountVectorizer().fit(["caf"])).transform(["caf", b"caf\xe9"])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a text", "one text by itself"),
        ([], "at least one row"),
        (["a", None], "row 1: expected a text, got None"),
        (["a", float("nan")], "row 1: expected a text, got nan"),
        ([["a"]], "row 0: expected a text"),
        ([3], "expected a text, got 3"),
        (pa.array(["a", None]), "row 1: expected a text, got None"),
        (pd.Series(["a", None, "b"]), "row 1: expected a text"),
        (pd.Series([1.5, 2.0]), "expected texts, got numbers"),
        (np.arange(3), "expected texts, got numbers"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), "pass one of its columns"),
        (3, "rows of one value each, got a int"),
    ],
)
def test_rows_that_are_refused(rows: Any, words: str, counts: Model) -> None:
    with pytest.raises(InputError, match=words):
        counts.transform(rows)


@pytest.mark.parametrize(
    ("vectorizer", "rows"),
    [
        (FeatureHasher(4), [["a"]]),
        (FeatureHasher(4), ["a"]),
        (FeatureHasher(4, input_type="string"), ["a"]),
        (FeatureHasher(4, input_type="string"), [[1]]),
        (FeatureHasher(4, input_type="string"), [{"a": 1}]),
        (FeatureHasher(4, input_type="pair"), [["a"]]),
        (FeatureHasher(4), [{"a": object()}]),
        (DictVectorizer().fit([{"a": 1}]), [{"a": {"b": 1}}]),
        (DictVectorizer().fit([{"a": 1}]), [{"a": [1]}]),
        (DictVectorizer().fit([{"a": 1}]), [1]),
    ],
)
def test_features_that_are_refused(vectorizer: Any, rows: Any) -> None:
    with pytest.raises(InputError, match="the rows"):
        hbtvm.compile(vectorizer, threads=1).transform(rows)


def test_any_bytes() -> None:
    """Arrow's arrays are not checked: bytes that are no UTF-8 are read as what stands for them."""
    rng = np.random.default_rng(0)
    usual = np.frombuffer("abcé_ΣÀ日😀 \x00".encode(), np.uint8)
    lengths = rng.integers(0, 60, 300)
    data = np.where(
        rng.random(lengths.sum()) < 0.5, rng.choice(usual, lengths.sum()), rng.integers(0, 256, lengths.sum())
    ).astype(np.uint8)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    array = pa.Array.from_buffers(pa.string(), 300, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    parts = [data[start:stop].tobytes() for start, stop in itertools.pairwise(offsets)]
    texts = [part.decode("utf-8", "replace") for part in parts]
    for lowercase in (True, False):
        vectorizer = HashingVectorizer(n_features=1 << 16, lowercase=lowercase, norm=None)
        found = hbtvm.compile(vectorizer, threads=1).transform(array)
        assert abs(found - vectorizer.transform(texts)).max() == 0
    for analyzer in ("char", "char_wb"):
        shapes = CountVectorizer(analyzer=analyzer, ngram_range=(1, 5), strip_accents="unicode").fit(texts)
        assert hbtvm.compile(shapes, threads=1).transform(array).sum() > 0


@pytest.mark.parametrize("analyzer", ["word", "char_wb"])
def test_long_texts_and_threads(analyzer: str) -> None:
    rng = np.random.default_rng(3)
    words = np.array(random_texts(4, 3000, 8))
    texts = [" ".join(rng.choice(words, size)) for size in (0, 1, 5000, 3, *rng.integers(0, 90, 400))]
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 3)).fit(texts[::2])
    expected = vectorizer.transform(texts)
    kernel = TextKernel(TextLibrary(text_library(), ThreadPool(3)), operation_of(vectorizer))
    read = of_strings(texts)
    assert read.size > 2 * text_kernel._CHUNK
    columns, values, starts = kernel.rows(read)
    found = scipy.sparse.csr_matrix((values, columns, starts), expected.shape)
    assert np.array_equal(found.indptr, expected.indptr) and np.array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-12)
    weight = rng.normal(size=(expected.shape[1], 2))
    sums = TextKernel(TextLibrary(text_library(), ThreadPool(3)), kernel.operation.weighted(weight))
    np.testing.assert_allclose(sums.sums(read), expected @ weight, rtol=1e-9, atol=1e-11)


def test_random_texts_as_the_reference_has_them() -> None:
    texts = random_texts(11, 400, 60)
    for vectorizer in (
        TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), strip_accents="unicode").fit(texts[:200]),
        HashingVectorizer(n_features=50, analyzer="char_wb", ngram_range=(2, 3)),
    ):
        operation = operation_of(vectorizer)
        kernel = TextKernel(TextLibrary(text_library()), operation)
        expected = operation.reference(texts_of(texts))
        np.testing.assert_allclose(kernel.sums(of_strings(texts)), expected, rtol=1e-12, atol=1e-15)
        for row in range(0, 400, 7):
            np.testing.assert_allclose(kernel.of_text(texts[row])[0], expected[row], rtol=1e-12, atol=1e-15)


def test_a_long_text_by_itself() -> None:
    vectorizer = HashingVectorizer(n_features=16, norm=None)
    kernel = TextKernel(TextLibrary(text_library()), operation_of(vectorizer))
    text = "Ένας ΣΑΣ word " * 1000
    assert np.array_equal(kernel.of_text(text), vectorizer.transform([text]).toarray())


def test_packages_keep_texts(counts: Model) -> None:
    again = pickle.loads(pickle.dumps(counts))
    assert np.array_equal(dense(again, TEXTS), dense(counts, TEXTS))
    assert np.array_equal(dense(copy.deepcopy(counts), TEXTS), dense(counts, TEXTS))
    assert to_bytes(again.package) == to_bytes(counts.package)


def test_a_library_of_another_version_is_refused(counts: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_VERSION", 3)
    with pytest.raises(PackageError, match="version 2, but this hbtvm calls version 3"):
        Model(counts.package).transform(TEXTS)


def test_a_library_that_is_none_is_refused(counts: Model) -> None:
    with pytest.raises(PackageError, match="can't be loaded"):
        TextKernel(TextLibrary(b"\x7fELF"), operation_of(CountVectorizer().fit(TEXTS))).of_text("a")


def manifest_of(model: Model) -> tuple[dict[str, Any], dict[str, memoryview]]:
    members = read_archive(to_bytes(model.package), MANIFEST)
    manifest = json.loads(bytes(members.pop(MANIFEST)))
    members.pop("manifest.sha256")
    return manifest, members


def test_damaged_manifests_are_refused() -> None:
    model = hbtvm.compile(TfidfVectorizer(ngram_range=(1, 2), stop_words=["the"]).fit(TEXTS), threads=1)
    manifest, members = manifest_of(model)
    assert _package(copy.deepcopy(manifest), members).text_library
    (operation,) = manifest["shared"]
    arrays = sorted(name for name in members if name.endswith(".npy"))
    assert operation["kind"] == "Vectorize" and len(arrays) == 8
    mutants: list[dict[str, Any]] = []

    def add(change: Callable[[dict[str, Any]], object]) -> None:
        mutant = copy.deepcopy(manifest)
        change(mutant)
        mutants.append(mutant)

    def of(mutant: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = mutant["shared"][0]
        return found

    defaults = {one.name for one in fields(Vectorize) if one.default is not MISSING}
    for name in operation:
        if name not in defaults:
            add(lambda one, name=name: of(one).pop(name))
        add(lambda one, name=name: of(one).update({name: [object.__name__]}))
    for name in operation["analyzer"]:
        add(lambda one, name=name: of(one)["analyzer"].update({name: -1}))
    add(lambda one: of(one)["analyzer"].update(longest=1 << 70))
    add(lambda one: of(one)["stages"].append({"kind": "scale"}))
    add(lambda one: of(one)["stages"].append({"kind": "other"}))
    add(lambda one: of(one).update(hashed=5))
    add(lambda one: one.pop("text_library"))
    add(lambda one: one.update(text_library="kernels/none.so"))
    add(lambda one: one["parts"]["table"].update(columns=[1]))
    add(lambda one: one["parts"]["table"].update(columns=[True]))
    add(lambda one: one["input"].update(rows_are_values=1))
    for mutant in mutants:
        with pytest.raises(PackageError):
            _package(mutant, members)
    # Any array in another one's place is refused, or as harmless as its own.
    for group in ("characters", "vocabulary"):
        for name in operation[group]:
            for other in arrays:
                mutant = copy.deepcopy(manifest)
                of(mutant)[group][name] = other
                try:
                    package = _package(mutant, members)
                except PackageError:
                    continue
                Model(package).transform(TEXTS)


def test_operations_that_are_not_known(counts: Model) -> None:
    manifest, members = manifest_of(counts)
    with pytest.raises(PackageError, match=r"shared\[0\]\.kind is 'Later', which this .* not know"):
        _package({**manifest, "shared": [{"kind": "Later"}]}, members)


def test_the_same_package_has_the_same_bytes(counts: Model) -> None:
    assert to_bytes(from_bytes(to_bytes(counts.package))) == to_bytes(counts.package)
