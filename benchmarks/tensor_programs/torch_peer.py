"""PyTorch's ways to compute a workload: plain, channels last, and with weights packed ahead (oneDNN)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.tensor_programs.workloads import Workload

Call = Callable[[], Any]


def calls(workload: Workload, arrays: Sequence[np.ndarray], threads: int) -> dict[str, Call]:
    """Return PyTorch's ways by name; each returns its result."""
    import torch

    torch.set_num_threads(threads)
    values = [torch.from_numpy(array) for array in arrays]
    kind = workload.program.__name__
    if kind == "matmul":
        return {"mm": lambda: torch.mm(values[0], values[1])}
    if kind == "lstm_cell":
        return _cell(values)
    return _convolutions(workload, values)


def _cell(values: Sequence[Any]) -> dict[str, Call]:
    import torch

    x, h, c, W, b = values[:5]
    hidden = len(x)
    cell = torch.nn.LSTMCell(hidden, hidden)
    flat = W.reshape(4 * hidden, 2 * hidden)
    with torch.no_grad():
        cell.weight_ih.copy_(flat[:, :hidden])
        cell.weight_hh.copy_(flat[:, hidden:])
        cell.bias_ih.copy_(b.reshape(-1))
        cell.bias_hh.zero_()
    row, state = x[None], (h[None], c[None])
    return {"LSTMCell": lambda: cell(row, state)[0][0]}


def _convolutions(workload: Workload, values: Sequence[Any]) -> dict[str, Call]:
    import torch

    X, W = values[:2]
    if workload.program.__name__ == "depthwise":
        stride, groups = 1, int(W.shape[0])
        W = W[:, None]
    else:
        stride, groups = workload.args[4], 1
    pad = int(W.shape[-1]) // 2
    convolve = torch.nn.functional.conv2d
    last = torch.channels_last
    Xl, Wl = X.contiguous(memory_format=last), W.contiguous(memory_format=last)
    ways: dict[str, Call] = {
        "conv2d": lambda: convolve(X, W, padding=pad, stride=stride, groups=groups),
        "channels last": lambda: convolve(Xl, Wl, padding=pad, stride=stride, groups=groups),
    }
    pads, strides, ones = [pad, pad], [stride, stride], [1, 1]
    run = torch.ops.mkldnn._convolution_pointwise
    with contextlib.suppress(RuntimeError, AttributeError):
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            W.to_mkldnn(), pads, strides, ones, groups, list(X.shape)
        )
        ways["packed"] = lambda: run(X, packed, None, pads, strides, ones, groups, "none", [], "")
        ways["packed, channels last"] = lambda: run(
            Xl, packed, None, pads, strides, ones, groups, "none", [], ""
        )
        ways["packed"](), ways["packed, channels last"]()
    return ways
