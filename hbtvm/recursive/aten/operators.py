"""The implementation of each ATen operator, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hbtvm.recursive.aten import arithmetic, fills, forms, layers, products

OPERATORS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            "alias",
            "clone",
            "contiguous",
            "detach",
            "detach_",
            "lift",
            "lift_fresh",
            "lift_fresh_copy",
            "positive",
        ),
        forms.same,
    ),
    **dict.fromkeys(("view", "_unsafe_view"), forms.view),
    **dict.fromkeys(("_to_copy", "to"), fills.to),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), forms.transpose),
    **{name: arithmetic.unary(name) for name in ("neg", "abs", "exp", "relu", "sigmoid", "tanh")},
    **{name: arithmetic.scaled(name) for name in ("add", "sub")},
    **{name: arithmetic.binary(name) for name in ("mul", "div")},
    **{name: arithmetic.reduction(name) for name in ("sum", "amax", "amin")},
    **{name: arithmetic.extreme(name) for name in ("max", "min")},
    **fills.filled(0.0),
    **fills.filled(1.0),
    **dict.fromkeys(("softmax", "_softmax"), arithmetic.softmax),
    "reshape": lambda values, x, shape: forms.view(values, x, shape),
    "flatten": forms.flatten,
    "unflatten": forms.unflatten,
    "unsqueeze": forms.unsqueeze,
    "squeeze": forms.squeeze,
    "permute": forms.permute,
    "t": forms.t,
    "expand": forms.expand,
    "expand_as": forms.expand_as,
    "repeat": forms.repeat,
    "select": forms.select,
    "slice": forms.slice_,
    "narrow": forms.narrow,
    "split_with_sizes": forms.split_with_sizes,
    "split": forms.split,
    "chunk": forms.chunk,
    "unbind": forms.unbind,
    "cat": forms.cat,
    "stack": forms.stack,
    "full": fills.full,
    "full_like": fills.full_like,
    "new_full": fills.new_full,
    "scalar_tensor": fills.scalar_tensor,
    "sym_size": forms.sym_size,
    "maximum": arithmetic.binary("max"),
    "minimum": arithmetic.binary("min"),
    "rsub": arithmetic.rsub,
    "reciprocal": arithmetic.reciprocal,
    "pow": arithmetic.power,
    "silu": arithmetic.silu,
    "leaky_relu": arithmetic.leaky_relu,
    "clamp": arithmetic.clamp,
    "clamp_min": arithmetic.clamp,
    "clamp_max": arithmetic.clamp,
    "hardtanh": arithmetic.hardtanh,
    "addcmul": arithmetic.addcmul,
    "lerp": arithmetic.lerp,
    "mean": arithmetic.mean,
    "mm": products.mm,
    "bmm": products.mm,
    "mv": products.mv,
    "matmul": products.matmul,
    "embedding": products.embedding,
    "linear": layers.linear,
    "addmm": layers.biased("mat1", "mat2"),
    "addmv": layers.biased("mat", "vec"),
    "baddbmm": layers.biased("batch1", "batch2"),
    "rnn_tanh_cell": layers.rnn_cell("tanh"),
    "rnn_relu_cell": layers.rnn_cell("relu"),
    "gru_cell": layers.gru_cell,
    "lstm_cell": layers.lstm_cell,
    "dropout": layers.dropout,
}
"""Operators by name without overload. Each takes the `Values` and the arguments of the operator's schema,
with ``x`` for ``self`` and ``input``."""

SIZES: dict[str, Callable[..., Any]] = {"mul": forms.multiply, "floordiv": forms.divide}
"""Python's operators of sizes."""

IGNORED = frozenset(
    ("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "implicit", "half_to_float")
)
"""Arguments that don't affect numbers."""
