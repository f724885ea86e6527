"""torch's cells and layers for sequences as modules of one node. Imports torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from hbtvm.errors import ModelError


@dataclass(frozen=True)
class Defaults:
    """Defaults for a module."""

    state: tuple[str, ...] = ("h",)
    hidden: int | None = None
    inputs: dict[str, int] | None = None

    def sizes(self, names: Collection[str]) -> dict[str, int | None]:
        """Return the size of each state, None if unknown."""
        return dict.fromkeys(names, self.hidden)


def as_node(module: torch.nn.Module) -> tuple[torch.nn.Module, Defaults]:
    """Return a module that takes states and then inputs, and defaults; wraps torch's cells and layers.

    Raises `ModelError` for layers of torch that can't be cells.
    """
    nn = torch.nn
    if isinstance(module, nn.RNNBase):
        module = _cell(module)
    if isinstance(module, nn.LSTMCell):
        return _Pair(module), Defaults(("h", "c"), module.hidden_size, {"x": module.input_size})
    if isinstance(module, nn.GRUCell | nn.RNNCell):
        return _Single(module), Defaults(("h",), module.hidden_size, {"x": module.input_size})
    hidden = getattr(module, "hidden_size", None)
    return module, Defaults(hidden=hidden if type(hidden) is int else None)


class _Single(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.module = cell

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> Any:
        return self.module(x, h)


class _Pair(_Single):
    def forward(self, h: torch.Tensor, c: torch.Tensor, x: torch.Tensor) -> Any:  # type: ignore[override]
        return self.module(x, (h, c))


def _cell(layer: Any) -> Any:
    """Return the cell of a layer."""
    nn = torch.nn
    kind = type(layer).__name__
    if layer.num_layers != 1 or layer.bidirectional or layer.proj_size:
        raise ModelError(
            f"a {kind} of several layers, directions or with a projection is not a cell; expected one"
        )
    torch_cell: Any
    if isinstance(layer, nn.LSTM):
        torch_cell = nn.LSTMCell(layer.input_size, layer.hidden_size, bool(layer.bias))
    elif isinstance(layer, nn.GRU):
        torch_cell = nn.GRUCell(layer.input_size, layer.hidden_size, bool(layer.bias))
    else:
        function = str(layer.nonlinearity)
        torch_cell = nn.RNNCell(layer.input_size, layer.hidden_size, bool(layer.bias), function)
    for name in dict(torch_cell.named_parameters()):
        setattr(torch_cell, name, getattr(layer, f"{name}_l0"))
    return torch_cell
