"""Constants of OpenCL source by their bits: TVM's generator prints seven digits of a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

_FUNCTIONS = {"float32": ("as_float", "int32"), "float64": ("as_double", "int64")}
"""OpenCL's function from bits to a number, and the type of the bits, by type."""


def exact_constants(module: Any) -> Any:
    """Return a module for the generator with the bits of all constants that need more digits."""
    return tirx.transform.prim_func_pass(
        lambda function, *_: function.with_body(
            tvm_ffi.structural_map(function.body, (tirx.FloatImm, _exact))
        ),
        opt_level=0,
    )(module)


def _exact(constant: Any) -> Any:
    dtype, value = str(constant.ty.dtype), float(constant.value)
    number = np.dtype(dtype).type
    if not np.isfinite(value) or number(f"{value:.6e}") == number(value):
        return constant
    function, bits = _FUNCTIONS[dtype]
    return tirx.call_pure_extern(dtype, function, tirx.const(int(number(value).view(bits)), bits))
