"""`Vectorize`: texts to weighted terms, the columns of scikit-learn's vectorizers, or weighted sums of them.

It counts a row's terms; stages (`Stage`) change the counts, each within a row. Most of a row's columns are
zero, so only the terms that occur are computed. A linear model behind them needs no matrix: its weights
become the operation's (`Vectorize.weighted`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from hbtvm.codec import Via
from hbtvm.graph.columns.characters import Accents, Characters, characters, stripped
from hbtvm.graph.columns.table import Raw, RowOperation, Table

Kind = Literal["word", "char", "char_wb", "pairs"]
Form = Literal["dict", "pair", "string", "features"]
StageKind = Literal["binary", "logarithm", "scale", "l1", "l2", "max", "select"]

Dtype = Literal["float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool"]

_MOST = (1 << 31) - 1  # lengths that 32 bits hold

_SPACES = re.compile(r"\s\s+")


@dataclass(frozen=True)
class Analyzer:
    """The conversion of a row to terms."""

    kind: Kind  # ``analyzer`` of scikit-learn's vectorizers; ``"pairs"`` for rows of terms with values
    # `lowercase`, `accents`: normalisation of the text
    lowercase: bool = False
    accents: Accents | None = None
    token: str = r"\w"  # a regular expression of a token's character
    least: int = 2  # characters of the shortest token
    # Whether a token is a whole word (``\w+``) of token characters, rather than any longest run of such
    whole: bool = True
    # `shortest`, `longest`: lengths of sequences of tokens, or of characters
    shortest: int = 1
    longest: int = 1
    stop_words: tuple[str, ...] = ()  # tokens to leave out
    # `encoding`, `decode_error`: of texts that are bytes
    encoding: str = "utf-8"
    decode_error: Annotated[str, Via(Literal["strict", "ignore", "replace"])] = "strict"
    # Type of ``"pairs"`` rows: ``input_type`` of scikit-learn's ``FeatureHasher``, which leaves values of 0
    # out; or ``"features"``, a dict for its ``DictVectorizer``
    form: Form = "dict"
    separator: str = "="  # joins a feature's name and its text to a term

    def tables(self) -> Characters:
        """Return the kernels' tables of characters."""
        return characters(self.token, self.lowercase, self.accents)

    def terms(self, text: str) -> Iterator[str]:
        """Yield the terms of a text, by Python's functions."""
        text = stripped(text.lower() if self.lowercase else text, self.accents)
        if self.kind == "word":
            yield from self._words(text)
        elif self.kind == "char":
            yield from _slices(_SPACES.sub(" ", text), self.shortest, self.longest)
        else:
            for word in text.split():
                padded, longest = f" {word} ", self.longest
                if self.shortest >= len(padded):
                    yield padded
                else:
                    yield from _slices(padded, self.shortest, min(longest, len(padded)))

    def _words(self, text: str) -> Iterator[str]:
        runs = re.findall(r"\w+" if self.whole else f"(?:{self.token})+", text)
        whole = re.compile(f"(?:{self.token}){{{self.least},}}")
        stop = frozenset(self.stop_words)
        tokens = [run for run in runs if whole.fullmatch(run) and run not in stop]
        for size in range(self.shortest, min(self.longest, len(tokens)) + 1):
            for at in range(len(tokens) - size + 1):
                yield " ".join(tokens[at : at + size])


def _slices(text: str, shortest: int, longest: int) -> Iterator[str]:
    for size in range(shortest, min(longest, len(text)) + 1):
        for at in range(len(text) - size + 1):
            yield text[at : at + size]


