"""Cells from torch modules that compute one node, by ``torch.export``."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from hbtvm.errors import ModelError, missing_package
from hbtvm.recursive.aten.archive import graph_of
from hbtvm.recursive.aten.build import cell_of
from hbtvm.recursive.aten.graph import Graph
from hbtvm.recursive.aten.signature import Convention
from hbtvm.recursive.cell import Shape
from hbtvm.recursive.model import Model
from hbtvm.recursive.output import Output
from hbtvm.words.printable import shown

Sizes = Mapping[str, int | Shape]
_MOST = 1 << 20


def from_torch(
    module: Any,
    *,
    children: int | None = 1,
    state: Sequence[str] | Sizes | None = None,
    inputs: Sequence[str] | Mapping[str, int | str] | None = None,
    reduce: Literal["sum", "max"] | None = None,
    apart: bool | None = None,
    leaf: Any = None,
    optional: Collection[str] = (),
    output: Output | None = None,
    weights: Mapping[str, Any] | None = None,
    classes: Sequence[str | int] = (),
    name: str | None = None,
) -> Model:
    """Return a model whose cell computes a torch module.

    The module's ``forward`` takes the states of a node's children, one argument for each state, and then the
    node's inputs; it returns the node's states, one result (or an item of a dict) for each. All are batches
    of nodes. A child's state is a vector or a matrix, of zeros if the child is absent. Inputs are vectors
    (batch, size) or whole numbers (batch,), int64, for a ``torch.nn.Embedding`` in the module.

    torch's ``RNNCell``, ``LSTMCell``, ``GRUCell``, and ``RNN``, ``LSTM``, ``GRU`` of one layer need no
    wrapper: they become chains or, with ``reduce="sum"``, child-sum cells.

    `module`: in float32, on the CPU; exported in evaluation mode.
    `children`: places for children, or None for any number. A state's argument is (batch, child, ...): with a
        number of places, all places, with zeros for absent children; with None, the existing children. With
        one place, it is (batch, ...).
    `state`: names of the states in the order of arguments and results, or their sizes or shapes by name.
        Missing sizes are determined by trying those of the module's parameters. By default ``("h",)``, for an
        LSTM ``("h", "c")``. If all are names of ``forward``'s parameters, these are the states.
    `inputs`: names of the other arguments in order, or a dict of their kinds: a vector's size, or
        ``"number"``. By default, determined like sizes of states.
    `reduce`: ``"sum"`` or ``"max"``: the arguments of states are sums or maxima over the children, (batch,
        ...).
    `apart`: whether each child's state is a separate argument, (batch, ...): all children's first states,
        then their second states.
    `leaf`: for nodes without children: another module, or the name of a method of this module, which takes
        the inputs that its parameters name and returns the states. By default, such nodes are computed like
        others.
    `optional`: inputs of whole numbers that nodes may lack; -1 then stands for a row of zeros.
    `output`, `weights`, `classes`: as in `hbtvm.recursive.Model`.
    `name`: name of the cell; by default, the module's class.
    Raises `ModelError` if torch can't export the module, or cells lack an operator; it names the operator and
    the line of the module. Raises `MissingPackageError` if torch is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise missing_package("from_torch needs", "torch", "torch") from error

    from hbtvm.recursive.torch_modules import layers as torch_layers
    from hbtvm.recursive.torch_modules import trial as torch_trial

    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"the module is {shown(repr(module))}; expected a torch.nn.Module")
    for key, array in module.state_dict().items():
        if array.is_floating_point() and array.dtype != torch.float32:
            raise ModelError(f"weight {shown(key)!r} is {array.dtype}; call float() of the module first")
        if array.device.type != "cpu":
            raise ModelError(f"weight {shown(key)!r} is on {array.device}; call cpu() of the module first")
    cell_name = name or type(module).__name__
    plain, default = torch_layers.as_node(module)
    if plain is not module and children != 1 and reduce is None:
        raise ModelError(f"a {cell_name} takes one child; expected children=1, or reduce='sum'")
    state = default.state if state is None else (state,) if isinstance(state, str) else state
    known = {**default.sizes(state), **_sizes_by_name(state)}
    if len(known) != len(state):
        raise ModelError(f"states {tuple(state)} should have names of their own")
    stated = default.inputs if inputs is None else inputs
    names = None if inputs is None else tuple(inputs)
    how = Convention(children, tuple(state), names, reduce, apart, frozenset(optional))
    call = torch_trial.working_call(plain, how, known, _sizes_by_name(stated or ()))
    prefix = "module." if plain is module else "module.module."
    how = replace(how, inputs=None)  # arguments now have the cell's names
    graph = _exported(call, prefix)
    leaf_graph = None
    if leaf is not None:
        leaf_graph = _exported(torch_trial.leaf_call(plain, leaf, call, _sizes_by_name(stated or ())), prefix)
    return Model(cell_of(cell_name, graph, how, leaf_graph), weights, output, classes=classes)


def _exported(call: Any, prefix: str) -> Graph:
    """Return torch's graph of a module's call."""
    import torch

    symbols = {
        "b": torch.export.Dim("batch", min=1, max=_MOST),
        "c": torch.export.Dim("child", min=1, max=_MOST),
    }
    shapes = tuple({at: symbols[kind] for at, kind in axes.items()} for axes in call.varying)
    modes = [(module, module.training) for module in call.module.modules()]
    file = io.BytesIO()
    try:
        call.module.eval()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exported = torch.export.export(call.module, call.arguments, dynamic_shapes=(shapes,))
            torch.export.save(exported.run_decompositions(), file)
    except Exception as error:  # torch raises errors of many types
        message = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ModelError(
            f"torch can't export the module with a batch that varies ({type(error).__name__}: "
            f"{shown(message, most=300)})"
        ) from error
    finally:
        for module, mode in modes:
            module.training = mode
    graph: Graph = call.labelled(graph_of(file.getvalue()))
    names = {key: constant.name.removeprefix(prefix) for key, constant in graph.constants.items()}
    constants = {key: replace(constant, name=names[key]) for key, constant in graph.constants.items()}
    return replace(graph, constants=constants)


def _sizes_by_name(sizes: Any) -> dict[str, Any]:
    """Return sizes by name from a mapping or from names; None for unknown sizes."""
    return dict(sizes) if isinstance(sizes, Mapping) else dict.fromkeys(sizes)
