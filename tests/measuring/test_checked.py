"""A candidate that leaves scores out must not pass by the right ones of an earlier candidate."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.building.cpu import build_kernel, executor
from hbtvm.compiler.candidates.program import make_executor
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.compiler.recursion.program import RecursiveRunnable
from hbtvm.compiler.targets.target import resolve
from hbtvm.measuring.checked import CheckedKernel
from hbtvm.recursive.cell import Readout
from hbtvm.runtime.native.library import Function, load_functions, load_kernel, load_library
from hbtvm.runtime.recursive.description import names_of
from hbtvm.runtime.recursive.host import RecursiveHost
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.strategies.recursive.levels import Levels, classes_of
from tests.ensembles import random_ensemble
from tests.recursive_kernels import cell_of, configured, drawn, names

CPU = resolve("cpu")
ROWS = 64
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
_VALUE, _SHAPE = 16, 24
"""Bytes of a value that TVM passes, and where a DLTensor has the address of its shape."""


class Silent:
    """A kernel that can be made to write nothing; see `Planted`."""

    def __init__(self, right: Function) -> None:
        self.silent = False
        self._right, self._call = right, KERNEL(right.address)
        self._own = KERNEL(self._run)
        self.function = Function(ctypes.cast(self._own, ctypes.c_void_p).value or 0, 0, self)

    def _run(self, handle: int, values: int, count: int, result: int) -> int:
        return 0 if self.silent else int(self._call(self._right.handle, values, count, result))


class Planted:
    """A kernel that writes all of its scores, or leaves out the last tiles of each call.

    Attributes
    ----------
    lacking
        Tiles that are left out.
    """

    def __init__(self, right: Function) -> None:
        self.lacking = 0
        self._right, self._call = right, KERNEL(right.address)
        self._own = KERNEL(self._run)
        self.function = Function(ctypes.cast(self._own, ctypes.c_void_p).value or 0, 0, self)

    def _run(self, handle: int, values: int, count: int, result: int) -> int:
        shapes = [self._shape(values + _VALUE * at) for at in (0, count - 1)]
        tiles = shapes[0][0]
        for shape in shapes:
            shape[0] = max(0, tiles - self.lacking)
        status = self._call(self._right.handle, values, count, result) if shapes[0][0] else 0
        for shape in shapes:
            shape[0] = tiles
        return int(status)

    @staticmethod
    def _shape(value: int) -> Any:
        tensor = ctypes.c_void_p.from_address(value + 8).value or 0
        return ctypes.cast(ctypes.c_void_p.from_address(tensor + _SHAPE), ctypes.POINTER(ctypes.c_int64))


@pytest.mark.parametrize("strategy", ["tree_traversal", "bitvector"])
def test_scores_that_a_kernel_leaves_out_are_seen(strategy: str, tmp_path: Path) -> None:
    ensemble = random_ensemble(np.random.default_rng(3), trees=12, max_leaves=8, groups=2)
    forest = make_forest(ensemble, "float32", "float32")
    workload, chosen = workload_of(forest, ROWS), STRATEGIES[strategy]
    drawn = chosen.space(workload, CPU).sample(np.random.default_rng(0), 200)
    config = next(one for one in drawn if ROWS // chosen.signature(workload, one).row_tile >= 4)
    path = str(tmp_path / "kernel.so")
    build_kernel(chosen, workload, config, CPU, path)
    planted = Planted(load_kernel(path))
    kernel = make_executor(planted.function, forest, chosen, workload, config, 1)
    X = np.random.default_rng(4).normal(size=(ROWS, ensemble.n_features)).astype(np.float32)
    want = kernel.run(X)

    def checked(poison: Callable[[bool], Any] = kernel.executor.poison) -> str | None:
        return CheckedKernel(kernel.run, X, X, want, 0.0, poison=poison).check()

    assert checked() is None
    for lacking in (1, 2, 4):
        planted.lacking = lacking
        assert checked() is not None, lacking
    planted.lacking = 0
    assert checked() is None
    # Timing is not poisoned.
    planted.lacking = 4
    assert not np.isnan(kernel.run(X)).all()


@pytest.mark.parametrize("which", [0, -1])
def test_states_that_a_kernel_leaves_out_are_seen(which: int) -> None:
    cell = cell_of("tree_lstm", 16)
    classes = classes_of(cell)
    workload = Levels().workload(classes, 4, 32, 8, 1)
    config = {key: value for key, value in configured().items() if key in names(workload)}
    kernels = kernels_of(classes, workload, config, CPU)
    entry = entry_of(cell, classes, Readout("h", "nodes"), (kernels,))
    loaded = load_functions(kernels.library, names_of(kernels))
    planted = {name: Silent(function) for name, function in zip(names_of(kernels), loaded, strict=True)}
    functions = {name: kernel.function for name, kernel in planted.items()}
    host = RecursiveHost(load_library(executor(CPU)), entry, 1, [functions])
    structures = replace(drawn(2, False), inputs={"word": drawn(2, False).inputs["word"]})
    want = host.run(structures)

    def checked(poison: Callable[[bool], Any] = host.poison) -> str | None:
        return RecursiveRunnable(host.run, structures, structures, want, poison).check()

    assert checked() is None
    silent = list(planted.values())[which]
    silent.silent = True
    assert checked(lambda on: None) is None  # the memory holds the last call's states
    assert "states differ" in str(checked())
    silent.silent = False
    assert checked() is None
