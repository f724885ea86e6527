"""Kernels for 64-bit Arm CPUs: run by QEMU, and their instructions looked at."""

from __future__ import annotations

import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from tvm import te
from tvm.s_tir import Schedule

import hbtvm
from hbtvm.compiler.building import compilers
from hbtvm.compiler.building.cpu import compile_module, link_library
from hbtvm.compiler.candidates.samples import error_scale, plain_sums, sample_rows
from hbtvm.compiler.selection.choose import default_strategy
from hbtvm.compiler.targets import target as targets
from hbtvm.compiler.targets.target import resolve, tvm_target
from hbtvm.errors import BuildError, PackageError, TargetError
from hbtvm.graph.trees.reference import margins
from hbtvm.logs import target_key
from hbtvm.runtime import cpu
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies import (
    Operand,
    make_forest,
    make_linear,
    make_network,
    strategies_on,
    workload_of,
)
from hbtvm.strategies.intrinsics.lookup import lookup, padded
from tests import aarch64, networks
from tests.aarch64 import ARM
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance
from tests.knobs import assert_knobs_matter
from tests.strategies.test_linear import random_linear

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

TRIPLE = "aarch64-linux-gnu"
X86 = resolve({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})


def default(operand: Operand, name: str, rows: int) -> Config:
    return strategies_on(ARM, operand.family)[name].default(workload_of(operand, rows), ARM)


def assembly(operand: Operand, name: str, rows: int, **knobs: Any) -> list[str]:
    """The instructions of a kernel."""
    strategy, workload = strategies_on(ARM, operand.family)[name], workload_of(operand, rows)
    module = strategy.module(workload, {**default(operand, name, rows), **knobs})
    lines = str(compile_module(module, ARM).mod.inspect_source("asm")).splitlines()
    return [line.strip() for line in lines if line.startswith("\t") and not line.startswith("\t.")]


def count(lines: list[str], pattern: str) -> int:
    return sum(bool(re.match(pattern, line)) for line in lines)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", strategies_on(ARM))
def test_trees(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    kinds: dict[str, Any] = {"missing": "mixed", "categories": True, "oblivious": name == "oblivious"}
    ensemble = random_ensemble(rng, trees=9, compare_dtype=dtype, **kinds)
    forest = make_forest(ensemble, dtype, dtype)
    X = random_rows(rng, ensemble, 70, dtype)
    space = strategies_on(ARM)[name].space(workload_of(forest, 64), ARM)
    configs = [(rows, default(forest, name, rows)) for rows in (1, 64)]
    for rows, config in [*configs, (64, space.sample(rng, 1)[0])]:
        sums = aarch64.run(forest, name, config, X, rows)
        got = sums / ensemble.divisor + ensemble.base_score
        bound = tolerance(ensemble, dtype)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=bound, err_msg=str(config))


@pytest.mark.parametrize("mcpu", ["neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1"])
def test_default_strategies(mcpu: str) -> None:
    target = resolve({"kind": "llvm", "mtriple": TRIPLE, "mcpu": mcpu})
    known = strategies_on(target)
    rng = np.random.default_rng(4)
    # Ranks of a row in one to four registers of bytes; more columns; and more leaves than a byte numbers.
    cases = [
        (5, 20, 31, True),
        (30, 40, 128, True),
        (60, 99, 31, True),
        (70, 99, 31, False),
        (5, 9, 130, False),
    ]
    for features, trees, leaves, by_bytes in cases:
        ensemble = random_ensemble(rng, features=features, trees=trees, max_leaves=leaves, missing="left")
        forest = make_forest(ensemble, "float32", "float32")
        X = random_rows(rng, ensemble, 70, "float32")
        for rows in (1, 20, 64):
            workload = workload_of(forest, rows)
            able = {name: one for name, one in known.items() if one.refuse(workload) is None}
            name = default_strategy(able, workload, target)
            assert (name == "leaf_intervals") == by_bytes, (features, leaves)
            config = able[name].default(workload, target)
            assert able[name].space(workload, target).contains(config)
            sums = aarch64.run(forest, name, config, X, rows, target)
            got = sums / ensemble.divisor + ensemble.base_score
            np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


WALKS: dict[str, Any] = {
    **dict.fromkeys(("node_lookup", "column_lookup", "leaf_lookup"), "scalar"),
    **dict.fromkeys(("row_tile", "lanes", "vectors", "top_levels", "words"), 1),
    **dict.fromkeys(("tree_tile", "together"), 8),
    "axis": "rows",
    "permute_levels": 0,
}
"""Scalar walks of perfect trees."""


