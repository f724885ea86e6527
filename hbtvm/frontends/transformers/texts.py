"""Vectorizers of texts and of dicts: rows of single values become columns of terms."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array, kind_of
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers.dispatch import MOST_COLUMNS, names_in
from hbtvm.frontends.transformers.token_patterns import token_of
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import dtype_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.characters import Accents
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.steps import Arithmetic, Cast
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, Table
from hbtvm.graph.columns.text import Analyzer, Form, Kind, Stage, StageKind, Terms, Vectorize
from hbtvm.graph.networks.fold_text import block_of
from hbtvm.words.printable import shown


def count_vectorizer(record: Record, table: Table, where: Where) -> Table:
    """``CountVectorizer``: the count of each term of the vocabulary in a text."""
    names = _vocabulary(record, where)
    fitted = not record.get("fixed_vocabulary_", True)
    operation = Vectorize(
        _texts(table, where),
        analyzer := _analyzer(record, where, filtered=fitted),
        analyzer.tables(),
        Terms.of(names),
        stages=_binary(record),
        dtype=dtype_of(record.get("dtype", np.dtype(np.int64)), where).name,
    )
    return _all(operation, tuple(names))


def tfidf_vectorizer(record: Record, table: Table, where: Where) -> Table:
    """``TfidfVectorizer``: a ``CountVectorizer`` and a ``TfidfTransformer``."""
    counts = count_vectorizer(record, table, where)
    inner = record.get("_tfidf", None)
    if not isinstance(inner, Record):
        raise where.unsupported("is not fitted; hbtvm compiles trained models.")
    # Its parameters override those of the inner transformer, as in the library.
    outer = {name: record.get(name) for name in ("norm", "use_idf", "sublinear_tf") if name in record}
    return _tfidf(inner, outer, counts, where)


def tfidf_transformer(record: Record, table: Table, where: Where) -> Table:
    """``TfidfTransformer``: counts times weights of terms, rows divided by their norms."""
    return _tfidf(record, {}, table, where)


def hashing_vectorizer(record: Record, table: Table, where: Where) -> Table:
    """``HashingVectorizer``: terms counted by the hash of each."""
    analyzer = _analyzer(record, where, filtered=False)
    norm = _norm(record.get("norm", "l2"), where)
    return _hashed(record, table, where, analyzer, (*_binary(record), *norm))


def feature_hasher(record: Record, table: Table, where: Where) -> Table:
    """``FeatureHasher``: names of features counted, or their values added up, by the hash of each."""
    form = cast(Form, one_of(record, "input_type", ("dict", "pair", "string")))
    return _hashed(record, table, where, Analyzer("pairs", form=form), ())


def dict_vectorizer(record: Record, table: Table, where: Where) -> Table:
    """``DictVectorizer``: a column for each name of a feature, or for each of its texts."""
    names = [str(name) for name in record.sequence("feature_names_")]
    vocabulary = record.get("vocabulary_")
    if not isinstance(vocabulary, dict) or vocabulary != {name: at for at, name in enumerate(names)}:
        raise where.unsupported("has features that are not texts, or a vocabulary in another order.")
    if not names:
        raise where.unsupported("knows no feature, so there is nothing to compute.")
    analyzer = Analyzer("pairs", form="features", separator=record.text("separator"))
    dtype = dtype_of(record.get("dtype", np.dtype(np.float64)), where)
    if dtype.kind != "f":
        raise where.unsupported(f"has the dtype {dtype.name}; supported are float32 and float64.")
    operation = Vectorize(
        _texts(table, where), analyzer, analyzer.tables(), Terms.of(names), dtype=dtype.name
    )
    return replace(_all(operation, tuple(names)), sparse=bool(record.get("sparse", True)))


def normalized(table: Table, norm: str) -> Table | None:
    """Rows of terms divided by their norm; None for other tables."""
    block = block_of(table)
    return None if block is None else _all(block.then(Stage(cast(StageKind, norm))), table.names)


def _tfidf(record: Record, outer: dict[str, Any], table: Table, where: Where) -> Table:
    names = names_in(record, table)
    norm = _norm(outer.get("norm", record.get("norm", "l2")), where)
    sublinear = bool(outer.get("sublinear_tf", record.get("sublinear_tf", False)))
    idf = None
    if outer.get("use_idf", record.get("use_idf", True)):
        idf = _idf(record, len(table), where)
    block = block_of(table)
    if block is not None:
        stages = [Stage("logarithm")] if sublinear else []
        stages += [] if idf is None else [Stage("scale", idf)]
        dtype = "float32" if idf is not None and record.array("idf_", "f").dtype == np.float32 else "float64"
        return _all(replace(block.then(*stages, *norm), dtype=dtype), names)
    if sublinear:
        raise where.unsupported(
            "has sublinear_tf behind other steps than a vectorizer, which is not supported."
        )
    columns: Any = accepting(unified(table), nan=False).columns
    if idf is not None:
        columns = tuple(
            column.then(Cast("float64"), Arithmetic("multiply", weight))
            for column, weight in zip(columns, idf.tolist(), strict=True)
        )
    result = Table(columns, True, names)
    if norm:
        operation = Normalize(result, norm[0].kind, True)  # type: ignore[arg-type]
        result = Table(tuple(Column(Made(operation, i)) for i in range(len(table))), True, names)
    return result


def _idf(record: Record, width: int, where: Where) -> np.ndarray:
    if "idf_" in record:
        idf = record.array("idf_", "f", 1)
    elif isinstance(record.get("_idf_diag", None), Record):
        # As a diagonal matrix of scipy, before scikit-learn 1.5.
        idf = record.record("_idf_diag").array("data", "f").ravel()
    else:
        raise where.unsupported("is not fitted; hbtvm compiles trained models.")
    if len(idf) != width or not np.isfinite(idf).all():
        raise where.damaged(f"it has {len(idf)} weights of terms for {width} terms.")
    return idf.astype(np.float64)


def _norm(value: Any, where: Where) -> tuple[Stage, ...]:
    if value is None:
        return ()
    if value not in ("l1", "l2"):
        raise where.unsupported(f"has the norm {shown(value, 40)!r}; supported are l1, l2 and None.")
    return (Stage(value),)


def _binary(record: Record) -> tuple[Stage, ...]:
    return (Stage("binary"),) if record.get("binary", False) else ()


def _texts(table: Table, where: Where) -> Table:
    """Return the column of texts, without steps."""
    if len(table) != 1:
        raise where.damaged(f"it takes one column of texts, but gets {len(table)}.")
    column = table.columns[0]
    if not isinstance(column.source, Raw) or column.steps:
        raise where.unsupported("reads texts that another step made, which is not supported.")
    return Table((column,))


def _all(operation: Vectorize, names: tuple[str, ...] | None) -> Table:
    operation.validate()
    return Table(AllColumns(operation), True, names)


def _hashed(
    record: Record, table: Table, where: Where, analyzer: Analyzer, stages: tuple[Stage, ...]
) -> Table:
    columns = record.whole("n_features", 1)
    if columns > MOST_COLUMNS:
        raise where.unsupported(f"has n_features={columns:,}; at most {MOST_COLUMNS:,} are supported.")
    dtype = dtype_of(record.get("dtype", np.dtype(np.float64)), where)
    sign = bool(record.get("alternate_sign", True))
    operation = Vectorize(
        _texts(table, where), analyzer, analyzer.tables(), None, columns, sign, stages, dtype=dtype.name
    )
    return _all(operation, None)


def _vocabulary(record: Record, where: Where) -> list[str]:
    """Return the terms in the order of their columns."""
    vocabulary = record.get("vocabulary_", None)
    if vocabulary is None:
        parameter = record.get("vocabulary", None)
        if parameter is None:
            raise where.unsupported("is not fitted; hbtvm compiles trained models.")
        vocabulary = (
            parameter
            if isinstance(parameter, dict)
            else {term: at for at, term in enumerate(_words(parameter, where))}
        )
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise where.damaged("its vocabulary is empty, or not a dictionary.")
    terms: list[str] = [""] * len(vocabulary)
    taken = np.zeros(len(vocabulary), bool)
    for term, at in vocabulary.items():
        if not isinstance(term, str):
            raise where.unsupported(f"has a term in its vocabulary that is {kind_of(term)}, not a text.")
        if (
            isinstance(at, bool)
            or not isinstance(at, (int, np.integer))
            or not 0 <= at < len(terms)
            or taken[at]
        ):
            raise where.damaged("its vocabulary's columns are not each there once.")
        terms[int(at)] = str(term)
        taken[at] = True
    return terms


def _analyzer(record: Record, where: Where, filtered: bool) -> Analyzer:
    """Return a vectorizer's analyzer of texts.

    `filtered`: whether its vocabulary has no stop words, as after fitting: then those count for sequences of
        words only.
    """
    if (input_ := record.get("input", "content")) != "content":
        raise where.unsupported(f"has input={shown(input_, 40)!r}; supported is 'content'.")
    for name in ("preprocessor", "tokenizer"):
        if record.get(name, None) is not None:
            raise where.unsupported(f"has a custom {name}, which is not supported.")
    kind = cast(Kind, one_of(record, "analyzer", ("word", "char", "char_wb")))
    accents = record.get("strip_accents", None)
    if accents is not None:
        accents = cast(Accents, one_of(record, "strip_accents", ("ascii", "unicode")))
    lengths = as_array(record.get("ngram_range"), f"the ngram_range of {where.step}", "iu", 1).tolist()
    if len(lengths) != 2 or not 1 <= lengths[0] <= lengths[1]:
        raise where.unsupported(f"has the ngram_range {shown(lengths, 40)}, which is not supported.")
    analyzer = Analyzer(
        kind,
        bool(record.get("lowercase", True)),
        accents,
        shortest=lengths[0],
        longest=lengths[1],
        encoding=record.text("encoding", "utf-8"),
        decode_error=one_of(record, "decode_error", ("strict", "ignore", "replace")),
    )
    if kind != "word":
        return analyzer
    token, least, whole = token_of(record.text("token_pattern"), where)
    if lengths[1] > 1 and re.fullmatch(token, " "):
        raise where.unsupported("has a token_pattern with spaces and an ngram_range, which is not supported.")
    stop = () if filtered and lengths[1] == 1 else _stop_words(record, where)
    return replace(analyzer, token=token, least=least, whole=whole, stop_words=stop)


def _stop_words(record: Record, where: Where) -> tuple[str, ...]:
    value = record.get("stop_words", None)
    if value is None:
        return ()
    if isinstance(value, str):
        if value != "english":
            raise where.unsupported(f"has the stop_words {shown(value, 40)!r}, which scikit-learn refuses.")
        try:
            words = importlib.import_module("sklearn.feature_extraction.text").ENGLISH_STOP_WORDS
        except ImportError:
            raise where.unsupported(
                "has stop_words='english', a list that scikit-learn has, which is not installed here."
            ) from None
        return tuple(sorted(words))
    return tuple(_words(value, where))


def _words(value: Any, where: Where) -> list[str]:
    """Return the texts of a list, a set or an array; those of a set are sorted."""
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    words: list[Any] = as_array(
        list(value) if isinstance(value, tuple) else value, f"words of {where.step}", "UO"
    ).tolist()
    if not all(isinstance(word, str) for word in words):
        raise where.unsupported("has words that are not texts.")
    return words
