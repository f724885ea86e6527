"""nvForest's kernel, compiled from its headers, as `Launched`; whoever runs this fetches its repository.

Its launches are computed as nvForest does: 256 threads a block, `chunk` rows at a time, trees handed out to
the threads, and one sum of each thread and row in shared memory.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.bounds.kernels import Launched, one_of, usage
from benchmarks.gpu.bounds.memory import Global
from benchmarks.gpu.bounds.nvforest_nodes import LAYOUTS, Nodes, nodes_of
from benchmarks.gpu.bounds.sass import Code, disassemble
from hbtvm.compiler.building.cuda_toolkit import nvcc
from hbtvm.errors import BuildError
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble

CHUNKS = (1, 2, 4, 8, 16, 32)
THREADS, MOST_BLOCKS = 256, 65536
MOST_SHARED, SHARED = 227 * 1024, 228 * 1024
"""Bytes of shared memory of a block, and of a multiprocessor."""

STUB = """#pragma once
namespace rmm {
struct cuda_device_id {
  using value_type = int;
  constexpr explicit cuda_device_id(int given) : number{given} {}
  constexpr int value() const { return number; }
  int number;
};
inline cuda_device_id get_current_cuda_device() { return cuda_device_id{0}; }
}
"""
"""In place of the one header of another library (RMM) that the kernel's headers include and do not need."""


@cache
def compiled(folder: Path, layout: str, large: bool, vector: bool) -> tuple[dict[str, Code], str]:
    """Return the kernels for all of `CHUNKS`, and what ptxas says of them.

    Parameters
    ----------
    folder
        A checkout of rapidsai/nvforest.
    large
        Whether nodes have offsets and features of 32 bits.
    vector
        Whether leaves have several outputs.

    Raises
    ------
    BuildError
        If they cannot be compiled.
    """
    size = "std::uint32_t" if large else "std::uint16_t"
    number = LAYOUTS.index(layout)
    forest = f"forest<static_cast<tree_layout>({number}), float, std::uint32_t, {size}, {size}>"
    output = "float*" if vector else "std::nullptr_t"
    text = "#include <cstddef>\n#include <algorithm>\n#include <nvforest/detail/forest.hpp>\n"
    text += "#include <nvforest/detail/infer_kernel/gpu.cuh>\nnamespace nvforest::detail {\n"
    for chunk in CHUNKS:
        text += f"template __global__ void infer_kernel<false, {chunk}, {forest}, {output}, std::nullptr_t>("
        text += f"{forest}, postprocessor<float>, float*, float const*, index_type, index_type, index_type, "
        text += f"index_type, index_type, {output}, std::nullptr_t, infer_kind, float*);\n"
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as place:
        stub = Path(place, "rmm", "cuda_device.hpp")
        stub.parent.mkdir()
        stub.write_text(STUB)
        given, made = Path(place, "kernels.cu"), Path(place, "kernels.cubin")
        given.write_text(text + "}\n")
        flags = ("--cubin", "-arch=sm_90", "-O3", "-std=c++20", "--expt-relaxed-constexpr")
        includes = ("-I", str(folder / "cpp" / "include"), "-I", place)
        command = [
            nvcc(),
            *flags,
            "-DNVFOREST_ENABLE_GPU",
            *includes,
            "-Xptxas=-v",
            "-o",
            str(made),
            str(given),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"nvForest's kernel could not be compiled: {done.stderr.strip()[:300]}")
        return disassemble(made.read_bytes()), done.stderr


