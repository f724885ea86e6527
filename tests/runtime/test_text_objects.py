"""Texts and features of Python's objects, read by compiled code, or by Python where that can't."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

import hbtvm
from hbtvm.errors import InputError
from hbtvm.runtime.model import Model
from hbtvm.runtime.text import objects as text_objects
from hbtvm.runtime.text.kernel import TextKernel

NAMES = [
    "",
    "a",
    "é",
    "price",
    "x" * 7,
    "y" * 8,
    "z" * 15,
    "w" * 16,
    "日本" * 30,
    "n\0ul",
    "a=b",
    "long " * 40,
]


class Text(str):
    """A text of a class of its own."""


def same(found: Any, expected: Any) -> None:
    expected.sort_indices()
    found.check_format(full_check=True)
    assert type(found) is type(expected) and found.shape == expected.shape and found.dtype == expected.dtype
    for name in ("indptr", "indices", "data"):
        mine, theirs = getattr(found, name), getattr(expected, name)
        assert np.array_equal(mine, theirs, equal_nan=name == "data")


def random_rows(seed: int, form: str, rows: int = 60) -> list[Any]:
    rng = np.random.default_rng(seed)
    found: list[Any] = []
    for _ in range(rows):
        names = rng.choice(NAMES, rng.integers(0, 9)).tolist()
        kinds: list[Callable[[int], Any]] = [
            float, int, bool, np.float32, np.int64, np.bool_, lambda i: str(i) + "é", lambda i: 0,
            lambda i: 1 << (i + 60), np.float64,
        ]  # fmt: skip
        values = [kinds[rng.integers(len(kinds))](int(rng.integers(-3, 4))) for _ in names]
        if form == "string":
            found.append(names)
        else:
            pairs = list(zip(names, values, strict=True))
            found.append(dict(pairs) if form == "dict" else pairs)
    return found


@pytest.mark.parametrize("columns", [1, 4, 1000, 1 << 12])
@pytest.mark.parametrize("alternate", [True, False])
@pytest.mark.parametrize("form", ["dict", "pair", "string"])
def test_hashed_features(form: str, alternate: bool, columns: int) -> None:
    """With few columns most terms share one, and cancel each other out where signs alternate."""
    hasher = FeatureHasher(columns, input_type=form, alternate_sign=alternate)
    model = hbtvm.compile(hasher, threads=1)
    rows = random_rows(columns, form)
    same(model.transform(rows), hasher.transform(rows))
    same(model.transform(tuple(rows)), hasher.transform(rows))
    for row in rows[:20]:
        same(model.transform([row]), hasher.transform([row]))


def test_features_of_a_vocabulary() -> None:
    drawn = random_rows(5, "dict", 200)
    # (It takes no bools of numpy; and with a text, "a" would have the name of another.)
    rows = [
        {name: one for name, one in row.items() if not isinstance(one, np.bool_) and name != "a"}
        for row in drawn
    ]
    vectorizer = DictVectorizer().fit(rows[::2])
    model = hbtvm.compile(vectorizer, threads=1)
    same(model.transform(rows), vectorizer.transform(rows))
    for row in rows[:20]:
        same(model.transform([row]), vectorizer.transform([row]))
    vectorizer = DictVectorizer(dtype=np.float32).fit(rows)
    same(hbtvm.compile(vectorizer, threads=1).transform(rows), vectorizer.transform(rows))


def test_more_rows_than_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[TextKernel.__module__], "_LOCKED", 7)
    hasher = FeatureHasher(64, input_type="string")
    rows = [[], *random_rows(1, "string"), [f"{i}" for i in range(900)], []]
    model = hbtvm.compile(hasher, threads=1)
    same(model.transform(rows), hasher.transform(rows))
    same(model.transform(rows[-2:-1]), hasher.transform(rows[-2:-1]))


@pytest.mark.parametrize("shape", [(30, 3), (1, 5), (8, 1)])
def test_arrays_of_strings(shape: tuple[int, int]) -> None:
    hasher = FeatureHasher(32, input_type="string")
    model = hbtvm.compile(hasher, threads=1)
    grid = np.random.default_rng(0).choice(np.array(NAMES, object), shape)
    for rows in (grid, np.asfortranarray(grid), np.repeat(grid, 2, 1)[:, ::2], grid[::-1]):
        same(model.transform(rows), hasher.transform(rows))
        same(model.transform([*rows[:1]]), hasher.transform(rows[:1]))


@pytest.mark.parametrize(
    "rows",
    [
        [["a", Text("b")], ["c"]],
        [["a", b"b"], ["c"]],
        [["a", "b\udc80"[:1]], ("c", "d")],
        [{"a", "b"}, ["c"]],
        [iter(["a"]), ["c"]],
    ],
)
def test_rows_that_python_reads(rows: list[Any]) -> None:
    hasher = FeatureHasher(8, input_type="string")
    again = [list(row) for row in rows if not hasattr(row, "__next__")] or [["a"]]
    model = hbtvm.compile(hasher, threads=1)
    assert model.transform(rows).shape == (2, 8)
    same(model.transform(again), hasher.transform(again))


def test_features_that_are_refused_among_others() -> None:
    model = hbtvm.compile(FeatureHasher(8), threads=1)
    good = {"a": 1.0}
    for bad in ({"a": object()}, {3: 1.0}, ["a"], {"a": 10**400}, None):
        with pytest.raises(InputError, match="the rows"):
            model.transform([good] * 5 + [bad])
    same(model.transform([good]), FeatureHasher(8).transform([good]))


@pytest.fixture(scope="module")
def long_terms() -> list[str]:
    rng = np.random.default_rng(2)
    sizes = [2, 6, 7, 8, 9, 14, 15, 16, 17, 23, 24, 25, 63, 64, 65, 200, 5000]
    words = ["".join(rng.choice(list("abcdefghé"), size)) for size in np.repeat(sizes, 3)]
    # Those that differ in their last letter alone, and beginnings of others.
    words += [word[:-1] + "q" for word in words] + [word[: len(word) // 2] for word in words]
    texts = [" ".join(rng.choice(words, count)) for count in (0, 1, 8, 9, 24, 25, 64, 65, 300, 5000)]
    texts += ["", " ", "\n", "a", "B" * 64, "c " * 64, " " * 63 + "de", "f" * 63 + " g" * 5]
    return texts


@pytest.mark.parametrize(
    "parameters",
    [
        {"ngram_range": (1, 3)},
        {"token_pattern": r"[acegikm13579_]{1,}"},
        {"ngram_range": (2, 2), "stop_words": ["ab", "q" * 64], "binary": True},
    ],
)
def test_long_terms(parameters: dict[str, Any], long_terms: list[str]) -> None:
    texts, vectorizer = long_terms, CountVectorizer(**parameters).fit(long_terms)
    model = hbtvm.compile(vectorizer, threads=1)
    for rows in (texts, np.array(texts, object), tuple(texts)):
        same(model.transform(rows), vectorizer.transform(texts))
    for text in texts:
        same(model.transform([text]), vectorizer.transform([text]))


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
def test_wide_ranges_of_characters(analyzer: str) -> None:
    texts = ["ab  cd\t\tefghijklmnopqrstuvwxyz", "", " x ", "naïve café " * 3, "aaaa" * 30, "é" * 40]
    for lengths in ((1, 70), (16, 18), (200, 300)):
        hashing = HashingVectorizer(n_features=1 << 10, analyzer=analyzer, ngram_range=lengths, norm=None)
        same(hbtvm.compile(hashing, threads=1).transform(texts), hashing.transform(texts))
        if lengths[0] < 100 or analyzer == "char_wb":
            counts = TfidfVectorizer(analyzer=analyzer, ngram_range=lengths).fit(texts[::2])
            same(hbtvm.compile(counts, threads=1).transform(texts), counts.transform(texts))


def test_other_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where objects are of no known layout, Python reads them."""
    monkeypatch.setattr(text_objects, "_python", lambda: None)
    texts = ["The fox", "", "café café"]
    counts = CountVectorizer().fit(texts)
    same(hbtvm.compile(counts, threads=1).transform(texts), counts.transform(texts))
    for form in ("dict", "pair", "string"):
        hasher, rows = FeatureHasher(8, input_type=form), random_rows(3, form)
        same(hbtvm.compile(hasher, threads=1).transform(rows), hasher.transform(rows))


def test_lists_that_change_while_they_are_read() -> None:
    """Other threads may take rows away: each call fails, or sees rows that were there."""
    model: Model = hbtvm.compile(FeatureHasher(16, input_type="string"), threads=1)
    counts = hbtvm.compile(CountVectorizer().fit(["a1 b2", "c3"]), threads=2)
    rows, texts, stop = [["a", "b"]] * 500, ["a1 b2 c3"] * 500, threading.Event()

    def change() -> None:
        while not stop.is_set():
            for one, value in ((rows, ["a", "b"]), (texts, "a1 b2 c3")):
                del one[100:]
                one.extend([value] * 400)  # type: ignore[list-item]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(60):
            for one, transform in ((rows, model.transform), (texts, counts.transform)):
                try:
                    found = transform(one)
                except (InputError, RuntimeError, ValueError):
                    continue
                assert found.nnz == found.shape[0] * (2 if one is rows else 3)
    finally:
        stop.set()
        thread.join()
