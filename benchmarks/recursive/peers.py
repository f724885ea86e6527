"""The peers by name. Imported in the peers' processes: numpy only, the rest inside the functions."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.recursive.cases import MODELS
from benchmarks.recursive.jobs import Job, Ready


@dataclass(frozen=True)
class Peer:
    """A peer.

    Attributes
    ----------
    title
        What reports call it.
    function
        Where it is made ready: module in this package and function.
    packages
        Whose versions a report states, by the name on an index.
    modules
        What is imported before memory is counted.
    environment
        The folder of its environment; none: that of the benchmark.
    models
        Names of those that it takes.
    """

    title: str
    function: tuple[str, str]
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    environment: str = ""
    models: tuple[str, ...] = tuple(MODELS)

    def make(self) -> Callable[[Job], Ready]:
        """The function that makes it ready."""
        module, name = self.function
        found: Callable[[Job], Ready] = getattr(
            importlib.import_module(f"benchmarks.recursive.{module}"), name
        )
        return found

    def imports(self) -> None:
        """Import what it is made of."""
        for name in self.modules:
            importlib.import_module(name)


_TORCH = ("torch",)
_SEQUENCES = tuple(name for name, model in MODELS.items() if model.family == "sequence")
_TREES = tuple(name for name, model in MODELS.items() if model.family == "tree")
_COMPARED = tuple(name for name, model in MODELS.items() if model.family != "study")

PEERS = {
    "node": Peer("torch, node by node", ("torch_peers", "node"), _TORCH, _TORCH),
    "level": Peer("torch, level by level", ("torch_peers", "level"), _TORCH, _TORCH),
    "compile": Peer("torch.compile of a level", ("torch_peers", "compiled"), _TORCH, _TORCH),
    "layer": Peer("torch.nn", ("torch_peers", "layer"), _TORCH, _TORCH, models=_SEQUENCES),
    "onnx": Peer(
        "ONNX Runtime",
        ("other_peers", "onnxruntime"),
        ("onnxruntime", "onnx"),
        ("onnxruntime", "onnx"),
        "onnxruntime",
        _SEQUENCES,
    ),
    "dynet": Peer("DyNet, autobatch", ("other_peers", "dynet"), ("dyNET38",), ("dynet",), "dynet", _COMPARED),
    "dynet-plain": Peer(
        "DyNet", ("other_peers", "dynet_plain"), ("dyNET38",), ("dynet",), "dynet", _COMPARED
    ),
    "dgl": Peer(
        "DGL", ("other_peers", "dgl"), ("dgl",), ("torch", "benchmarks.recursive.dgl_cells"), "dgl", _TREES
    ),
    "hbtvm": Peer("hbtvm", ("hbtvm_peer", "ready"), (), ("hbtvm",)),
}
"""By name; hbtvm last."""

OTHERS = tuple(name for name in PEERS if name != "hbtvm")
"""Names of those that hbtvm is compared with."""


def versions(name: str) -> dict[str, str] | None:
    """Versions of a peer's packages; None if one is not installed."""
    try:
        return {one: importlib.metadata.version(one) for one in PEERS[name].packages}
    except importlib.metadata.PackageNotFoundError:
        return None