@dataclass(frozen=True, eq=False)
class Terms:
    """A list of texts as UTF-8."""

    pool: np.ndarray  # uint8, shape (bytes,): the texts, one behind the other
    starts: np.ndarray  # uint32, shape (texts + 1,): text i is ``pool[starts[i]:starts[i + 1]]``

    @classmethod
    def of(cls, texts: Iterable[str]) -> Terms:
        """Return the list of some texts.

        Raises `ValueError` if they take 4 GiB or more.
        """
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)])
        if starts[-1] >= 1 << 32:
            raise ValueError("terms of 4 GiB or more")
        return cls(np.frombuffer(b"".join(parts), np.uint8), starts.astype(np.uint32))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def texts(self) -> list[str]:
        """Return the texts."""
        data = self.pool.tobytes()
        return [
            data[start:stop].decode("utf-8", "surrogatepass")
            for start, stop in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]

    def validate(self) -> Terms:
        """Return this list.

        Raises `ValueError` if texts lie outside of the pool.
        """
        starts = self.starts
        if (
            self.pool.dtype != np.uint8
            or starts.dtype != np.uint32
            or self.pool.ndim != 1
            or starts.ndim != 1
        ):
            raise ValueError("a vocabulary has wrong types")
        rising = len(starts) and starts[0] == 0 and bool(np.all(starts[1:] >= starts[:-1]))
        if not rising or starts[-1] != len(self.pool) or len(starts) > 1 << 31:
            raise ValueError("a vocabulary's terms lie outside of it")
        return self


@dataclass(frozen=True, eq=False)
class Stage:
    """A function of the terms of a row."""

    # ``"binary"``: 1 for each term. ``"logarithm"``: 1 plus the logarithm. ``"scale"``: times `values`.
    # ``"l1"``, ``"l2"``, ``"max"``: divided by that norm of the row, unless it is 0. ``"select"``: column i
    # moves to column ``values[i]``.
    kind: StageKind
    # By column: float64 factors; or int32 new columns, distinct, -1 for dropped columns
    values: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Vectorize(RowOperation):
    """Terms of a column of texts."""

    inputs: Table  # the column of texts, or (analyzer ``"pairs"``) of terms with values
    analyzer: Analyzer
    characters: Characters  # tables for kernels
    vocabulary: Terms | None  # the term of each column; None if columns are hashes
    hashed: int = 0  # columns of hashes (MurmurHash3, seed 0); 0 with a vocabulary
    alternate_sign: bool = True  # whether a term with a negative hash counts -1
    stages: tuple[Stage, ...] = ()  # applied to each row's terms in order
    # Float64, shape (columns after all stages, O), for weighted sums; None for the columns themselves
    weight: np.ndarray | None = None
    dtype: Annotated[str, Via(Dtype)] = "float64"  # type of the library's sparse rows

    takes_values = True

    @property
    def terms(self) -> int:
        """Number of columns before all stages."""
        return self.hashed if self.vocabulary is None else len(self.vocabulary)

    @functools.cached_property
    def columns(self) -> int:
        """Number of columns after all stages."""
        for stage in reversed(self.stages):
            if stage.kind == "select" and stage.values is not None:
                return int(np.count_nonzero(stage.values >= 0))
        return self.terms

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of columns, or of weighted sums."""
        return self.columns if self.weight is None else self.weight.shape[1]

    def then(self, *stages: Stage) -> Vectorize:
        """Return the operation with further stages, for float64 or float32 numbers."""
        dtype = self.dtype if self.dtype in ("float32", "float64") else "float64"
        return replace(self, stages=(*self.stages, *stages), dtype=dtype)

    def select(self, columns: Sequence[int]) -> Vectorize:
        """Return the operation with some of its columns, in the order of `columns`."""
        place = np.full(self.columns, -1, np.int32)
        place[np.asarray(columns, np.int64)] = np.arange(len(columns), dtype=np.int32)
        return replace(self, stages=(*self.stages, Stage("select", place)))

    def weighted(self, weight: np.ndarray) -> Vectorize:
        """Return the operation that sums its columns, with weights of shape (columns, O)."""
        return replace(self, weight=np.ascontiguousarray(weight, np.float64))

    def validate(self) -> Vectorize:
        """Return this operation.

        Raises `ValueError` if its tables do not fit each other.
        """
        analyzer = self.analyzer
        lengths = (1, analyzer.shortest, analyzer.longest, _MOST)
        if list(lengths) != sorted(lengths) or not 1 <= analyzer.least <= _MOST:
            raise ValueError("an analyzer's lengths are out of order or range")
        if (self.vocabulary is None) == (self.hashed == 0) or not 0 <= self.hashed < 1 << 31:
            raise ValueError(f"expected either a vocabulary or hashes, got {self.hashed} columns of hashes")
        width = self.terms
        for stage in self.stages:
            width = _checked(stage, width)
        weight = self.weight
        if weight is not None and (weight.dtype != np.float64 or weight.ndim != 2 or len(weight) != width):
            raise ValueError("weights do not fit the terms")
        if width < 1 or self.width < 1:
            raise ValueError("there are no terms")
        columns = self.inputs.columns
        if len(columns) != 1 or not isinstance(columns[0].source, Raw) or columns[0].steps:
            raise ValueError("texts are not a column of the input")
        return self

    def reference(self, x: np.ndarray) -> np.ndarray:
        """Return float64, shape (n, `width`), from texts, objects of shape (n, 1), by Python's functions."""
        column = None
        if self.vocabulary is not None:
            column = {term: at for at, term in enumerate(self.vocabulary.texts())}
        out = np.zeros((len(x), self.width))
        for row, text in zip(out, x[:, 0].tolist(), strict=True):
            counts: dict[int, float] = {}
            pairs = (
                text if self.analyzer.kind == "pairs" else ((term, 1.0) for term in self.analyzer.terms(text))
            )
            for term, value in pairs:
                if column is None:
                    at, sign = hashed(term.encode(), self.hashed)
                    counts[at] = counts.get(at, 0.0) + (sign * value if self.alternate_sign else value)
                elif term in column:
                    counts[column[term]] = counts.get(column[term], 0.0) + value
            for stage in self.stages:
                counts = _applied(stage, counts)
            for at, value in counts.items():
                if self.weight is None:
                    row[at] = value
                else:
                    row += value * self.weight[at]
        return out