@pytest.mark.parametrize(("features", "trees", "groups"), [(1, 1, 1), (20, 9, 1), (3, 11, 3)])
def test_walks_of_words(features: int, trees: int, groups: int) -> None:
    rng, name = np.random.default_rng(6), "perfect_tree_traversal"
    ensemble = random_ensemble(
        rng, trees=trees, max_leaves=60, features=features, groups=groups, missing="mixed"
    )
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 40, "float32")
    X[::9], X[1::9], X[2::9], X[3::9] = -0.0, np.inf, -np.inf, -np.nan
    for rows, row_tile in [(1, 1), (20, 1), (100, 16)]:
        config = {**default(forest, name, rows), **WALKS, "row_tile": row_tile}
        assert strategies_on(ARM)[name].space(workload_of(forest, rows), ARM).contains(config)
        sums = aarch64.run(forest, name, config, X, rows)
        got = sums / ensemble.divisor + ensemble.base_score
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_a_step_of_a_walk_is_six_instructions() -> None:
    rng = np.random.default_rng(6)
    forest = make_forest(random_ensemble(rng, trees=40, max_leaves=60, features=20), "float32", "float32")
    lines, steps = assembly(forest, "perfect_tree_traversal", 1, **WALKS), 8 * forest.depth
    for pattern in (r"and\s+x\d+, x\d+, #0xffff", r"cmp\s+x\d+, x\d+$", r"(cinc|cset)\s+[wx]"):
        assert steps <= count(lines, pattern) < steps + 8, pattern
    # Numbers of nodes are not computed from the bits of several tests.
    assert count(lines, r"(orr|bfi|ubfiz)\s+x") < 8


@pytest.mark.parametrize("rows", [1, 100])
def test_every_knob_is_a_choice(rows: int) -> None:
    forest = make_forest(
        random_ensemble(np.random.default_rng(7), trees=40, max_leaves=9), "float32", "float32"
    )
    tied = {"row_tile", "tree_tile", "lanes", "vectors", "axis"}
    assert_knobs_matter(strategies_on(ARM)["leaf_intervals"], workload_of(forest, rows), ARM, 30, tied)


def test_splits_are_tested_by_bytes() -> None:
    rng = np.random.default_rng(3)
    forest = make_forest(random_ensemble(rng, trees=40, max_leaves=31, features=20), "float32", "float32")
    lines = assembly(forest, "leaf_intervals", 1000, node_unroll=1)
    # Four registers of 16 rows: ranks are compared, and leaves replaced.
    assert count(lines, r"cmeq\s+v\d+\.16b") >= 4 and count(lines, r"(bit|bif|bsl)\s+v\d+\.16b") >= 4
    lines = assembly(forest, "leaf_intervals", 1)
    assert count(lines, r"tbl\s+v\d+\.16b, \{ v\d+\.16b, v\d+\.16b \}") >= 1


@pytest.mark.parametrize("numbers", [{"numbers": 7, "codes": 5, "outputs": 2}, {"numbers": 14}])
def test_linear(numbers: dict[str, int]) -> None:
    linear = random_linear(np.random.default_rng(1), **numbers)
    for dtype, rows in (("float32", 64), ("float64", 1)):
        operand, X = make_linear(linear, dtype), sample_rows(linear, 70, dtype)  # type: ignore[arg-type]
        got = aarch64.run(operand, "linear", default(operand, "linear", rows), X, rows)
        np.testing.assert_allclose(got, plain_sums(linear, X), rtol=0, atol=1e-13 * error_scale(linear, X))


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_networks(name: str) -> None:
    network, X = networks.network(name), networks.rows(77)
    operand, want = make_network(network, "float64"), network.reference(X)
    scale = max(1.0, float(np.nanmax(np.abs(want[np.isfinite(want)]))))
    for rows in (1, 1000):
        got = aarch64.run(operand, "fused", default(operand, "fused", rows), X, rows)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * scale)


