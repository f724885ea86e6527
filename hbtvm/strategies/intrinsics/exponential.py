"""`exponential`: e to a power, as one call that becomes instructions when vectors are known.

How it is computed best depends on the CPU: where an instruction looks up a vector of entries of a table in
registers, less of it is left to a polynomial. The call stays in the program through all of TVM's passes, and
is lowered in the last (`hbtvm.compiler.lowering.exponentials`).
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

EXPONENTIAL = register("hbtvm.exponential", "e to a power")


def exponential(x: Any) -> Any:
    """Return e to the power of a float64 expression, with relative errors below 4e-14.

    Below 2e-308 results are less than that, down to 0, and they are infinite where float64 ends. NaN stays.
    """
    return tirx.call_intrin("float64", ir.Op.get(EXPONENTIAL), x)
