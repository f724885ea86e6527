"""Texts as an operation of the graph: its reference against scikit-learn; what linear models make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.utils import murmurhash3_32

from hbtvm.frontends import from_object
from hbtvm.graph.columns.characters import CONTEXT, characters
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.kernel_input import Feeds
from hbtvm.graph.columns.steps import Arithmetic, Clip
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, Table, side_by_side
from hbtvm.graph.columns.text import Stage, Terms, Vectorize, murmur3
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.networks.fold_linear import fold
from hbtvm.graph.networks.fold_text import block_of, blocks_of, narrowed
from tests.texts import DOCUMENTS, random_texts, texts_of

TEXTS = [*DOCUMENTS, *random_texts(1, 30)]


def operation_of(vectorizer: object) -> Vectorize:
    anchor = from_object(vectorizer).anchor
    assert isinstance(anchor, Columns) and isinstance(anchor.table.columns, AllColumns)
    operation = anchor.table.columns.operation
    assert isinstance(operation, Vectorize)
    return operation


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(),
        CountVectorizer(token_pattern=r"[a-z]{2,}", stop_words=["the"], ngram_range=(1, 3)),
        CountVectorizer(analyzer="char", ngram_range=(1, 3), strip_accents="unicode", lowercase=False),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), strip_accents="ascii", sublinear_tf=True),
        HashingVectorizer(n_features=32, norm="l1", ngram_range=(1, 2)),
        HashingVectorizer(n_features=32, norm=None, binary=True, alternate_sign=False),
    ],
)
def test_reference(vectorizer: CountVectorizer) -> None:
    expected = vectorizer.fit(TEXTS).transform(TEXTS).toarray()
    found = operation_of(vectorizer).reference(texts_of(TEXTS))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", range(12))
def test_hash(size: int) -> None:
    data = bytes(np.random.default_rng(size).integers(0, 256, size).tolist())
    assert murmur3(data) == murmurhash3_32(data, seed=0, positive=True)


@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
def test_characters_are_as_python_has_them(accents: None) -> None:
    tables = characters(r"\w", True, accents)
    rng = np.random.default_rng(0)
    for code in (*range(0x80, 0x500), *rng.integers(0x80, 0x30000, 3000).tolist()):
        text = chr(code)
        kind = int(tables.classes[tables.class_page[code >> 8], code & 255])
        assert bool(kind & 4) == text.isspace()
        assert bool(kind & 1) == (text.isalnum() or text == "_")
        if tables.maps[tables.map_page[code >> 8], code & 255] == CONTEXT:
            assert text == "Σ" and accents != "ascii"


def test_lower_case_is_lower_case() -> None:
    # What is lower case once is not changed again: texts may be brought into lower case twice.
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    once = every.lower()
    assert once == once.lower()


def test_linear_models_swallow_terms() -> None:
    operation = operation_of(CountVectorizer().fit(TEXTS))
    width = operation.columns
    number = Column(Raw(1), (Arithmetic("multiply", 2.0),))
    scaled = Column(Made(operation, 3), (Arithmetic("subtract", 1.0), Arithmetic("divide", 4.0)))
    table = side_by_side([Table((number,)), Table(AllColumns(operation)), Table((scaled,))])
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(len(table), 3))
    intercept = rng.normal(size=3)
    raw = [np.array(TEXTS, object), rng.normal(size=len(TEXTS))]
    folded = fold(table, weight, intercept)
    assert [feed.source for feed in folded.feeds.feeds[:1]] == [Raw(1)]
    assert len(folded.feeds.feeds) == 4
    columns = Table(tuple(Column(feed.source, feed.steps) for feed in folded.feeds.feeds))
    found = folded.anchor.reference(evaluate(columns, raw))
    np.testing.assert_allclose(found, evaluate(table, raw) @ weight + intercept, rtol=1e-9, atol=1e-9)
    assert f"{width:,} terms" in " ".join(folded.rewrites)


def test_no_weight_at_all() -> None:
    operation = operation_of(CountVectorizer().fit(TEXTS))
    table = Table(AllColumns(operation))
    folded = fold(table, np.zeros((len(table), 2)), np.array([1.0, 2.0]))
    assert len(folded.feeds.feeds) == 1
    columns = Table(tuple(Column(feed.source) for feed in folded.feeds.feeds))
    found = folded.anchor.reference(evaluate(columns, [np.array(TEXTS, object)]))
    assert np.array_equal(found, np.tile([1.0, 2.0], (len(TEXTS), 1)))


def test_only_terms_that_are_read_are_made() -> None:
    operation = operation_of(TfidfVectorizer().fit(TEXTS))
    feeds = Feeds()
    for index in (5, 2, 5):
        feeds.host(Column(Made(operation, index), (Clip(0.0, 0.4),)), True, True)
    found = narrowed(feeds.feeds)
    assert {feed.source.operation.width for feed in found if isinstance(feed.source, Made)} == {2}
    raw = [np.array(TEXTS, object)]
    before = Table(tuple(Column(feed.source, feed.steps) for feed in feeds.feeds))
    after = Table(tuple(Column(feed.source, feed.steps) for feed in found))
    np.testing.assert_allclose(evaluate(after, raw), evaluate(before, raw), rtol=1e-15)


def test_blocks() -> None:
    operation = operation_of(CountVectorizer().fit(TEXTS))
    half = Arithmetic("divide", 2.0)
    some = tuple(Column(Made(operation, i), (half,)) for i in (4, 1))
    twice = tuple(Column(Made(operation, i)) for i in (4, 4))
    raw = [np.array(TEXTS, object), np.arange(len(TEXTS), dtype=float)]
    block = block_of(Table(some))
    assert block is not None and block.width == 2
    assert np.array_equal(block.reference(texts_of(TEXTS)), evaluate(Table(some), raw))
    assert block_of(Table(twice)) is None and block_of(Table((Column(Raw(0)),))) is None
    table = side_by_side([Table((Column(Raw(1)),)), Table(AllColumns(operation)), Table(some), Table(twice)])
    blocks = blocks_of(table)
    assert [isinstance(one, Table) for one in blocks] == [True, False, False, True]
    made = [
        evaluate(one, raw) if isinstance(one, Table) else one.reference(texts_of(TEXTS)) for one in blocks
    ]
    assert np.array_equal(np.concatenate(made, axis=1), evaluate(table, raw))


def test_columns_in_sequence() -> None:
    operation = operation_of(CountVectorizer().fit(TEXTS))
    table = side_by_side([Table((Column(Raw(1)),)), Table(AllColumns(operation)), Table((Column(Raw(0)),))])
    assert len(table) == operation.width + 2
    assert table.columns[0].source == Raw(1) and table.columns[-1].source == Raw(0)
    assert [one.source for one in table.columns[1:3]] == [Made(operation, 0), Made(operation, 1)]
    assert table.select([2, 0]).columns[0].source == Made(operation, 1)
    with pytest.raises(IndexError):
        table.columns[len(table)]


def damaged(operation: Vectorize) -> dict[str, Vectorize]:
    known, tables, analyzer = operation.vocabulary, operation.characters, operation.analyzer
    assert known is not None
    page, maps = tables.class_page.copy(), tables.maps.copy()
    page[7] = 1 << 15
    maps[0, 0] = (1 << 31) + (1 << 30) + 1
    beyond, falling = known.starts.copy(), known.starts.copy()
    beyond[-1] += 1
    falling[1] = falling[2] + 1
    place = np.zeros(operation.columns, np.int32)
    return {
        "classes": replace(operation, characters=replace(tables, class_page=page)),
        "maps": replace(operation, characters=replace(tables, maps=maps)),
        "expansions": replace(operation, characters=replace(tables, expansions=tables.expansions[:0])),
        "beyond": replace(operation, vocabulary=Terms(known.pool, beyond)),
        "falling": replace(operation, vocabulary=Terms(known.pool, falling)),
        "scale": operation.then(Stage("scale", np.ones(operation.columns + 1))),
        "single": operation.then(Stage("scale", np.ones(operation.columns, np.float32))),
        "binary": operation.then(Stage("binary", np.ones(operation.columns))),
        "select": operation.then(Stage("select", place)),
        "select beyond": operation.then(Stage("select", place + 9)),
        "weights": replace(operation, weight=np.ones((operation.columns - 1, 1))),
        "no sums": replace(operation, weight=np.ones((operation.columns, 0))),
        "both": replace(operation, hashed=4),
        "none": replace(operation, vocabulary=None),
        "lengths": replace(operation, analyzer=replace(analyzer, shortest=2)),
        "longest": replace(operation, analyzer=replace(analyzer, longest=1 << 40)),
        "least": replace(operation, analyzer=replace(analyzer, least=0)),
        "steps": replace(operation, inputs=Table((Column(Raw(0), (Clip(0.0, 1.0),)),))),
        "two columns": replace(operation, inputs=Table((Column(Raw(0)), Column(Raw(0))))),
    }


def test_tables_that_do_not_go_together_are_refused() -> None:
    operation = operation_of(TfidfVectorizer(strip_accents="unicode").fit(TEXTS))
    assert operation.validate() is operation
    for name, one in damaged(operation).items():
        with pytest.raises(ValueError):
            # As the codec does, of each object that it reads.
            for part in (one.characters, one.vocabulary, one):
                if part is not None:
                    part.validate()
            pytest.fail(name)