def looked_up(entries: int, shape: tuple[int, int], dtype: str) -> Any:
    """The compiled kernel that makes ``table[i, index[i, j]]``, with vectors over j."""
    n = te.var("n", "int64")
    runs = te.placeholder((n, shape[0]), dtype, name="runs")
    at = te.placeholder((n, shape[1]), "int32", name="at")
    found = te.compute(at.shape, lambda i, j: lookup(runs[i, 0], at[i, j], entries, "permute"), name="found")
    sch = Schedule(te.create_prim_func([runs, at, found]))
    sch.vectorize(sch.get_loops(sch.get_sblock("found"))[1])
    return compile_module(sch.mod, ARM)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_lookups_by_tables(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for lanes, entries in [(4, 31), (8, 5), (16, 64), (4, 33), (4, 100)]:
        # Exactly as much memory as a lookup may read.
        table = (rng.normal(size=(5, padded(entries, dtype, "permute"))) * 1000).astype(dtype)
        index = rng.integers(0, entries, (5, lanes)).astype(np.int32)
        compiled = looked_up(entries, (table.shape[1], lanes), dtype)
        tables = "\ttbl\t" in str(compiled.mod.inspect_source("asm"))
        assert tables == (dtype != "float64" and entries <= 64)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernel.so")
            aarch64.driver()
            link_library(compiled, str(path), ARM)
            got = aarch64.call(path, [table, index, np.zeros(index.shape, dtype)])
        np.testing.assert_array_equal(got, np.take_along_axis(table, index.astype(np.int64), axis=1))


def test_nodes_and_leaves_of_trees_are_vectors() -> None:
    rng = np.random.default_rng(3)
    forest = make_forest(random_ensemble(rng, trees=40, max_leaves=31), "float32", "float32")
    lines = assembly(forest, "bitvector", 1000)
    # Eight vectors of rows: each is compared at a node, and looks up its leaf by two instructions.
    assert count(lines, r"fcmg[et]\s+v") == 8
    assert count(lines, r"clz\s+v") == count(lines, r"tbl\s+v") == count(lines, r"tbx\s+v") == 8
    assert count(lines, r"(fcmp|clz)\s+[swx]") == 0


def test_sums_are_vectors() -> None:
    linear = make_linear(random_linear(np.random.default_rng(2), numbers=14), "float64")
    lines = assembly(linear, "linear", 1000)
    assert count(lines, r"fm(la|ul)\s+v") >= 56  # eight vectors, seven columns at a time
    assert count(lines, r"(fmul|fmadd|fadd)\s+[ds]\d") == 0
    layers = make_network(networks.network("layers"), "float64")
    lines = assembly(layers, "fused", 1000)
    assert count(lines, r"fmla\s+v\d+\.2d") >= 64
    assert count(lines, r"(fmul|fmadd|fadd|fcmp)\s+[ds]\d") == 0


def test_transposed_blocks_are_loaded_whole() -> None:
    linear = make_linear(random_linear(np.random.default_rng(2), numbers=13), "float64")
    lines = assembly(linear, "linear", 1000)
    # LLVM takes a load of some lanes apart, with a branch each; only the odd last column is single values.
    assert count(lines, r"(zip|trn|uzp)[12]\s+v") >= 2
    assert count(lines, r"tb(n?)z\s") <= 4


def test_descriptions() -> None:
    assert ARM["arch"] == "aarch64"
    assert (ARM["features"], ARM["vector_bits"]) == (["dotprod", "fullfp16", "neon"], 128)
    for triple in ("aarch64-linux-gnu", "arm64-unknown-linux-gnu"):
        found = resolve({"kind": "llvm", "mtriple": triple})
        assert (found["mcpu"], found["features"], found["arch"]) == ("generic", ["neon"], "aarch64")
    # Kernels have vectors of 128 bits, so nothing of what is wider.
    wide = resolve({"kind": "llvm", "mtriple": TRIPLE, "mcpu": "neoverse-v1"})
    assert "sve" not in wide["features"]
    assert "-sve" in tvm_target(wide).attrs["mattr"]
    assert resolve(dict(ARM)) == ARM
    # What is known of x86-64 keeps its keys.
    assert set(X86) == {"kind", "mcpu", "features", "vector_bits"}
    assert "arch" not in target_key(X86)
    assert '"arch":"aarch64"' in target_key(ARM)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"mtriple": TRIPLE, "mcpu": "haswell"},
            "LLVM knows no CPU named 'haswell' for aarch64; try .*cortex-a72",
        ),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "apple-m1"}, 'another architecture is told with "mtriple"'),
        (
            {"mtriple": "arm64-apple-darwin"},
            "'arm64-apple-darwin' is not supported; expected .*aarch64-linux",
        ),
        ({"mtriple": "riscv64-linux-gnu"}, "not supported"),
        ({"mtriple": "aarch64-linux-musl"}, "not supported"),
    ],
)
def test_targets_that_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(TargetError, match=told):
        resolve({"kind": "llvm", **given})


