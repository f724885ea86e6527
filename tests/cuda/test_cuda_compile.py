"""CUDA kernels compiled to machine code for sm_90, without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from hbtvm.compiler.building.cuda import read_code, write_code
from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.compiler.building.cuda_toolkit import nvcc
from hbtvm.runtime.gpu.launch import Launch
from hbtvm.schedules.cuda import bitvector as bitvector_cuda
from hbtvm.schedules.cuda import gemm as gemm_cuda
from hbtvm.schedules.cuda import oblivious as oblivious_cuda
from hbtvm.schedules.cuda import perfect as perfect_cuda
from hbtvm.schedules.cuda import ranked as ranked_cuda
from hbtvm.schedules.cuda import traversal as traversal_cuda
from hbtvm.schedules.cuda.shape import WARP
from hbtvm.schedules.cuda.steps import STATIC_SHARED
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.cuda_kernels import GPU, NO_NVCC, usage
from tests.ensembles import random_ensemble

CUDA = strategies_on(GPU)
NEEDS = {
    "bitvector": bitvector_cuda.needs,
    "oblivious": oblivious_cuda.needs,
    "perfect_tree_traversal": perfect_cuda.needs,
    "ranked_traversal": ranked_cuda.needs,
    "tree_traversal": traversal_cuda.needs,
    "gemm": gemm_cuda.needs,
}

needs_nvcc = pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))


@needs_nvcc
@pytest.mark.parametrize("rows", [1, 1000, 1_000_000])
@pytest.mark.parametrize("name", CUDA)
def test_a_sample_compiles(name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    kinds: dict[str, Any] = {"missing": "left", "oblivious": name == "oblivious"}
    ensemble = random_ensemble(rng, trees=300, max_leaves=31, features=28, **kinds)
    dtype = "float64" if rows == 1000 else "float32"
    forest = make_forest(ensemble, dtype, "float32")
    workload, strategy = workload_of(forest, rows), CUDA[name]
    default = strategy.default(workload, GPU)
    drawn = strategy.space(workload, GPU).sample(rng, 200)
    kept = [config for config in drawn if config["tables"] == "kept"]
    for config in [default, *(kept[:1] or drawn[:1])]:
        source = cuda_source(strategy.module(workload, config), GPU)
        code, printed = machine_code(source, GPU, "-Xptxas=-v")
        assert code[:4] == b"\x7fELF"
        used, said = usage(printed), NEEDS[name](workload, config)
        assert used["shared"] <= said.shared, config
        # (A block of one warp sums by shuffles.)
        none = said.threads == WARP or said.shared in (0, *range(STATIC_SHARED + 1, 10**6))
        assert used["shared"] > 0 or none, config
        assert used["registers"] * said.threads * int(config["resident"]) <= GPU["registers_per_block"]
        if config is default:
            assert used["spills"] == used["stack"] == 0


@needs_nvcc
@pytest.mark.parametrize("leaves", [20, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_masks_are_taken_under_a_predicate(dtype: Literal["float32", "float64"], leaves: int) -> None:
    """Where a thread has several rows; words have 32 or 64 bits."""
    ensemble = random_ensemble(np.random.default_rng(1), trees=30, max_leaves=leaves, missing="left")
    forest = make_forest(ensemble, dtype, "float32")
    workload, strategy = workload_of(forest, 1_000_000), CUDA["bitvector"]
    default = strategy.default(workload, GPU)
    several = {**default, "row_tile": 2 * int(default["row_threads"]), "resident": 1}
    for config, calls in ((several, True), ({**several, "row_tile": default["row_threads"]}, False)):
        source = cuda_source(strategy.module(workload, config), GPU)
        assert ("hbtvm_keep(bits" in source) == calls
        assert usage(machine_code(source, GPU, "-Xptxas=-v")[1])["spills"] == 0


@needs_nvcc
def test_tables_are_read_through_the_read_only_cache_and_by_vectors() -> None:
    ensemble = random_ensemble(np.random.default_rng(1), trees=20, max_leaves=31)
    forest = make_forest(ensemble, "float32", "float32")
    workload = workload_of(forest, 100_000)
    config = CUDA["bitvector"].default(workload, GPU)
    source = cuda_source(CUDA["bitvector"].module(workload, config), GPU)
    done = subprocess.run(
        [nvcc(), "--ptx", f"-arch={GPU['arch']}", "-x", "cu", "-", "-o", "-"],
        input=source,
        capture_output=True,
        text=True,
    )
    assert "ld.global.nc.v4.f32" in done.stdout
    assert "ld.local" not in done.stdout


_BUILD = """
    import json, sys
    import numpy as np
    from tests.ensembles import random_ensemble
    from tests.cuda_kernels import GPU
    from hbtvm.compiler.building.cpu import link_library
    from hbtvm.compiler.building.cuda_stubs import compile_with_stubs
    from hbtvm.compiler.lowering.cuda.score_epilogue import with_epilogue
    from hbtvm.strategies import make_forest, strategies_on, workload_of

    forest = make_forest(random_ensemble(np.random.default_rng(2)), "float32", "float32")
    strategy = strategies_on(GPU)["tree_traversal"]
    workload = workload_of(forest, 1000)
    config = {**strategy.default(workload, GPU), "tree_blocks": 2}
    module = with_epilogue(strategy.module(workload, config), workload["groups"], 2)
    link_library(compile_with_stubs(module, GPU), sys.argv[1])
"""


def test_code_and_launch_are_read_as_written(tmp_path: Path) -> None:
    # More than a few kilobytes of shared memory are dynamic: a field that has the name of a document's key.
    launch = Launch("main_kernel", (0, "count"), (1, 1, 1), (128, 1, 1), shared=57_344, carveout=132 * 1024)
    write_code(str(tmp_path / "code"), b"code\nof lines", launch)
    assert read_code(str(tmp_path / "code")) == (b"code\nof lines", launch)


@needs_nvcc
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler on this machine")
def test_a_kernel_becomes_a_library(tmp_path: Path) -> None:
    """Host code and machine code of two kernels in one file, made where there is no driver."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    made = tmp_path / "kernel.so"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_BUILD), str(made)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"sm_90" in made.read_bytes()
