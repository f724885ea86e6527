"""Lookups, by every method on every kind of CPU that this machine can stand for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule

from hbtvm.compiler.building.cpu import compile_module, link_library
from hbtvm.compiler.targets.target import resolve
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.memory import aligned
from hbtvm.schedules.workload import Target
from hbtvm.strategies.intrinsics.lookup import METHODS, lookup, padded

RUNS = 5


def target_of(mcpu: str) -> Target:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    return target


def looked_up(
    table: np.ndarray, index: np.ndarray, entries: int, method: str, target: Target
) -> tuple[np.ndarray, str]:
    """``table[i, index[i, j]]`` of a kernel with vectors over j, and the kernel's assembly."""
    lanes = index.shape[1]
    n = te.var("n", "int64")
    runs = te.placeholder((n, table.shape[1]), str(table.dtype), name="runs")
    at = te.placeholder((n, lanes), "int32", name="at")
    found = te.compute((n, lanes), lambda i, j: lookup(runs[i, 0], at[i, j], entries, method), name="found")
    sch = Schedule(te.create_prim_func([runs, at, found]))
    sch.vectorize(sch.get_loops(sch.get_sblock("found"))[1])
    compiled = compile_module(sch.mod, target)
    out = aligned(np.zeros(index.shape, table.dtype))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        link_library(compiled, path)
        tvm_ffi.load_module(path)["main"](aligned(table), aligned(index), out)
    return out, str(compiled.mod.inspect_source("asm"))


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_every_lane_finds_its_entry(dtype: str, method: str, mcpu: str) -> None:
    target = target_of(mcpu)
    rng = np.random.default_rng(len(method))
    for lanes, entries in [(4, 31), (8, 5), (16, 31), (16, 100), (64, 64)]:
        # Exactly as much memory as a lookup may read.
        table = (rng.normal(size=(RUNS, padded(entries, dtype, method))) * 1000).astype(dtype)
        index = rng.integers(0, entries, (RUNS, lanes)).astype(np.int32)
        got, _ = looked_up(table, index, entries, method, target)
        np.testing.assert_array_equal(got, np.take_along_axis(table, index.astype(np.int64), axis=1))


@pytest.mark.parametrize(
    ("mcpu", "method", "instruction"),
    [
        ("x86-64-v4", "permute", "vperm"),
        ("x86-64-v3", "permute", "vperm"),
        ("x86-64-v4", "gather", "vgatherdps"),
        ("x86-64-v3", "gather", "vgatherdps"),
    ],
)
def test_the_method_is_what_runs(mcpu: str, method: str, instruction: str) -> None:
    table, index = np.zeros((RUNS, 32), np.float32), np.zeros((RUNS, 16), np.int32)
    _, assembly = looked_up(table, index, 31, method, target_of(mcpu))
    assert instruction in assembly


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_indices_that_the_compiler_can_foresee_are_taken_apart_all_the_same(mcpu: str) -> None:
    """Lane j's index is j or 32 + j, as a stump's walk leads to: LLVM 22 then lost a mask."""
    lanes, target = 16, target_of(mcpu)
    n = te.var("n", "int64")
    runs = te.placeholder((n, 64), "float32", name="runs")
    x = te.placeholder((n, lanes), "float32", name="x")

    def entry(i: Any, j: Any) -> Any:
        way = tirx.Select(x[i, j] <= tirx.const(0, "float32"), tirx.const(0, "int32"), tirx.const(1, "int32"))
        return lookup(runs[i, 0], way * 32 + j, 64, "scalar")

    found = te.compute((n, lanes), entry, name="found")
    sch = Schedule(te.create_prim_func([runs, x, found]))
    sch.vectorize(sch.get_loops(sch.get_sblock("found"))[1])
    rng = np.random.default_rng(0)
    table, rows = rng.normal(size=(RUNS, 64)).astype("f4"), rng.normal(size=(RUNS, lanes)).astype("f4")
    out = aligned(np.zeros((RUNS, lanes), np.float32))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        link_library(compile_module(sch.mod, target), path)
        tvm_ffi.load_module(path)["main"](aligned(table), aligned(rows), out)
    expected = np.take_along_axis(table, np.where(rows <= 0, 0, 32) + np.arange(lanes), axis=1)
    np.testing.assert_array_equal(out, expected)


def test_a_run_is_padded_to_whole_registers_only_for_permutes() -> None:
    assert padded(31, "float32", "permute") == 32
    assert padded(31, "float64", "permute") == 32
    assert padded(33, "float64", "permute") == 40
    assert padded(31, "float32", "gather") == 31
