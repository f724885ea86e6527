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
