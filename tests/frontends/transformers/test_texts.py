"""Vectorizers of texts and of features: the library's sparse rows, entry by entry; and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, Normalizer, OneHotEncoder

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.texts import DOCUMENTS, SURROGATES, random_texts

TEXTS = [*DOCUMENTS, *random_texts(0, 40)]


def same(fitted: Any, rows: Any, model: Any = None) -> None:
    """Check that sparse rows, or dense ones, are the library's, of its type."""
    expected = fitted.transform(rows)
    found = (model or hbtvm.compile(fitted, threads=1)).transform(rows)
    assert scipy.sparse.issparse(found) == scipy.sparse.issparse(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if scipy.sparse.issparse(expected):
        assert np.array_equal(found.indptr, expected.indptr)
        assert np.array_equal(found.indices, expected.indices)
        found, expected = found.data, expected.data
    if expected.dtype.kind == "i":
        assert np.array_equal(found, expected)
    else:
        limit = 1e-12 if expected.dtype == np.float64 else 1e-6
        np.testing.assert_allclose(found, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize(
    ("analyzer", "lengths"),
    [
        ("word", (1, 1)),
        ("word", (1, 3)),
        ("word", (2, 2)),
        ("char", (1, 1)),
        ("char", (2, 4)),
        ("char_wb", (1, 3)),
        ("char_wb", (4, 6)),
    ],
)
def test_counts(analyzer: str, lengths: tuple[int, int], lowercase: bool, accents: str | None) -> None:
    vectorizer = CountVectorizer(
        analyzer=analyzer, ngram_range=lengths, lowercase=lowercase, strip_accents=accents
    )
    same(vectorizer.fit(TEXTS[::2]), TEXTS)


PATTERNS = (
    *(r"(?u)\b\w+\b", r"\w+", r"\b\w\w+", r"\w\w\w+\b", r"(?u)\b(\w\w+)\b", r"\w{3,}", r"\w{2}\w+", r"(\w+)"),
    *(r"[a-z]+", r"\b[a-z]{2,}\b", r"\S+", r"[^\s]+", r"[^\W\d_]+", r"\b[^\W\d_]{3,}\b", r"\d+", r"[\w'-]+"),
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_token_patterns(pattern: str) -> None:
    same(CountVectorizer(token_pattern=pattern).fit(TEXTS), TEXTS)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w+|\d",
        r"\b[^\s]+\b",
        r"\b[a-z]+",
        r"a\w+",
        r"\w{3}",
        r"(?i)[a-z]+",
        r"\w+(?=x)",
        r"\w*",
        r"\w+?",
        "[",
    ],
)
def test_other_token_patterns_are_refused_by_name(pattern: str) -> None:
    vectorizer = CountVectorizer(vocabulary=["aa"], token_pattern=pattern)
    with pytest.raises(UnsupportedModel, match=r"CountVectorizer.*token_pattern"):
        from_object(vectorizer)


@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("words", ["english", ["the", "fox", "absent"]])
def test_stop_words(words: Any, lengths: tuple[int, int], tmp_path: Path) -> None:
    vectorizer = CountVectorizer(stop_words=words, ngram_range=lengths).fit(TEXTS)
    path = tmp_path / "model.pkl"
    for protocol in (2, 5):
        path.write_bytes(pickle.dumps(vectorizer, protocol))
        same(vectorizer, TEXTS, hbtvm.compile(path, threads=1))
    given = CountVectorizer(
        vocabulary=["fox", "the", "the dog", "over the"], stop_words=words, ngram_range=lengths
    )
    same(given, TEXTS)
    same(HashingVectorizer(n_features=64, stop_words=words, ngram_range=lengths), TEXTS)


def test_stop_words_as_a_set(tmp_path: Path) -> None:
    # As releases before 1.2 took them.
    vectorizer = CountVectorizer(stop_words=["the", "over"], ngram_range=(1, 2)).fit(TEXTS)
    vectorizer.stop_words = frozenset(vectorizer.stop_words)
    path = tmp_path / "model.pkl"
    for protocol in (2, 5):
        path.write_bytes(pickle.dumps(vectorizer, protocol))
        same(vectorizer, TEXTS, hbtvm.compile(path, threads=1))


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(binary=True, dtype=np.float32),
        CountVectorizer(vocabulary={"dog": 1, "fox": 0, "İstanbul": 2}, lowercase=False),
        CountVectorizer(min_df=2, max_features=5),
        TfidfVectorizer(),
        TfidfVectorizer(sublinear_tf=True, norm="l1", ngram_range=(1, 2)),
        TfidfVectorizer(use_idf=False, norm=None, binary=True),
        TfidfVectorizer(smooth_idf=False, dtype=np.float32),
        HashingVectorizer(),
        HashingVectorizer(n_features=7, ngram_range=(1, 3), norm="l1"),
        HashingVectorizer(n_features=16, alternate_sign=False, binary=True, norm=None, dtype=np.float32),
        HashingVectorizer(n_features=64, analyzer="char_wb", ngram_range=(2, 3), strip_accents="unicode"),
    ],
)
def test_vectorizers(vectorizer: Any) -> None:
    same(vectorizer.fit(TEXTS), TEXTS)


