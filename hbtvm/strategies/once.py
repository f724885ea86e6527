"""`once`: a value that a statement computes once, however often its expression uses it.

TVM's expressions are trees: an expression contains n copies of a value that it uses n times. Simplifying
passes visit each copy, and a condition again for each branch that it decides, so nested conditions take them
long: a walk over inlined columns of categories took half a minute. `once` names such a value by a let
expression, and `bind_once` turns it into a statement of the scheduled module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import SBlock


def once(value: Any, body: Callable[[Any], Any]) -> Any:
    """Return `body` of a variable that stands for a value.

    Must not be used in a branch of a condition, since no condition guards the value's statement.
    """
    expression = value.asobject() if isinstance(value, te.TensorSlice) else value
    name = tirx.Var("once", str(expression.ty.dtype))
    return tirx.Let(name, expression, body(name))


def bind_once(module: Any) -> Any:
    """Return a scheduled module whose sblocks begin with the values that `once` names in them."""
    function = module["main"]
    body = tvm_ffi.structural_map(function.body, (SBlock, _bound))
    return module if body.same_as(function.body) else tvm.IRModule({"main": function.with_body(body)})


def _bound(block: Any) -> Any:
    """Return an sblock with statements for its named values; nested sblocks are already done."""
    bindings: list[Any] = []
    names: dict[Any, Any] = {}

    def renamed(expression: Any) -> Any:
        callbacks = ((tirx.Let, named), (tirx.Var, lambda var: names.get(var, var)))
        return tvm_ffi.structural_map(expression, callbacks, order="pre")

    def named(let: Any) -> Any:
        value = renamed(let.value)
        name = next((b.var for b in bindings if tvm_ffi.structural_equal(b.value, value)), None)
        if name is None:
            name = tirx.Var(str(let.var.name), str(value.ty.dtype))
            bindings.append(tirx.Bind(name, value))
        names[let.var] = name
        return renamed(let.body)

    body = renamed(block.body)
    if not bindings:
        return block
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        tirx.SeqStmt([*bindings, body]),
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
