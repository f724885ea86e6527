"""Indices of the loops that statements replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx


def index_at(index: Any, values: Mapping[Any, int]) -> Any:
    """Return an index, int64, with values in place of variables."""

    def put(variable: Any) -> Any:
        return tirx.const(values[variable], str(variable.ty.dtype)) if variable in values else variable

    return tvm_ffi.structural_map(index, (tirx.Var, put)).astype("int64")


def entry_at(load: Any, offset: Any) -> Any:
    """Return the entry at an offset from a load's."""
    at = load.indices[0]
    return tirx.BufferLoad(load.source, [at + tirx.Cast(str(at.ty.dtype), offset)])
