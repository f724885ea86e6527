"""torch's own cells and layers for sequences as modules of one node. Imports torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from hbtvm.errors import ModelError


@dataclass(frozen=True)
class Defaults:
    """What is known of a module without being told."""

    state: tuple[str, ...] = ("h",)
    hidden: int | None = None
    inputs: dict[str, int] | None = None

    def sizes(self, names: Collection[str]) -> dict[str, int | None]:
        """The size of each state, None if it is not known."""
        return dict.fromkeys(names, self.hidden)


def as_node(module: torch.nn.Module) -> tuple[torch.nn.Module, Defaults]:
    """A module that takes states and then inputs, of one that may be torch's own.

    Raises `ModelError` if it is a layer of torch that no cell can be.
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
    """The cell of a layer."""
    nn = torch.nn
    kind = type(layer).__name__
    if layer.num_layers != 1 or layer.bidirectional or layer.proj_size:
        raise ModelError(
            f"a {kind} of several layers, directions or with a projection is no cell; expected one"
        )
    own: Any
    if isinstance(layer, nn.LSTM):
        own = nn.LSTMCell(layer.input_size, layer.hidden_size, bool(layer.bias))
    elif isinstance(layer, nn.GRU):
        own = nn.GRUCell(layer.input_size, layer.hidden_size, bool(layer.bias))
    else:
        function = str(layer.nonlinearity)
        own = nn.RNNCell(layer.input_size, layer.hidden_size, bool(layer.bias), function)
    for name in dict(own.named_parameters()):
        setattr(own, name, getattr(layer, f"{name}_l0"))
    return own