def _checked(stage: Stage, width: int) -> int:
    """Check a stage; return the number of columns after it."""
    values = stage.values
    if stage.kind not in ("scale", "select"):
        if values is not None:
            raise ValueError(f"a stage {stage.kind!r} has values")
        return width
    dtype = np.float64 if stage.kind == "scale" else np.int32
    if values is None or values.shape != (width,) or values.dtype != dtype:
        raise ValueError(f"a stage {stage.kind!r} has values of another type or shape")
    if stage.kind == "scale":
        return width
    kept = np.sort(values[values >= 0])
    if not np.array_equal(kept, np.arange(len(kept))):
        raise ValueError("selected columns are not distinct and consecutive")
    return len(kept)


def _applied(stage: Stage, counts: dict[int, float]) -> dict[int, float]:
    values = list(counts.values())
    match stage.kind:
        case "binary":
            return dict.fromkeys(counts, 1.0)
        case "logarithm":
            return {at: math.log(value) + 1.0 if value > 0 else math.nan for at, value in counts.items()}
        case "scale":
            assert stage.values is not None
            return {at: value * float(stage.values[at]) for at, value in counts.items()}
        case "select":
            assert stage.values is not None
            return {
                int(stage.values[at]): value for at, value in sorted(counts.items()) if stage.values[at] >= 0
            }
        case "l1":
            norm = math.fsum(map(abs, values))
        case "l2":
            norm = math.sqrt(math.fsum(value * value for value in values))
        case _:
            norm = max(map(abs, values), default=0.0)
    return {at: value / norm for at, value in counts.items()} if norm else counts


def hashed(term: bytes, columns: int) -> tuple[int, int]:
    """Return the column of a term's hash, and the hash's sign (1 or -1)."""
    value = murmur3(term)
    signed = value - (1 << 32) if value >> 31 else value
    return abs(signed) % columns, -1 if signed < 0 else 1


def murmur3(data: bytes) -> int:
    """Return the MurmurHash3 of 32 bits, seed 0 (Austin Appleby, public domain)."""
    most, value = 0xFFFFFFFF, 0
    for at in range(0, len(data), 4):
        block = data[at : at + 4]
        key = int.from_bytes(block, "little") * 0xCC9E2D51 & most
        value ^= (key << 15 | key >> 17) * 0x1B873593 & most
        if len(block) == 4:
            value = ((value << 13 | value >> 19) & most) * 5 + 0xE6546B64 & most
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & most
    value = (value ^ value >> 13) * 0xC2B2AE35 & most
    return value ^ value >> 16
