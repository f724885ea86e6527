"""Counters of categories in C: the functions and structures of ``counters.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hbtvm.graph.columns.counters import MULTIPLIER, Counters
from hbtvm.runtime.native.counter_codes import code_counts, indices_by_codes, known_categories
from hbtvm.runtime.native.structures import FLOAT32, FLOAT64

AS_IT_IS, ROUNDED, ROUNDED_NAN_HIGH = 0, 1, 2  # ``enum counter_input``

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p

_ARGUMENTS: dict[str, tuple[Any, list[Any]]] = {
    "hbtvm_counters_place": (_I64, [_POINTER, _I64, _I64, _I64, _POINTER, _POINTER, _POINTER]),
    "hbtvm_count_rows": (_I64, [_POINTER, _POINTER, *[_I64] * 4, _POINTER, _I64]),
    "hbtvm_count_row": (_I64, [_POINTER, _POINTER, _POINTER, _I64, _I64, _POINTER]),
    "hbtvm_hash_texts": (_I64, [_POINTER, _I64, _POINTER, _I64, _I64, _POINTER]),
}  # fmt: skip

_SIZES = 4  # sizes of a table that are tried

_NODE = np.dtype([("element", "i4"), ("depth", "i4"), ("tables", "i8"), ("codes", "i4"), ("hashed", "i4")])
_TABLE = np.dtype([(name, np.int64) for name in ("key", "factor", "bits", "bucket_bits", "counters")])
_CODES = np.dtype([("table", _TABLE), ("code", np.int64)])
_COUNTER = np.dtype([("value", np.int64), ("column", np.int64)])


class CounterFunctions(NamedTuple):
    """The functions, by their names in ``counters.h``."""

    place: Any
    rows: Any
    row: Any
    hash_texts: Any


def counter_functions(loaded: ctypes.CDLL) -> CounterFunctions | None:
    """Return the functions of an executor; None if it is of a release without them."""
    if not all(hasattr(loaded, name) for name in _ARGUMENTS):
        return None
    functions = []
    for name, (result, arguments) in _ARGUMENTS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
        functions.append(function)
    return CounterFunctions(*functions)


class _Fields(ctypes.Structure):
    """``struct counters``."""

    _fields_ = (
        ("inputs", _I64), ("nodes", _I64), ("depth", _I64), ("hot", _I64), ("input", _POINTER),
        ("codes", _POINTER), ("test", _POINTER), ("column", _POINTER), ("number", _POINTER),
        ("node", _POINTER), ("table", _POINTER), ("counter", _POINTER), ("hot_element", _POINTER),
        ("hot_column", _POINTER),
    )  # fmt: skip


class CounterKernel:
    """The tables of `Counters` in the form that the functions read; several threads may call it at once.

    `operation`: validated.
    `inputs`: what the functions do to each input (`AS_IT_IS`, `ROUNDED`, `ROUNDED_NAN_HIGH`).
    `columns`: the matrix's column of each of the operation's columns; -1 for unread ones.
    Raises `ValueError` if some hashes find no slots, as they are much alike; those of categories are not.
    """

    def __init__(
        self,
        functions: CounterFunctions,
        operation: Counters,
        inputs: Sequence[int],
        columns: Sequence[int],
    ) -> None:
        self._rows, self._row, self._keep = functions.rows, functions.row, list[np.ndarray]()
        hot = len(operation.hot)
        paths = [_path(row) for row in operation.elements.tolist()]
        order = sorted(range(len(paths)), key=paths.__getitem__)
        categories = known_categories(operation, paths)
        codes = np.zeros(len(categories), _CODES)
        for row, known in zip(codes, categories, strict=True):
            self._codes(functions, known, row)
        indices = [indices_by_codes(operation, at, paths[at], categories) for at in order]
        nodes = _nodes([paths[table] for table in order], indices, code_counts(operation, categories))
        table, counter = self._tables(functions, operation, order, columns[hot:], indices)
        self._fields = _Fields(
            inputs=len(operation.inputs),
            nodes=len(nodes),
            depth=int(nodes["depth"].max(initial=0)),
            hot=hot,
            input=self._pointer(np.array(inputs, np.int32)),
            codes=self._pointer(codes),
            test=self._pointer(operation.test),
            column=self._pointer(operation.column),
            number=self._pointer(operation.number),
            node=self._pointer(nodes),
            table=self._pointer(table),
            counter=self._pointer(counter),
            hot_element=self._pointer(operation.hot),
            hot_column=self._pointer(np.array(columns[:hot], np.int64)),
        )
        self._address = ctypes.addressof(self._fields)

    def row(self, x: ctypes.Array[Any], columns: int, count: int, out: ctypes.Array[Any]) -> None:
        """Compute a row, and copy numbers beside the counters.

        `x`: the inputs, and `count` numbers.
        `columns`: their columns of the matrix, the address of int64.
        `out`: the row, of C's float or double.
        """
        kind = FLOAT32 if out._type_ is ctypes.c_float else FLOAT64
        if self._row(self._address, x, columns, count, kind, out):
            raise MemoryError

    def __call__(self, x: int, n: int, first: int, last: int, matrix: np.ndarray) -> None:
        """Compute the columns of some rows.

        `x`: the address of the inputs, float64, shape (inputs, n).
        `matrix`: float32 or float64, shape (n, columns), C-contiguous.
        """
        kind = FLOAT32 if matrix.dtype == np.float32 else FLOAT64
        width = matrix.shape[1]
        out = _address(matrix) + first * width * matrix.itemsize
        if self._rows(self._address, x, n, first, last, kind, out, width):
            raise MemoryError

    def _tables(
        self,
        functions: CounterFunctions,
        operation: Counters,
        order: Sequence[int],
        columns: Sequence[int],
        indices: Sequence[np.ndarray | None],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the tables in an order, and the counters in that of their tables.

        `indices`: by table, from `indices_by_codes`.
        """
        sizes = np.diff(operation.start)
        counts = sizes[operation.table] + 1
        firsts = np.cumsum(counts) - counts  # of each counter's values
        of_table: list[list[int]] = [[] for _ in order]
        for i, at in enumerate(operation.table.tolist()):
            of_table[at].append(i)
        tables, counters = np.zeros(len(order), _TABLE), np.zeros(len(operation.table), _COUNTER)
        done = 0
        for table, at, place in zip(tables, order, indices, strict=True):
            size, members = int(sizes[at]), of_table[at]
            start = int(operation.start[at])
            if place is None:
                slot = self._place(functions, operation.hashes[start : start + size], table)
                place = np.full((1 << table["bits"]) + 1, size)
                place[slot] = np.arange(size)
            values: np.ndarray = np.empty((len(members), len(place)), np.float32)
            for row, i in zip(values, members, strict=True):
                row[:] = operation.values[firsts[i] : firsts[i] + size + 1][place]
            table["counters"] = len(members)
            address = self._pointer(values)
            for row, i in enumerate(members):
                counters[done] = address + row * values.strides[0], columns[i]
                done += 1
        return tables, counters

    def _codes(self, functions: CounterFunctions, categories: np.ndarray, codes: Any) -> None:
        """Lay out the categories of an input, if there are any."""
        if not len(categories):
            return
        hashes = categories * MULTIPLIER
        order = np.argsort(hashes)
        slot = self._place(functions, hashes[order], codes["table"])
        code = np.full((1 << codes["table"]["bits"]) + 1, len(categories), np.int32)
        code[slot] = order
        codes["code"] = self._pointer(code)

    def _place(self, functions: CounterFunctions, hashes: np.ndarray, table: Any) -> np.ndarray:
        """Place a table's hashes in slots, which are returned: int32, shape (hashes,)."""
        size, slot = len(hashes), np.empty(len(hashes), np.int32)
        bits, bucket_bits = max(1, (5 * size // 4).bit_length()), max(1, size.bit_length() - 1)
        for _ in range(_SIZES):
            keys, factors = np.empty(1 << bits, np.uint64), np.empty(1 << bucket_bits, np.uint32)
            addresses = [_address(array) for array in (keys, factors, slot)]
            if functions.place(_address(hashes), size, bits, bucket_bits, *addresses):
                table["key"], table["factor"] = self._pointer(keys), self._pointer(factors)
                table["bits"], table["bucket_bits"] = bits, bucket_bits
                return slot
            bits += 1
        raise ValueError("hashes are too much alike")

    def _pointer(self, array: np.ndarray) -> int:
        array = np.ascontiguousarray(array)
        self._keep.append(array)
        return _address(array)


def _path(elements: Sequence[int]) -> tuple[int, ...]:
    """Return a combination's elements, counted from 1; 0 for none. Zeros in front change no hash."""
    first = next((i for i, element in enumerate(elements) if element), len(elements))
    return tuple(elements[first:]) or (0,)


def _nodes(
    paths: Sequence[tuple[int, ...]], indices: Sequence[np.ndarray | None], counts: Sequence[int]
) -> np.ndarray:
    """Return the nodes of sorted combinations: equal beginnings are one node.

    `indices`: by combination, None if its table is read by hashes.
    `counts`: the number of each element's codes, counted from 1.
    """
    nodes: list[list[int]] = []
    known: tuple[int, ...] = ()
    line: list[list[int]] = []  # the nodes of the combination
    for path, index in zip(paths, indices, strict=True):
        common = next((i for i, (a, b) in enumerate(zip(known, path, strict=False)) if a != b), None)
        if common is None:
            common = min(len(known), len(path))
        line = line[:common] + [[path[depth] - 1, depth + 1, 0, 0, 0] for depth in range(common, len(path))]
        nodes += line[common:]
        line[-1][2] += 1
        for node in line:
            if index is None:
                node[4] = 1
            else:
                node[3] = counts[node[0] + 1]
        known = path
    return np.array([tuple(node) for node in nodes], _NODE)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
