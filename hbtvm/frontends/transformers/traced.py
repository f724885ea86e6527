"""Trace functions of live ``FunctionTransformer``s: numpy's functions of symbolic columns become steps.

The function gets a `_Symbol` in place of its rows. Operators and functions of numpy append steps to its
columns (`hbtvm.graph.columns.steps`), or compute new columns of several (`Computed`). Anything else that the
function does with it raises. The traced columns must equal the function's results for random rows.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hbtvm.frontends.transformers.typed import refuse_integers
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.steps import UFUNCS, Arithmetic, Cast, Function, Step
from hbtvm.graph.columns.table import Column, Made, Raw, Table
from hbtvm.graph.networks.network import Computed, TableRows
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import select

_ARITHMETIC = ("add", "subtract", "multiply", "divide")
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal")
_JUMPS = ("sign", "floor", "ceil", "rint", "trunc")
_POWERS = {2: "square", 1: "positive", 0.5: "sqrt", -1: "reciprocal"}
"""Functions that numpy computes in place of powers with these exponents."""

_ROWS = 200


class NotTraced(TypeError):
    """The function does something with its rows that columns can't express."""


def traced(
    function: Callable[..., Any], arguments: Mapping[str, Any], table: Table, where: Where
) -> Table | None:
    """Return the columns that a function returns for a table; None if it can't be traced.

    `arguments`: the function's arguments by name.
    """
    call = partial(function, **arguments)
    raw = Table(tuple(Column(Raw(i)) for i in range(len(table))))
    try:
        columns = _trace(call, raw)
        if not _agrees(call, Table(columns), len(table)):
            return None
        result = Table(_trace(call, table))
    except Exception:  # the function may raise anything
        return None
    if table.sparse is not False:
        where.refuse_sparse(table, "computes a function that is compiled for dense rows only")

    def of_column(x: np.ndarray) -> np.ndarray:
        # Every number meets every other in some row.
        shifts = np.arange(len(table)) * 7
        x = np.concatenate([x[(np.arange(len(x))[:, None] + turn * shifts) % len(x)] for turn in (0, 1, 3)])
        return np.asarray(call(x))

    refuse_integers(table, of_column, where, together=False)
    return result


def _trace(call: Callable[[Any], Any], table: Table) -> tuple[Column, ...]:
    result = call(_Symbol(tuple(table.columns)))
    if not isinstance(result, _Symbol) or result.flat or result.truth:
        raise NotTraced("the result is not a matrix of numbers of the rows")
    return result.columns


def _agrees(call: Callable[[Any], Any], table: Table, width: int) -> bool:
    """Return whether traced columns equal the function's results for random rows of both types."""
    random = np.random.default_rng(0)
    special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e-30, 1e30])
    plain = random.normal(size=(_ROWS, width)) * random.choice([0.1, 1.0, 100.0], size=(_ROWS, 1))
    positive, odd = np.abs(plain), random.choice(special, size=(_ROWS, width))
    frame = sys.modules.get("pandas")
    for x in (plain, positive, odd):
        for rows in (x, x.astype(np.float32)):
            containers: list[Any] = [rows]
            if frame is not None:
                containers.append(frame.DataFrame(rows))
            with np.errstate(all="ignore"):
                ours = Evaluator(list(rows.T)).table(table)
            for at, container in enumerate(containers):
                try:
                    with np.errstate(all="ignore"):
                        theirs = np.asarray(call(container))
                except Exception:
                    if at == 0:
                        raise
                    continue  # the function does not take frames
                tolerance = 1e-12 if rows.dtype == np.float64 else 1e-4
                if theirs.shape != ours.shape or (at == 0 and theirs.dtype != ours.dtype):
                    return False
                with np.errstate(all="ignore"):
                    if not np.allclose(theirs, ours, tolerance, tolerance, equal_nan=True):
                        return False
    return True


