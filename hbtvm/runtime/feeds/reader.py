"""Convert users' rows to the matrix of a pipeline's feeds, which its kernels read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.codes.dense import DenseCodes
from hbtvm.runtime.feeds.counters import CounterFeeds
from hbtvm.runtime.feeds.guards import Guards
from hbtvm.runtime.feeds.host import HostFeeds
from hbtvm.runtime.feeds.plan import FeedPlan
from hbtvm.runtime.feeds.text import TextFeeds
from hbtvm.runtime.rows.beside import Beside, beside_rows
from hbtvm.runtime.rows.containers import ArrayRows, Container, container_of, values_of
from hbtvm.runtime.rows.inputs import Inputs, all_finite
from hbtvm.runtime.rows.layouts import Layouts, Positions
from hbtvm.runtime.rows.matrix import Interleave, matrix_of
from hbtvm.runtime.rows.pandas_frame import PandasFrame
from hbtvm.runtime.rows.raw import Numbers, RawColumn, number
from hbtvm.runtime.rows.sparse import SparseRows, check_sparse, is_sparse
from hbtvm.runtime.text.library import TextLibrary

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_MOST_CODES = 1 << 24  # float32 holds every integer up to this


class FeedReader:
    """Reads a pipeline's rows into a matrix, as `hbtvm.runtime.rows.inputs.Inputs` does for bare models.

    `spec`: what the pipeline accepts.
    `feeds`: the matrix's columns; at least one.
    `compare_dtype`: the type that the anchor compares in. With ``"float32"`` the matrix is cast to it.
    `dtypes`: the types of rows that kernels take.
    `float32_apart`: whether the kernels for float32 compute another anchor, so that only float32 numbers may
        use them.
    `library`: the code that cuts texts into terms, for feeds of texts.
    `checks`: whether any feed refuses missing or infinite values.
    `plan`: the feeds by kind.
    `plain`: checks rows apart from the feeds.
    `refuses`: by feed, refused values: 1 NaN, 2 infinities, 3 both; uint8, shape (feeds,).
    `ready`: dtypes of arrays that are the matrix without conversion.
    `typed`: the unread columns whose types determine the matrix's.
    `counters`: computes counters of categories.
    `interleave`: the executor's function that copies columns, once it is loaded.
    """

    def __init__(
        self,
        spec: InputSpec,
        feeds: Sequence[Feed],
        compare_dtype: str,
        dtypes: Collection[str],
        float32_apart: bool = False,
        library: TextLibrary | None = None,
    ) -> None:
        self.spec, self.feeds = spec, tuple(feeds)
        self._width = len(self.feeds)
        self._dtypes = frozenset(np.dtype(dtype) for dtype in dtypes)
        self._single = compare_dtype == "float32"
        self._apart = float32_apart
        self.interleave: Interleave | None = None
        self.plain = Inputs(spec, "float64", ("float32", "float64"), float32_apart)
        plan = self.plan = FeedPlan(self.feeds)
        self._hosts, self._numbers, self._coders = plan.hosts, plan.numbers, plan.coders
        self._host = HostFeeds(self.feeds, plan, self.plain.columns)
        places = {raw: place_of(spec, raw) for raw in plan.text_raws}
        library = library or TextLibrary(b"")
        self._texts = TextFeeds(self.feeds, plan.texts, library, places)
        # The matrix's columns beside counters.
        beside = [*plan.raw_of, *plan.hosts, *plan.texts]
        self.counters = CounterFeeds(self.feeds, plan.counters, self.plain.columns, beside, library.pool)
        self._raw_of, self._raws, self._nulls = plan.raw_of, plan.raws, plan.nulls
        self._guards = Guards(self.feeds, plan.guarded)
        self.checks, self.refuses = bool(plan.guarded), self._guards.refuses
        self._layouts = Layouts(spec, plan.raws, self.plain.columns)
        at = {j: i for i, j in enumerate(beside)}
        order_of_row = [at[j] for j in sorted(at)]
        # From the order of a row's simple feeds and then host feeds to the matrix's.
        self._row_order = None if order_of_row == sorted(order_of_row) else itemgetter(*order_of_row)
        # For one row: readers of the simple feeds' columns, then those of host feeds.
        order = [*plan.raw_of.values(), *plan.host_raws, *self._texts.raws]
        order += [raw for raw in plan.counter_raws if raw not in order]
        self._counter_at = [order.index(raw) for raw in self.counters.raws]
        self._row_raws, self._row_nulls = order, [plan.nulls[raw] for raw in order]
        coders = [plan.coders.get(j) for j in plan.raw_of]
        nulls = self._row_nulls[: len(coders)]
        # By whether the row is a dict, in which None is a missing value of any kind.
        self._row_readers: dict[bool, list[Callable[[Any], Any]]] = {
            False: [float if coder is None else coder.table.__getitem__ for coder in coders],
            True: [
                float if coder is None else coder.table_of(null).__getitem__
                for coder, null in zip(coders, nulls, strict=True)
            ],
        }
        names = spec.feature_names
        self._row_of_dict = None
        if names is not None and len(order) > 1 and not spec.types_refused:
            self._row_of_dict = itemgetter(*(names[raw] for raw in order))
        few_codes = all(coder.unknown < _MOST_CODES for coder in self._coders.values())
        self._only_codes = len(self._coders) == self._width and few_codes
        # If the row's type is known and needs no check.
        # The array's dtype then does not matter.
        self._plain_codes = self._only_codes and not any(coder.fills for coder in self._coders.values())
        self._dense = DenseCodes([self._coders[j] for j in range(self._width)]) if self._only_codes else None
        # Kinds of arrays whose single row is read value by value, and the readers of its values.
        self._row_kinds = "" if not self._only_codes else "iufO" if self._plain_codes else "O"
        self._row_shape = (1, spec.n_features)
        self._row_values = list(zip(plan.raw_of.values(), self._row_readers[False], strict=True))
        row = self._dtype_for([] if self._only_codes else [_F64])
        wide = row == _F64
        self._row_dtype = row if row == _F64 or (self._only_codes and row in self._dtypes) else None
        # (None also equals numpy's float64.)
        self._wide = self._row_dtype is not None and self._row_dtype == _F64
        # Dtypes of arrays that are the matrix without conversion.
        in_order = [self._raw_of.get(j) for j in range(self._width)] == list(range(spec.n_features))
        kernels = [dtype for dtype in self._dtypes if self._dtype_for([dtype]) == dtype]
        plain = in_order and len(self._numbers) == self._width and not spec.rows_are_values
        self.ready = frozenset(kernels if plain else ())
        # Columns that share a type: the library makes one array of them.
        self._unread = [] if spec.by_name else [i for i in range(spec.n_features) if i not in plan.raws]
        self.typed = self._unread if float32_apart and wide else []

    def prepare(self, X: Any) -> np.ndarray:
        """Return the matrix of rows.

        Raises `InputError` if the rows don't fit the pipeline.

        `X`: rows: an array of shape (n, n_features), a pandas, polars or pyarrow table, a dict for one row or
            a list of dicts, lists of lists, a sparse matrix of scipy.
        Returns float32 or float64, shape (n, feeds), C-contiguous; `X` itself if it needs no conversion.
        """
        if self.spec.rows_are_values:
            return self._of_values(X)
        if (
            type(X) is np.ndarray
            and X.dtype in self.ready
            and X.ndim == 2
            and X.shape[1] == self._width
            and X.flags.c_contiguous
            and X.flags.aligned
        ):
            return X
        if type(X) is np.ndarray and X.shape == self._row_shape and X.dtype.kind in self._row_kinds:
            values = X[0].tolist()
            try:
                return np.array([[read(values[raw]) for raw, read in self._row_values]], self._row_dtype)
            except (KeyError, TypeError):  # a value is unknown, of unknown kind, or refused
                return self._single_row([values[raw] for raw in self._row_raws], False)
        if type(X) is list and len(X) == 1 and type(X[0]) is dict:
            X = X[0]
        if type(X) is dict and self._row_of_dict is not None:
            try:
                row = self._row_of_dict(X)
            except KeyError:
                pass  # a container names the column
            else:
                return self._single_row(row, True)
        if is_sparse(X):
            tiles = [np.array(self.prepare(tile)) for _, tile in self.tiles(X)]
            if not tiles:
                raise InputError("expected at least one row, got none.")
            return np.concatenate(tiles)
        rows = self._container(X)
        at = self._layouts.positions(rows)
        if len(self._numbers) == self._width:
            array = rows.numbers()
            if array is not None:
                order = [at[self._raw_of[j]] for j in self._numbers]
                taken = array if order == list(range(rows.width)) else array[:, order]
                return self._finished(taken, array.dtype)
        if rows.rows == 1 and not (self.typed and isinstance(rows, PandasFrame) and rows.has_small()):
            values = rows.row([at[raw] for raw in self._row_raws], self._row_nulls)
            if values is not None:
                return self._single_row(values, False)
        if self._dense is not None and isinstance(rows, ArrayRows):
            order = [at[self._raw_of[j]] for j in range(self._width)]
            codes = self._dense.matrix(rows.array, order, self._dtype_for([]))
            if codes is not None:
                return codes
        columns = {raw: rows.column(at[raw], self._nulls[raw]) for raw in self._raws}
        return self._matrix(columns, rows.rows, _types_of(rows, self.typed))

    def _of_values(self, X: Any) -> np.ndarray:
        """Return the matrix of rows of one value each."""
        if type(X) is np.ndarray and X.size == 1 and 1 <= X.ndim <= 2 and self._plain_codes:
            kind = X.dtype.kind
            if kind in "iuOU" or (kind == "f" and X.dtype.itemsize in (4, 8)):
                return self._single_row([X.item()], False)
        if type(X) is list and len(X) == 1:
            matrix = self._texts.whole(X[0])
            if matrix is not None:
                return matrix if self._wide else self._finished(matrix, _F64)
        rows = self._container(X)
        columns = {0: rows.column(0, None)}
        matrix = self._texts.matrix(columns)
        return self._matrix(columns, rows.rows) if matrix is None else self._finished(matrix, _F64)

    def tiles(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Yield blocks of a sparse matrix as dense rows, each with its first row's number."""
        sparse = SparseRows(self.plain, X, "")
        yield from sparse.tiles()

    def columns(self, X: Any) -> tuple[dict[int, RawColumn], int]:
        """Return the input's columns that are read, and the number of rows."""
        if is_sparse(X):
            self.plain.check_sparse(X)
            check_sparse(X)
            X = X.toarray()
        rows = self._container(X)
        at = self._layouts.positions(rows)
        return {raw: rows.column(at[raw], self._nulls[raw]) for raw in self._raws}, rows.rows

    def positions(self, X: Any) -> Positions:
        """Return the positions of the input's columns in a frame of pandas."""
        return self._layouts.positions(PandasFrame(X))

    def types_beside(self, X: Any) -> list[np.dtype]:
        """Return the dtypes of unread columns, if one array holds all columns."""
        return _types_of(self._container(X), self._unread) if self._unread and not is_sparse(X) else []

    def evaluator(self, columns: Mapping[int, RawColumn]) -> Evaluator:
        """Return the evaluator of tables of `columns`, texts excepted."""
        read = {*self._raw_of.values(), *self.plan.host_raws, *self.plan.counter_raws}
        return Evaluator({raw: self._host.raw_values(raw, columns[raw]) for raw in sorted(read)})

    def look(self, matrix: np.ndarray) -> None:
        """Run `check`, which is slower, only if a value is missing or infinite."""
        if not all_finite(matrix):
            self.check(matrix)

    def check(self, matrix: np.ndarray) -> None:
        """Refuse values that a feed refuses.

        `matrix`: a result of `prepare`.
        Raises `InputError`, which names the first column and row.
        """
        self._guards.check(matrix)

    @property
    def reads_arrays(self) -> bool:
        """Whether arrays of some dtype are the matrix without conversion."""
        return bool(self.ready)

    def array_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the matrix's dtype for an array's dtype, independent of values.

        Raises `InputError` if no kernel takes it.
        """
        target = self._dtype_for([dtype])
        if target == _F32 and not self._single and not np.can_cast(dtype, _F32):
            raise InputError(
                f"the model was compiled for float32 rows only, got {dtype}; cast them if that is right."
            )
        return target if target in self._dtypes else _F64

    def _container(self, X: Any) -> Container | PandasFrame:
        if self.spec.rows_are_values:
            # Labels may be a column; rows of texts would be lists of features.
            column = isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and not self.plan.texts
            return values_of(X[:, 0] if column else X)
        self.plain.check_types(X)
        if isinstance(X, Beside):
            return beside_rows(X, self.spec.feature_names)
        subclass = isinstance(X, np.ndarray) and type(X) is not np.ndarray  # masked, or a matrix
        rows = None if subclass else container_of(X, self.spec.feature_names)
        if rows is None:
            # Raises an error for a wrong shape, or converts array-likes.
            rows = ArrayRows(self.plain.array(X))
        if not isinstance(rows, PandasFrame) and rows.names is None:
            self.plain.check_shape((rows.rows, rows.width))
        return rows

    def _single_row(self, values: Sequence[Any], from_dict: bool) -> np.ndarray:
        """Return the matrix of a row of Python values in the order of `_row_raws`."""
        simple = len(self._raw_of)
        try:
            numbers = [read(value) for read, value in zip(self._row_readers[from_dict], values, strict=False)]
        except (KeyError, TypeError, ValueError, OverflowError):
            if from_dict:
                pairs = zip(values, self._row_nulls, strict=True)
                values = [null if value is None else value for value, null in pairs]
            numbers = [self._value(j, values[i]) for i, j in enumerate(self._raw_of)]
        last = simple + len(self.plan.host_raws)
        if self._hosts:
            numbers += self._host.row(values[simple:last], from_dict)
        if self.plan.texts:
            numbers += self._texts.row(values[last : last + len(self._texts.raws)])
        if self.plan.counters:
            return self._counted_row(numbers, values, from_dict)
        if self._row_order is not None:
            numbers = self._row_order(numbers)
        if self._row_dtype is not None:
            return np.array([numbers], self._row_dtype)
        return self._finished(np.array([numbers], _F64), _F64)

    def _counted_row(self, numbers: list[float], values: Sequence[Any], from_dict: bool) -> np.ndarray:
        """Return the matrix of a row: numbers beside the counters, and counters of its values."""
        if from_dict:
            pairs = zip(values, self._row_nulls, strict=True)
            values = [null if value is None else value for value, null in pairs]
        values = [values[i] for i in self._counter_at]
        matrix = self.counters.row(values, numbers, _F32 if self._single else _F64)
        return matrix if matrix.dtype in self._dtypes else self._finished(matrix, _F64)

    def _value(self, j: int, value: Any) -> float:
        coder = self._coders.get(j)
        return number(value, self.feeds[j].where) if coder is None else coder.of_value(value)

    def blocks(self, X: Any, most: int) -> Iterator[np.ndarray]:
        """Yield the matrix of a container's rows in blocks, all in the same memory; only with counters.

        `most`: rows of a block.
        """
        rows = self._container(X)
        at = self._layouts.positions(rows)
        columns = {raw: rows.column(at[raw], self._nulls[raw]) for raw in self._raws}
        parts, dtype, wide = self._parts(columns, _types_of(rows, self.typed))
        for matrix in self.counters.blocks(parts, columns, rows.rows, most, wide):
            yield self._finished(matrix, dtype)

    def _matrix(self, columns: dict[int, RawColumn], n: int, dtypes: Sequence[np.dtype] = ()) -> np.ndarray:
        """Return the matrix of columns by index; `dtypes` are those of unread columns."""
        parts, dtype, wide = self._parts(columns, dtypes)
        if self.plan.counters:
            return self._finished(next(self.counters.blocks(parts, columns, n, n, wide)), dtype)
        in_order = (parts[j] for j in range(self._width))
        return self._finished(matrix_of(in_order, n, wide, self.interleave), dtype)

    def _parts(
        self, columns: dict[int, RawColumn], dtypes: Sequence[np.dtype]
    ) -> tuple[dict[int, np.ndarray], np.dtype, np.dtype]:
        """Return the matrix's columns beside counters, their type, and the type to copy them in."""
        feeds = self.feeds
        numbers = {j: columns[self._raw_of[j]].numbers(feeds[j].where) for j in self._numbers}
        quick = None if self._single else self._host.coded(columns)
        if quick is not None:
            # Values that are not numbers are read as float64.
            dtype = self._dtype_for([_F64])
            parts = {**numbers, **dict(zip(self._hosts, quick, strict=True))}
        else:
            raw = {i: self._host.raw_values(i, columns[i]) for i in self.plan.host_raws}
            texts = [_F64] if self.plan.texts or self.plan.counters else []
            read = (x.dtype for x in (*numbers.values(), *raw.values()))
            dtype = self._dtype_for([*texts, *read, *dtypes])
            # As for one row, and for texts' codes: float64, unless the library's numbers are float32.
            values = dtype if self._single or _F64 in self._dtypes else _F64
            parts = {**numbers, **self._host.compute(raw, values)}
        wide = np.dtype(_F64 if self._single or dtype not in self._dtypes else dtype)
        if self._single and self.plan.counters:
            wide = _F32
        parts |= {j: columns[self._raw_of[j]].codes(coder) for j, coder in self._coders.items()}
        parts |= self._texts.compute(columns)
        return parts, dtype, wide

    def _dtype_for(self, dtypes: Sequence[np.dtype]) -> np.dtype:
        """Return the matrix's dtype for columns of these dtypes."""
        if self._single or _F64 not in self._dtypes:
            return _F32
        if _F32 not in self._dtypes:
            return _F64
        if not dtypes:
            return _F32 if self._only_codes else _F64
        if not all(np.can_cast(dtype, _F32) for dtype in dtypes):
            return _F64
        return _F64 if self._apart and np.result_type(*dtypes) != _F32 else _F32

    def _finished(self, matrix: np.ndarray, source: np.dtype) -> np.ndarray:
        """Return a matrix contiguous and in a kernel's dtype; `source` is the dtype of its numbers."""
        target = self._dtype_for([source])
        with np.errstate(over="ignore"):
            out = matrix.astype(target, order="C", copy=False)
        if not out.flags.aligned:
            out = out.copy()
        exact = self._single or target == _F64 or np.can_cast(matrix.dtype, _F32)
        if not exact and not np.array_equal(matrix, out, equal_nan=True):
            raise InputError(
                "the model was compiled for float32 rows only; expected values that float32 holds exactly."
            )
        return out if target in self._dtypes else out.astype(_F64)


def _types_of(rows: Container | PandasFrame, columns: Sequence[int]) -> list[np.dtype]:
    read = (rows.column(at, None) for at in columns)
    return [column.dtype for column in read if isinstance(column, Numbers)]


def place_of(spec: InputSpec, raw: int) -> str:
    """Return the name of an input column for errors."""
    if spec.rows_are_values:
        return "the rows"
    return f"column {raw}" if spec.feature_names is None else f"column {spec.feature_names[raw]!r}"