def launches(
    folder: Path, ensemble: TreeEnsemble, X: np.ndarray, rows: int
) -> Iterator[tuple[str, Launched]]:
    """Return nvForest's kernel in all of its layouts, for all sizes of chunks that a block has room for.

    Raises
    ------
    BuildError
        If it cannot be compiled, or does not hold the model.
    """
    if (ensemble.left[ensemble.offset[:-1]] == LEAF).any():
        raise BuildError("a tree is a leaf, which nvForest changes before it lays it out")
    for layout in LAYOUTS:
        nodes = _nodes(ensemble, layout)
        code, printed = compiled(folder, layout, nodes.large, nodes.vectors is not None)
        for chunk in CHUNKS:
            name = next(one for one in code if re.search(rf"infer_kernelILb0ELj{chunk}E", one))
            found = _launch(nodes, chunk, X, rows, code[name], one_of(printed, name))
            if found is not None:
                yield f"nvForest {layout.replace('_', ' ')}, {chunk} rows", found


_KNOWN: dict[tuple[int, str], Nodes] = {}


def _nodes(ensemble: TreeEnsemble, layout: str) -> Nodes:
    """As `nodes_of`, remembered for the last model."""
    key = (id(ensemble), layout)
    if key not in _KNOWN:
        for other in [one for one in _KNOWN if one[0] != key[0]]:
            del _KNOWN[other]
        _KNOWN[key] = nodes_of(ensemble, layout)
    return _KNOWN[key]


def _launch(nodes: Nodes, chunk: int, X: np.ndarray, rows: int, code: Code, printed: str) -> Launched | None:
    """Return the launch of one kernel; None where its rows and sums do not fit shared memory."""
    features, outputs = X.shape[1], nodes.outputs
    workspace = outputs * chunk * -(-THREADS // chunk)
    shared = chunk * features * 4 + 4 * workspace
    if shared > MOST_SHARED:
        return None
    # All of a multiprocessor's shared memory is handed out to as many blocks as it has room for.
    shared = min(MOST_SHARED, SHARED // (SHARED // shared))
    use, spilled = usage(printed, THREADS, shared)
    chunks = -(-rows // chunk)
    grid = min(chunks, MOST_BLOCKS)
    tables = [nodes.data, nodes.roots, np.zeros(4, np.float32)]
    tables += [nodes.vectors] if nodes.vectors is not None else []

    def begin(memory: Global, chosen: list[tuple[int, int]]) -> tuple[bytes, Callable[[], np.ndarray]]:
        count = min(rows, grid * chunk)  # so that each block takes one chunk
        kept = (max(x for x, _ in chosen) + 1) * chunk
        given = np.resize(X, (kept, features)).astype(np.float32)
        scores = np.zeros((kept, outputs), np.float32)
        at = [memory.add(array) for array in tables]
        put, out = memory.add(given), memory.add(scores)
        vectors = at[3] if nodes.vectors is not None else 0
        fields = _Fields()
        fields.add("<Q", at[0], at[1], 0, at[2])
        fields.add("<I", len(nodes.roots), outputs)
        fields.add("<f", 1.0, 1.0)
        fields.add("<B", 0b00100000, 0)  # sums as they are: no operation on rows, none on elements
        fields.add("<Q", out, put)
        fields.add("<I", count, features, outputs, shared, workspace)
        fields.add("<Q", vectors, 0)
        fields.add("<B", 0)
        fields.add("<Q", 0)

        def read() -> np.ndarray:
            return np.asarray(memory.array(out, np.float32)).reshape(scores.shape)[: min(kept, rows)]

        return fields.whole(), read

    moved = rows * 4.0 * (features + outputs) + sum(table.nbytes for table in tables)
    about = {"chunk": chunk, "large": nodes.large}
    share = chunks / grid
    return Launched(code, use, spilled, (grid, 1), (THREADS, 1), rows / grid, moved, begin, share, about)


class _Fields:
    """A kernel's arguments, each at a multiple of its own size."""

    def __init__(self) -> None:
        self._made = b""

    def add(self, kind: str, *values: Any) -> None:
        size = struct.calcsize(kind)
        for value in values:
            self._made += b"\0" * (-len(self._made) % size) + struct.pack(kind, value)

    def whole(self) -> bytes:
        return self._made + b"\0" * (-len(self._made) % 8)