@dataclass(frozen=True, eq=False)
class _Symbol:
    """Columns in place of an array of rows.

    Attributes
    ----------
    columns
        Its columns; one if it is flat.
    flat
        Whether it stands for an array of shape (n,).
    truth
        Whether it holds bools.
    """

    columns: tuple[Column, ...]
    flat: bool = False
    truth: bool = False
    __iter__ = None
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise NotTraced("a decision on rows")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotTraced("a conversion of rows")

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape; the number of rows is an object that supports nothing."""
        return (object(),) if self.flat else (object(), len(self.columns))

    @property
    def ndim(self) -> int:
        return 1 if self.flat else 2

    def copy(self) -> _Symbol:
        return self

    def reshape(self, *shape: Any) -> _Symbol:
        if shape in ((-1, 1), ((-1, 1),)) and len(self.columns) == 1:
            return replace(self, flat=False)
        raise NotTraced("another shape")

    def astype(self, dtype: Any) -> _Symbol:
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise NotTraced("a cast to other numbers than floats")
        return replace(self._then(Cast("float32" if kind == np.float32 else "float64")), truth=False)

    def clip(self, low: Any, high: Any) -> _Symbol:
        return _binary("minimum", _binary("maximum", self, low), high)

    def __getitem__(self, at: Any) -> _Symbol:
        if not isinstance(at, tuple) or len(at) != 2 or at[0] != slice(None):
            raise NotTraced("a choice of rows")
        if at[1] is None and self.flat:
            return replace(self, flat=False)
        if self.flat:
            raise NotTraced("too many indices")
        numbers = np.arange(len(self.columns))[at[1]]
        return replace(
            self, columns=tuple(self.columns[i] for i in np.atleast_1d(numbers)), flat=numbers.ndim == 0
        )

    def _then(self, *steps: Step) -> _Symbol:
        return replace(self, columns=tuple(column.then(*steps) for column in self.columns))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise NotTraced("options of a function")
        name = ufunc.__name__
        if len(inputs) == 1:
            return _unary(name, inputs[0])
        return _binary(name, *inputs)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        if function not in _FUNCTIONS:
            raise NotTraced("a function of whole arrays")
        return _FUNCTIONS[function](*inputs, **options)

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, int | float) and power in _POWERS:
            return _unary(_POWERS[power], self)
        return np.power(self, power)

    def __neg__(self) -> Any:
        return _unary("negative", self)

    def __pos__(self) -> Any:
        return _unary("positive", self)

    def __abs__(self) -> Any:
        return _unary("absolute", self)

    def __invert__(self) -> Any:
        return _unary("logical_not" if self.truth else "invert", self)


def _add_operators() -> None:
    """Give `_Symbol` Python's operators by numpy's functions."""
    names = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "lt": "less",
        "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
        "and": "logical_and", "or": "logical_or",
    }  # fmt: skip
    for short, name in names.items():
        setattr(_Symbol, f"__{short}__", lambda a, b, name=name: _binary(name, a, b))
        setattr(_Symbol, f"__r{short}__", lambda b, a, name=name: _binary(name, a, b))


_add_operators()


def _unary(name: str, x: _Symbol) -> _Symbol:
    if name == "isnan" and not x.truth:
        return replace(_computed("isnan", x), truth=True)
    if name == "logical_not" and x.truth:
        return replace(_computed("subtract", 1.0, x), truth=True)
    if name not in UFUNCS or x.truth or (name in _JUMPS and not _unrounded(x)):
        raise NotTraced(name)
    return x._then(Function(name))


def _binary(name: str, a: Any, b: Any) -> _Symbol:
    name = {"true_divide": "divide", "bitwise_and": "logical_and", "bitwise_or": "logical_or"}.get(name, name)
    truths = [isinstance(x, _Symbol) and x.truth for x in (a, b)]
    if name in ("logical_and", "logical_or"):
        if not all(truths):
            raise NotTraced("logic of numbers")
        return replace(_computed("multiply" if name == "logical_and" else "maximum", a, b), truth=True)
    if any(truths) and (all(truths) or name != "multiply" or not all(isinstance(x, _Symbol) for x in (a, b))):
        raise NotTraced("arithmetic of bools")
    if name == "not_equal":
        return _unary("logical_not", _binary("equal", a, b))
    if name in _COMPARISONS:
        for x in (a, b):
            # numpy compares float32 rows with a number in float32, and with rounded numbers.
            exact = (
                _unrounded(x) if isinstance(x, _Symbol) else np.array_equal(np.float32(x), x, equal_nan=True)
            )
            if not exact:
                raise NotTraced("a comparison of rounded numbers")
        return replace(_computed(name, a, b), truth=True)
    if name in ("maximum", "minimum", "power"):
        return _computed(name, a, b)
    if name not in _ARITHMETIC:
        raise NotTraced(name)
    if not isinstance(a, _Symbol):
        if name in ("add", "multiply"):
            return _binary(name, b, a)
        if name == "subtract":
            return _binary("add", _unary("negative", b), a)
        return _computed(name, a, b)
    if isinstance(b, _Symbol):
        return _computed(name, a, b)
    constants, wide = _constants(b, a)
    steps = (Cast("float64"),) if wide else ()
    return replace(
        a,
        columns=tuple(
            column.then(*steps, Arithmetic(name, float(c), cast=True))  # type: ignore[arg-type]
            for column, c in zip(a.columns, constants, strict=True)
        ),
    )


def _constants(value: Any, beside: _Symbol) -> tuple[np.ndarray, bool]:
    """Return a number for each column, float64, and whether float32 numbers become float64 beside it."""
    constants = np.asarray(value)
    if constants.dtype.kind not in "iuf" or constants.ndim > 1 or (constants.ndim and beside.flat):
        raise NotTraced("a value that is not a number")
    wide = (np.zeros(1, np.float32) + value).dtype != np.float32
    return np.broadcast_to(constants.astype(np.float64), len(beside.columns)), wide


def _unrounded(x: _Symbol) -> bool:
    """Return whether columns are the caller's, as they come."""
    return all(isinstance(column.source, Raw) and not column.steps for column in x.columns)


