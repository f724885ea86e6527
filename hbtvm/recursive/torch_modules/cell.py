"""Cells from torch: the module that computes one node becomes a cell, by way of ``torch.export``."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from hbtvm.errors import MissingPackageError, ModelError
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
    """The model whose cell a torch module computes.

    The module's ``forward`` gets the states of a node's children, one argument for each state, and then the
    node's inputs; it gives the node's states, one result (or an item of a dict) for each. All are batches of
    nodes. A child's state is a vector or a matrix; a child that is not there has one of zeros. Inputs are
    vectors (batch, size) or whole numbers (batch,), int64, for a ``torch.nn.Embedding`` inside.

    torch's own ``RNNCell``, ``LSTMCell``, ``GRUCell``, and ``RNN``, ``LSTM``, ``GRU`` of one layer are taken
    as they are: chains, or, with ``reduce="sum"``, the child-sum cell of them.

    `module`: in float32, on the CPU; it is exported as in evaluation.
    `children`: places for children, or None for any number. An argument of a state is (batch, child, ...):
        with a number of places, all of them, of zeros where there is no child; with None, the children there
        are. With one place, it is (batch, ...).
    `state`: names of the states in the order of arguments and results, or their sizes or shapes by name;
        sizes that are left out are found by trying those of the module's parameters. ``("h",)``, if left out,
        of an LSTM ``("h", "c")``. If all are names of ``forward``'s parameters, these are the states.
    `inputs`: names of the other arguments in order, or what they are: a vector's size, or ``"number"``. Found
        as the sizes of states are, if left out.
    `reduce`: ``"sum"`` or ``"max"``: the arguments of states are sums or maxima over the children, (batch,
        ...).
    `apart`: whether each child's state is an argument of its own, (batch, ...): of the first state all
        children's, then of the second.
    `leaf`: for nodes without children: another module, or the name of a method of this one, which takes the
        inputs (those that its parameters name) and gives the states. If left out, such nodes are computed as
        the others are.
    `optional`: inputs of whole numbers that a node may come without; -1 then stands for a row of zeros.
    `output`, `weights`, `classes`: as of `hbtvm.recursive.Model`.
    `name`: of the cell; that of the module's class, if left out.
    Raises `ModelError` if torch can't export the module, or an operator is one that cells lack; it names the
    operator and the line of the module. Raises `MissingPackageError` if torch is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingPackageError("from_torch needs torch, which is not installed", name="torch") from error

    from hbtvm.recursive.torch_modules import layers as torch_layers
    from hbtvm.recursive.torch_modules import trial as torch_trial

    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"the module is {shown(repr(module))}; expected a torch.nn.Module")
    for key, one in module.state_dict().items():
        if one.is_floating_point() and one.dtype != torch.float32:
            raise ModelError(f"weight {shown(key)!r} is {one.dtype}; call float() of the module first")
        if one.device.type != "cpu":
            raise ModelError(f"weight {shown(key)!r} is on {one.device}; call cpu() of the module first")
    own = name or type(module).__name__
    plain, default = torch_layers.as_node(module)
    if plain is not module and children != 1 and reduce is None:
        raise ModelError(f"a {own} takes one child; expected children=1, or reduce='sum'")
    state = default.state if state is None else (state,) if isinstance(state, str) else state
    known = {**default.sizes(state), **_given(state)}
    if len(known) != len(state):
        raise ModelError(f"states {tuple(state)} should have names of their own")
    stated = default.inputs if inputs is None else inputs
    names = None if inputs is None else tuple(inputs)
    how = Convention(children, tuple(state), names, reduce, apart, frozenset(optional))
    call = torch_trial.found(plain, how, known, _given(stated or ()))
    prefix = "module." if plain is module else "module.module."
    how = replace(how, inputs=None)  # by now, arguments are called what the cell calls them
    graph = _exported(call, prefix)
    leaf_graph = None
    if leaf is not None:
        leaf_graph = _exported(torch_trial.leaf_call(plain, leaf, call, _given(stated or ())), prefix)
    return Model(cell_of(own, graph, how, leaf_graph), weights, output, classes=classes)


def _exported(call: Any, prefix: str) -> Graph:
    """The graph that torch makes of a module that is called so."""
    import torch

    symbols = {
        "b": torch.export.Dim("batch", min=1, max=_MOST),
        "c": torch.export.Dim("child", min=1, max=_MOST),
    }
    shapes = tuple({at: symbols[kind] for at, kind in one.items()} for one in call.varying)
    modes = [(one, one.training) for one in call.module.modules()]
    file = io.BytesIO()
    try:
        call.module.eval()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exported = torch.export.export(call.module, call.arguments, dynamic_shapes=(shapes,))
            torch.export.save(exported.run_decompositions(), file)
    except Exception as error:  # torch raises errors of many types
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ModelError(
            f"torch can't export the module with a batch that varies ({type(error).__name__}: "
            f"{shown(said, most=300)})"
        ) from error
    finally:
        for one, mode in modes:
            one.training = mode
    graph: Graph = call.labelled(graph_of(file.getvalue()))
    names = {key: one.name.removeprefix(prefix) for key, one in graph.constants.items()}
    constants = {key: replace(one, name=names[key]) for key, one in graph.constants.items()}
    return replace(graph, constants=constants)


def _given(sizes: Any) -> dict[str, Any]:
    """Sizes by name, of what may be names alone: None for those that are not known."""
    return dict(sizes) if isinstance(sizes, Mapping) else dict.fromkeys(sizes)
