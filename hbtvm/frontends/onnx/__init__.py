"""ONNX models: files, bytes and ``onnx.ModelProto`` objects of ai.onnx.ml and ONNX's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.damage import damage_of
from hbtvm.frontends.onnx import reading
from hbtvm.frontends.onnx.graph import Evaluator
from hbtvm.frontends.onnx.inputs import inputs_of
from hbtvm.frontends.onnx.outputs import graph_of
from hbtvm.graph.graph import Graph


def from_bytes(content: bytes) -> Graph:
    """Read the content of a ``.onnx`` file; nothing in it is executed.

    `content`: an ``onnx.ModelProto`` as protocol buffers write it.
    Returns a graph that computes like ONNX Runtime, but sums in float64; numbers that trees compare are
    rounded as there. Products refuse NaN and infinities that nothing fills. Raises `MissingPackageError` if
    onnx is not installed. Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if an operator is
    not supported, by name.
    """
    return _read(reading.parse, content)


def from_proto(proto: Any) -> Graph:
    """Read an ``onnx.ModelProto``, as `from_bytes` does."""
    return _read(reading.of_proto, proto)


def _read(read: Any, source: Any) -> Graph:
    # Numbers of damaged files may be infinite, or NaN.
    with damage_of("the ONNX model"), np.errstate(all="ignore"):
        document = read(source)
        inputs, tensors = inputs_of(document.body, Evaluator(document).constants)
        known = Evaluator(document).run(tensors)
        return graph_of(document, inputs, known)