def _computed(name: str, *operands: Any) -> _Symbol:
    """Return new columns: a function of columns and numbers."""
    symbols = [x for x in operands if isinstance(x, _Symbol)]
    widest = max(symbols, key=lambda x: len(x.columns))
    if len({x.flat for x in symbols}) > 1:
        raise NotTraced("rows of an array as columns of another")
    wide = [_constants(x, widest)[1] for x in operands if not isinstance(x, _Symbol)]
    if any(wide):
        operands = tuple(
            x.astype(np.float64) if isinstance(x, _Symbol) and not x.truth else x for x in operands
        )
        symbols = [x for x in operands if isinstance(x, _Symbol)]
    table = Table(tuple(column for x in symbols for column in x.columns))
    rows, first, nodes = TableRows(table, allow_nan=True, allow_inf=True), 0, list[Node | np.ndarray]()
    for x in operands:
        if isinstance(x, _Symbol):
            nodes.append(select(rows, range(first, first + len(x.columns))))
            first += len(x.columns)
        else:
            nodes.append(np.array(_constants(x, widest)[0]))
    operation = Computed(table, rows, apply(name, *nodes), narrow=True)
    return _Symbol(tuple(Column(Made(operation, i)) for i in range(operation.width)), widest.flat)


def _where(condition: Any, a: Any, b: Any) -> _Symbol:
    if not isinstance(condition, _Symbol) or not condition.truth:
        raise NotTraced("a condition that is no comparison")
    if any(isinstance(x, _Symbol) and x.truth for x in (a, b)):
        raise NotTraced("bools as numbers")
    if not any(isinstance(x, _Symbol) for x in (a, b)):
        # Numbers alone are float64, whatever the rows' type.
        a = np.asarray(a, np.float64)
    return _computed("where", condition, a, b)


def _beside(parts: Sequence[Any], axis: int = 0) -> _Symbol:
    if axis not in (1, -1) or not all(isinstance(x, _Symbol) and not x.flat and not x.truth for x in parts):
        raise NotTraced("rows below each other")
    return _Symbol(tuple(column for x in parts for column in x.columns))


def _column_stack(parts: Sequence[Any]) -> _Symbol:
    if not all(isinstance(x, _Symbol) for x in parts):
        raise NotTraced("constant columns")
    return _beside([replace(x, flat=False) for x in parts], 1)


_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    np.where: _where,
    np.column_stack: _column_stack,
    np.hstack: partial(_beside, axis=1),
    np.concatenate: _beside,
    np.clip: lambda x, a_min, a_max: x.clip(a_min, a_max),
    np.stack: lambda parts, axis=0: _column_stack(parts) if axis in (1, -1) else operator.index(parts),
}
"""numpy's functions of arrays, for symbols."""
