"""Values that a block computes once."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import SBlock

from hbtvm.strategies.once import bind_once, once


def _blocks(module: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tvm_ffi.structural_walk(
        module["main"].body, (SBlock, lambda block: found.__setitem__(block.name_hint, block))
    )
    return found


def _module(body: Any) -> Any:
    given = te.placeholder((8,), "float32", name="given")
    made = te.compute((8,), lambda i: body(given, i), name="made")
    return tvm.IRModule({"main": te.create_prim_func([given, made])})


def test_values_are_bound_in_their_order_and_equal_ones_once() -> None:
    def square(x: Any) -> Any:
        return once(x, lambda x: x * x)

    def body(given: Any, i: Any) -> Any:
        inner = once(square(given[i]) + given[i], lambda y: y + square(y))
        return inner * square(given[i])

    module = bind_once(_module(body))
    statements = list(_blocks(module)["made"].body)
    assert [isinstance(one, tirx.Bind) for one in statements] == [True, True, False]
    left: list[Any] = []
    tvm_ffi.structural_walk(module["main"].body, (tirx.Let, left.append))
    assert not left
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    out = tvm.runtime.tensor(np.zeros_like(x))
    tvm.compile(module, target="llvm")["main"](tvm.runtime.tensor(x), out)
    y = x * x + x
    np.testing.assert_array_equal(out.numpy(), (y + y * y) * (x * x))


def test_a_module_without_such_values_stays() -> None:
    module = _module(lambda given, i: given[i] * given[i])
    assert bind_once(module).same_as(module)
