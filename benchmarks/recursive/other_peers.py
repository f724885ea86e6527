"""ONNX Runtime, DyNet and DGL, each imported in its own environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.recursive.jobs import Job, Ready


def onnxruntime(job: Job) -> Ready:
    """ONNX's own operator for sequences, with a gather of the words' vectors before it."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    kinds = {"rnn": ("RNN", [0]), "lstm": ("LSTM", [0, 3, 1, 2]), "gru": ("GRU", [1, 0, 2])}
    operator, order = kinds[job.model]
    h, w = job.hidden, job.weights

    def gates(name: str) -> np.ndarray:
        """Gates in ONNX's order."""
        parts = np.split(w[name], len(order))
        return np.concatenate([parts[one] for one in order])[None]

    constants = {
        "words": w["words"],
        "W": gates("weight_ih"),
        "R": gates("weight_hh"),
        "B": np.concatenate([gates("bias_ih"), gates("bias_hh")], 1),
    }
    extra = {"linear_before_reset": 1} if operator == "GRU" else {}
    nodes = [
        helper.make_node("Gather", ["words", "numbers"], ["x"]),
        helper.make_node(operator, ["x", "W", "R", "B"], ["all"], hidden_size=h, **extra),
    ]
    graph = helper.make_graph(
        nodes,
        job.model,
        [helper.make_tensor_value_info("numbers", TensorProto.INT64, ["steps", "batch"])],
        [helper.make_tensor_value_info("all", TensorProto.FLOAT, ["steps", 1, "batch", h])],
        [numpy_helper.from_array(np.ascontiguousarray(one), name) for name, one in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feed = {"numbers": job.linear.words.reshape(-1, job.size)}
    roots = job.linear.roots

    def states() -> np.ndarray:
        return np.asarray(session.run(["all"], feed)[0]).reshape(-1, h)

    return Ready(lambda: states()[roots], states)


def dynet(job: Job) -> Ready:
    """DyNet with autobatching: a graph of expressions for each call, as it is meant to be used."""
    return _dynet(job, True)


def dynet_plain(job: Job) -> Ready:
    """DyNet without autobatching."""
    return _dynet(job, False)


def _dynet(job: Job, batched: bool) -> Ready:
    # Works on one thread, whatever is asked for.
    import dynet as dy

    from benchmarks.recursive.dynet_cells import CELLS

    cell, linear = CELLS[job.model](dy, job.weights), job.linear
    words = linear.words.tolist()
    children = [[one for one in own if one >= 0] for own in linear.child.tolist()]
    every, roots = range(linear.nodes), linear.roots.tolist()

    def run(asked: Any) -> np.ndarray:
        dy.renew_cg(autobatching=batched)
        found: list[Any] = []
        for word, own in zip(words, children, strict=True):
            found.append(cell.node(word, [found[one] for one in own]))
        out = dy.concatenate_cols([found[one][0] for one in asked])
        # All states are computed, as by the others, even those of roots that nobody reads.
        dy.forward([one for states in found for one in states[1:]] + [out])
        columns: np.ndarray = out.npvalue()
        return columns.reshape(job.hidden, -1).T

    return Ready(lambda: run(roots), lambda: run(every))


def dgl(job: Job) -> Ready:
    """DGL in the manner of its TreeLSTM example: messages to the nodes of each level in turn."""
    import torch

    from benchmarks.recursive.dgl_cells import CELLS

    torch.set_num_threads(job.threads)
    w = {name: torch.from_numpy(one) for name, one in job.weights.items()}
    run = CELLS[job.model](job.linear, w)
    roots = torch.from_numpy(job.linear.roots)

    def states() -> Any:
        with torch.inference_mode():
            return run()

    return Ready(lambda: states()[roots], states)
