"""`exponential`: e to a power, as one call that is lowered once vectors are known.

The best method depends on the CPU: an instruction that looks up table entries in registers leaves less work
to a polynomial. TVM's passes keep the call, and `hbtvm.compiler.lowering.exponentials` lowers it last.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

EXPONENTIAL = register("hbtvm.exponential", "e to a power")


def exponential(x: Any) -> Any:
    """Return e to the power of a float64 expression, with relative errors below 4e-14.

    Results below 2e-308 are less exact, down to 0; results above float64's range are infinite; NaN stays.
    """
    return tirx.call_intrin("float64", ir.Op.get(EXPONENTIAL), x)
