"""`once`: a value that a statement computes once, however often its expression uses it.

Expressions of TVM are trees: what an expression uses n times is in it n times, with all that it is computed
of. Passes that simplify go through each copy, and through a condition again for each branch that it decides,
so that their time grows with a power of how deep conditions are nested: a walk over columns of categories
that are computed where they are used took half a minute. So such a value is given a name in its expression,
which `bind_once` makes a statement of once a module is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import SBlock


def once(value: Any, body: Callable[[Any], Any]) -> Any:
    """Return what `body` returns for the name of a value, which must not be in a branch of a condition.

    (Its statement comes before the one that has the condition, so that no condition guards it.)
    """
    given = value.asobject() if isinstance(value, te.TensorSlice) else value
    name = tirx.Var("once", str(given.ty.dtype))
    return tirx.Let(name, given, body(name))


def bind_once(module: Any) -> Any:
    """Return a scheduled module in which blocks begin by computing what is named by `once` in them."""
    function = module["main"]
    body = tvm_ffi.structural_map(function.body, (SBlock, _bound))
    return module if body.same_as(function.body) else tvm.IRModule({"main": function.with_body(body)})


def _bound(block: Any) -> Any:
    """Return a block that has statements in place of its named values; blocks in it have theirs already."""
    bindings: list[Any] = []
    names: dict[Any, Any] = {}

    def own(expression: Any) -> Any:
        callbacks = ((tirx.Let, named), (tirx.Var, lambda one: names.get(one, one)))
        return tvm_ffi.structural_map(expression, callbacks, order="pre")

    def named(let: Any) -> Any:
        value = own(let.value)
        name = next((b.var for b in bindings if tvm_ffi.structural_equal(b.value, value)), None)
        if name is None:
            name = tirx.Var(str(let.var.name), str(value.ty.dtype))
            bindings.append(tirx.Bind(name, value))
        names[let.var] = name
        return own(let.body)

    body = own(block.body)
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