def test_surrogates() -> None:
    # (The library hashes UTF-8, of which surrogates have none.)
    texts = [*TEXTS, *SURROGATES]
    same(CountVectorizer().fit(texts), texts)
    same(CountVectorizer(analyzer="char", strip_accents="unicode").fit(texts), texts)


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(CountVectorizer(), TfidfTransformer()),
        make_pipeline(CountVectorizer(), TfidfTransformer(norm="l1", sublinear_tf=True, use_idf=False)),
        make_pipeline(HashingVectorizer(n_features=64, norm=None, alternate_sign=False), TfidfTransformer()),
        make_pipeline(HashingVectorizer(n_features=64), TfidfTransformer(norm=None)),
        make_pipeline(CountVectorizer(), Normalizer("max"), Normalizer("l1")),
        make_pipeline(CountVectorizer(min_df=2), MaxAbsScaler(), TfidfTransformer()),
        FeatureUnion(
            [("count", CountVectorizer()), ("chars", TfidfVectorizer(analyzer="char"))],
            transformer_weights={"count": 0.5},
        ),
        make_union(HashingVectorizer(n_features=8), make_pipeline(CountVectorizer(), TfidfTransformer())),
    ],
)
def test_what_follows(pipeline: Any) -> None:
    same(pipeline.fit(TEXTS), TEXTS)


def test_norms_of_selected_terms() -> None:
    labels = [len(text) % 3 for text in TEXTS]
    pipeline = make_pipeline(CountVectorizer(), SelectKBest(chi2, k=9), TfidfTransformer())
    same(pipeline.fit(TEXTS, labels), TEXTS)


def test_weights_of_terms_behind_other_encoders() -> None:
    rows = np.array([["a", "x"], ["b", "x"], ["a", "y"]], object)
    same(make_pipeline(OneHotEncoder(), TfidfTransformer()).fit(rows), rows)
    with pytest.raises(UnsupportedModel, match="sublinear_tf"):
        from_object(make_pipeline(OneHotEncoder(), TfidfTransformer(sublinear_tf=True)).fit(rows))


FEATURES: list[dict[str, Any]] = [
    {"a": 1, "b": 2.5, "c": 0},
    {"b": "x", "d": -3},
    {},
    {"a": True, "zz": "é", "c": np.float32(0.5)},
]


@pytest.mark.parametrize("count", [4, 1 << 20])
@pytest.mark.parametrize("sign", [True, False])
def test_hashed_features(count: int, sign: bool) -> None:
    same(FeatureHasher(count, alternate_sign=sign), FEATURES)
    same(FeatureHasher(count, alternate_sign=sign), [{"a": 1, "b": 2.0}, {"b": -1}])
    same(FeatureHasher(count, alternate_sign=sign), [{"a": "x", "b": "y"}, {"b": "z"}])
    pairs = [list(row.items()) for row in FEATURES]
    same(FeatureHasher(count, input_type="pair", alternate_sign=sign, dtype=np.float32), pairs)
    names = [list(row) for row in FEATURES]
    same(FeatureHasher(count, input_type="string", alternate_sign=sign), names)
    array = np.array([["a", "b"], ["é", "a"]], object)
    same(FeatureHasher(count, input_type="string", alternate_sign=sign), array)


def test_dicts_of_features() -> None:
    same(DictVectorizer().fit(FEATURES), [*FEATURES, {"a": 3, "new": 1}, {"b": "new"}])
    same(DictVectorizer(sparse=False, sort=False).fit(FEATURES), FEATURES)
    several = [{"a": ["p", "q"]}, {"a": "p", "n": 1.5}, {"n": None}]
    same(DictVectorizer(separator="_", dtype=np.float32).fit(several), several)


@pytest.mark.parametrize(
    ("vectorizer", "name"),
    [
        (CountVectorizer(tokenizer=str.split, token_pattern=None), "tokenizer"),
        (CountVectorizer(preprocessor=str.upper), "preprocessor"),
        (CountVectorizer(analyzer=str.split), "analyzer"),
        (CountVectorizer(strip_accents=str.upper), "strip_accents"),
        (CountVectorizer(input="filename", vocabulary=["a"]), "input"),
        (HashingVectorizer(n_features=1 << 21), "n_features"),
        (HashingVectorizer(ngram_range=(0, 1)), "ngram_range"),
        (HashingVectorizer(stop_words="german"), "stop_words"),
        (CountVectorizer(), "not fitted"),
        (TfidfVectorizer(vocabulary=["a"]), "not fitted"),
        (DictVectorizer(), "not fitted"),
    ],
)
def test_parameters_are_refused_by_name(vectorizer: Any, name: str) -> None:
    if "fitted" not in name and "vocabulary_" not in vars(vectorizer):
        vectorizer.vocabulary_ = {"a": 0}
    with pytest.raises(UnsupportedModel, match=f"(?s){type(vectorizer).__name__}.*{name}"):
        from_object(vectorizer)


def test_texts_that_another_step_made_are_refused() -> None:
    pipeline = make_pipeline(TfidfTransformer(), CountVectorizer(vocabulary=["a"]))
    pipeline[0].n_features_in_ = 1
    pipeline[0].idf_ = np.ones(1)
    with pytest.raises(UnsupportedModel, match="another step made"):
        from_object(pipeline)


@pytest.mark.parametrize(
    "vocabulary", [{"a": 0, "b": 0}, {"a": 1}, {"a": -1, "b": 0}, {"a": "0"}, {}, {"a": True, "b": 0}, ["a"]]
)
def test_damaged_vocabularies(vocabulary: Any) -> None:
    vectorizer = CountVectorizer()
    vectorizer.vocabulary_ = vocabulary
    with pytest.raises(ModelError, match="damaged"):
        from_object(vectorizer)


def test_damaged_weights_of_terms() -> None:
    vectorizer = TfidfVectorizer().fit(TEXTS)
    vectorizer._tfidf.idf_ = vectorizer._tfidf.idf_[1:]
    with pytest.raises(ModelError, match="weights of terms"):
        from_object(vectorizer)