def test_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu.platform, "machine", lambda: "x86_64")
    assert compilers.machine_options(ARM) == ("-march=armv8-a+dotprod+fp16+simd",)
    assert compilers.machine_options(X86) == (
        "-march=x86-64", "-mavx", "-mavx2", "-mbmi2", "-mfma", "-mpopcnt", "-msse4.2"
    )  # fmt: skip
    assert compilers.machine_options({"kind": "cuda", "arch": "sm_90"}) == ()
    monkeypatch.setattr(compilers.shutil, "which", lambda name: None)
    monkeypatch.setenv("CXX", "/bin/true")  # is no compiler for it
    with pytest.raises(BuildError, match=r"no compiler for aarch64 .* apt-get install gcc-aarch64-linux-gnu"):
        compilers.c_compiler(ARM)
    monkeypatch.setattr(cpu.platform, "machine", lambda: "arm64")
    assert not compilers.is_cross(ARM)
    with pytest.raises(BuildError, match="apt-get install gcc-x86-64-linux-gnu"):
        compilers.linker(X86)


def test_machines_of_that_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nFeatures : fp asimd evtstrm crc32 atomics asimdhp\nCPU part : 0xd0c\n")
    monkeypatch.setattr(cpu.host_features, "__defaults__", (cpuinfo,))
    monkeypatch.setattr(cpu.platform, "machine", lambda: "aarch64")
    assert cpu.host_features() == {"neon", "fullfp16"}
    assert cpu.missing_features(ARM) == ["dotprod"]
    with pytest.raises(PackageError, match=r"a CPU with dotprod, which .*\"mtriple\": \"aarch64-linux-gnu\""):
        cpu.check_cpu(ARM)
    cpu.check_cpu(resolve({"kind": "llvm", "mtriple": TRIPLE}))
    with pytest.raises(PackageError, match="compiled for x86_64, but this machine is aarch64"):
        cpu.check_cpu(X86)

    functions = {
        "tvm.codegen.llvm.GetHostCPUFeatures": lambda: {"fp-armv8": True, "fullfp16": True, "dotprod": False},
        "tvm.codegen.llvm.GetHostCPUName": lambda: "neoverse-n1",
    }
    found = targets.tvm.get_global_func
    monkeypatch.setattr(targets.tvm, "get_global_func", lambda name: functions.get(name) or found(name))
    here = resolve("cpu")
    # A virtual machine may lack what its CPU's name promises.
    assert here == {
        "kind": "llvm", "mcpu": "generic", "features": ["fullfp16", "neon"], "vector_bits": 128,
        "arch": "aarch64",
    }  # fmt: skip
    assert resolve({"kind": "llvm", "mtriple": TRIPLE}) == here
    assert resolve({"kind": "llvm", "mcpu": "cortex-a72"})["arch"] == "aarch64"
    assert tvm_target(X86).attrs["mtriple"] == "x86_64-linux-gnu"
    monkeypatch.setattr(cpu.platform, "machine", lambda: "riscv64")
    with pytest.raises(TargetError, match="this machine is riscv64; name a target"):
        resolve("cpu")


def test_packages(tmp_path: Path) -> None:
    aarch64.driver()
    texts = hbtvm.compile(HashingVectorizer(n_features=16), target=ARM)
    trees = hbtvm.compile(_forest(), target=ARM, batch_sizes=(100,), threads=1)
    for name, made in (("texts", texts), ("trees", trees)):
        path = tmp_path / f"{name}.tar"
        made.save(path)
        with tarfile.open(path) as archive:
            members = [archive.extractfile(one) for one in archive if one.name.endswith((".so", ".o"))]
            codes = [one.read() for one in members if one is not None]
        # The ELF header's number of the architecture.
        assert codes
        assert {int.from_bytes(one[18:20], "little") for one in codes} == {183}
        with pytest.raises(PackageError, match="compiled for aarch64, but this machine is x86_64"):
            hbtvm.load(path)
        assert "aarch64" in made.summary()
    with pytest.raises(TargetError, match=r"which this machine is not.* on a fleet of them"):
        hbtvm.tune(_forest(), target=ARM)


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    X = np.random.default_rng(0).normal(size=(100, 3))
    return RandomForestRegressor(5, max_leaf_nodes=20, random_state=0).fit(X, X.sum(axis=1))


def test_defaults_use_more_registers_than_those_of_narrow_x86() -> None:
    forest = make_forest(random_ensemble(np.random.default_rng(1)), "float32", "float32")
    narrow: Target = resolve({"kind": "llvm", "mcpu": "x86-64", "mtriple": "x86_64-linux-gnu"})
    workload = workload_of(forest, 1000)
    own, other = (strategies_on(ARM)["bitvector"].default(workload, target) for target in (ARM, narrow))
    assert (own["lanes"], own["vectors"], own["leaf_lookup"]) == (4, 8, "permute")
    assert (other["lanes"], other["vectors"], other["leaf_lookup"]) == (4, 4, "scalar")
