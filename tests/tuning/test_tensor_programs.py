"""`hbtvm.tuning.tensor_task` and `search`: real searches of small tensor programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from benchmarks.tensor_programs.workloads import depthwise
from hbtvm import tuning
from hbtvm.errors import BuildError, InputError
from hbtvm.logs.store import Log
from hbtvm.programs.computation import samples
from hbtvm.programs.layouts import Layout
from tests.tuning.tensor_templates import (
    KNOBS,
    apply_doubled,
    conv2d,
    doubled,
    matmul,
    pointwise,
    scaled,
)

pytestmark = pytest.mark.usefixtures("shared_workers")

AVX2 = {"kind": "llvm", "mcpu": "x86-64-v3"}


def inputs_of(task: Any, outputs: int = 1) -> list[np.ndarray]:
    return samples(task.definition.module, 3)[:-outputs]


def convolved(X: np.ndarray, W: np.ndarray, stride: int) -> np.ndarray:
    """Return a padded 3x3 convolution in float64."""
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, W.astype(np.float64))


def test_a_product_with_an_epilogue_is_searched_and_resumed(tmp_path: Path) -> None:
    log = tmp_path / "matmul.jsonl"
    task = tuning.tensor_task(matmul, (32,), constants=["B"], name="product")
    best = tuning.search(task, trials=6, log=log, progress=False)
    assert best.seconds > 0 and best.record.times and best.result.trials == 6
    A, B, b = inputs_of(task)
    expected = np.maximum(A.astype(np.float64) @ B + b, 0)
    np.testing.assert_allclose(best.run(A, B, b), expected, atol=1e-4)
    assert isinstance(best.mod, tvm.IRModule)
    readings = [record for record in Log(log).read().records if "final" not in record.extra]
    again = tuning.search(task, trials=8, log=log, progress=False)
    assert again.result.resumed == 6 and again.result.trials == 8
    configs = [(r.strategy, dict(r.config)) for r in Log(log).read().records if "final" not in r.extra]
    assert len(configs) == 8 and len(readings) == 6
    assert all(configs.count(config) == 1 for config in configs)
    best = tuning.best(task, log)
    assert (best.strategy, best.config) == (again.strategy, again.config)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_default_schedules_of_convolutions_are_right(stride: int, threads: int) -> None:
    task = tuning.tensor_task(conv2d, (8, 16, 32, stride), constants=["W"], threads=threads)
    X, W = inputs_of(task)
    expected = convolved(X, W, stride)
    assert "vector o" in task.strategies
    for name, strategy in task.strategies.items():
        kinds = {config["accumulate"]: config for config in strategy.initial}
        assert set(kinds) == {"tile", "block"}
        for config in [*kinds.values(), *strategy.space.sample(np.random.default_rng(stride), 2)]:
            result = tuning.built(task, name, config).run(X, W)
            np.testing.assert_allclose(result, expected, atol=1e-3, err_msg=f"{name} {config}")


@pytest.mark.parametrize("threads", [1, 2])
def test_default_schedules_pack_operands_in_vectors(threads: int) -> None:
    task = tuning.tensor_task(matmul, (64,), threads=threads)
    A, B, b = inputs_of(task)
    for name, strategy in task.strategies.items():
        for config in strategy.initial:
            assert {"packed", "packed tile"} & set(config.values())
            for choice in ("packed", "packed tile"):
                packed = {knob: choice if "packed" in str(value) else value for knob, value in config.items()}
                built = tuning.built(task, name, packed)
                np.testing.assert_allclose(built.run(A, B, b), np.maximum(A @ B + b, 0), atol=1e-4)
                if name == "vector j":
                    assert "scatter" not in built.library.mod.inspect_source("asm")


@pytest.mark.parametrize("threads", [1, 2])
def test_vectors_over_two_axes(threads: int) -> None:
    """Rows and columns of a convolution without a window are one axis."""
    task = tuning.tensor_task(pointwise, (6, 10, 8, 16), constants=["W"], threads=threads, target=AVX2)
    assert set(task.strategies) == {"vector o", "vector h and w"}
    strategy = task.strategies["vector h and w"]
    X, W = inputs_of(task)
    expected = np.einsum("nchw,oc->nohw", X.astype(np.float64), W.astype(np.float64))
    kinds = {config["accumulate"]: config for config in strategy.initial}
    assert set(kinds) == {"tile", "block"}
    for config in [*kinds.values(), *strategy.space.sample(np.random.default_rng(threads), 3)]:
        built = tuning.built(task, strategy.name, config)
        np.testing.assert_allclose(built.run(X, W), expected, atol=1e-4, err_msg=str(config))
    asm = tuning.built(task, strategy.name, strategy.initial[0]).library.mod.inspect_source("asm")
    assert "vfmadd" in asm and "gather" not in asm


@pytest.mark.parametrize("args", [(6, 10, 8, 16, 2), (6, 16, 8, 16), (6, 10, 8, 16, 1, 1), (3, 5, 8, 16)])
def test_axes_that_are_not_fused(args: tuple[int, ...]) -> None:
    """Strides, vectors that fit a row, transposed operands, and odd numbers of pixels."""
    assert "vector h and w" not in tuning.tensor_task(pointwise, args, target=AVX2).strategies


@pytest.mark.parametrize("threads", [1, 2])
def test_padding_is_computed_near_few_operations(threads: int) -> None:
    task = tuning.tensor_task(depthwise, (24, 8, 3), constants=["W"], threads=threads, target=AVX2)
    strategy = task.strategies["vector w"]
    config = strategy.initial[0]
    assert config["operand_0"] == "plain tile" and config["block_v"] == 3 // int(config["tile_v"])
    X, W = inputs_of(task)
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    result = tuning.built(task, "vector w", config).run(X, W)
    np.testing.assert_allclose(result, np.einsum("nchwij,cij->nchw", windows, W), atol=1e-4)
    many = tuning.tensor_task(conv2d, (8, 8, 16), constants=["W"], target=AVX2).strategies["vector w"]
    assert all(config["operand_0"] == "plain" for config in many.initial)


@pytest.mark.parametrize("size", [(6, 20), (3, 5)])
def test_an_epilogue_of_two_axes(size: tuple[int, int]) -> None:
    """It is computed where the sums are, also with fused axes, and where nothing can be vectorised."""
    task = tuning.tensor_task(scaled, (*size, 16), target=AVX2)
    assert set(task.strategies) == {"vector h and w" if size == (6, 20) else "vector w"}
    X, scale = inputs_of(task)
    for name, strategy in task.strategies.items():
        for config in strategy.initial:
            built = tuning.built(task, name, config)
            assert built.mod.script().count("\n        total") == 1  # one buffer of sums
            expected = np.maximum(X.sum(axis=0) * scale, 0)
            np.testing.assert_allclose(built.run(X, scale), expected, rtol=1e-4, atol=1e-5)


def test_a_search_of_a_convolution_learns_from_another(tmp_path: Path) -> None:
    first = tuning.tensor_task(conv2d, (8, 8, 16), constants=["W"], name="one")
    tuning.search(first, trials=9, log=tmp_path / "one.jsonl", progress=False)
    second = tuning.tensor_task(conv2d, (8, 16, 16), constants=["W"], name="two")
    best = tuning.search(second, trials=4, transfer=[tmp_path / "one.jsonl"], progress=False)
    assert best.result.trials == 4
    assert not [text for text in best.result.warnings if "cost model" in text]
    alone = tuning.search(second, trials=4, progress=False)
    tried = [record.config for record in best.result.history]
    assert tried != [record.config for record in alone.result.history]


def test_broken_candidates_are_rejected(tmp_path: Path) -> None:
    task = tuning.tensor_task(doubled, (64,), space=KNOBS, apply=apply_doubled)
    log = tmp_path / "doubled.jsonl"
    best = tuning.search(task, trials=20, log=log, progress=False)
    assert best.config["kind"] in ("right", "packed", "slow")
    failed = {record.config["kind"]: record.error["kind"] for record in best.result.history if record.error}
    assert failed == {"wrong": "wrong_result", "crash": "crash", "error": "build"}
    x = np.arange(64, dtype=np.float32)
    for kind in ("right", "packed"):
        np.testing.assert_array_equal(tuning.built(task, "template", {"kind": kind}).run(x), 2 * x)


def test_a_reference_can_reject_everything() -> None:
    task = tuning.tensor_task(doubled, (64,), space=KNOBS[:1], apply=apply_doubled, reference=lambda x: x + 1)
    with pytest.raises(BuildError, match=r"no candidate of doubled ran correctly \(.*elements differ"):
        tuning.search(task, trials=6, progress=False)


def test_functions_and_modules_are_programs() -> None:
    function = te.create_prim_func(matmul(16))
    for program in (function, tvm.IRModule({"main": function}), matmul(16)):
        assert tuning.tensor_task(program).strategies
    alone = tuning.tensor_task(doubled, (64,))
    assert list(alone.strategies) == ["vector i"]
    config = alone.strategies["vector i"].initial[0]
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(tuning.built(alone, "vector i", config).run(x), 2 * x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads must be a positive number, not 0"),
        ({"space": KNOBS}, "needs the function `apply`"),
        ({"constants": ["V"]}, "no parameter 'V'; it has A, B, b, relu"),
        ({"tolerance": -1.0}, "tolerance must be"),
        ({"target": {"kind": "cuda", "arch": "sm_80"}}, "searched for CPUs"),
        ({"space": KNOBS, "apply": apply_doubled, "initial": [{"kind": "odd"}]}, "is not in the space"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tuning.tensor_task(matmul, (16,), **options)


def test_bad_programs() -> None:
    with pytest.raises(InputError, match="not int"):
        tuning.tensor_task(lambda: 3)
    with pytest.raises(InputError, match="args are the arguments of a Python function"):
        tuning.tensor_task(matmul(8), (8,))
    n = tirx.Var("n", "int32")
    x = te.placeholder((n,), name="x")
    with pytest.raises(InputError, match="symbolic"):
        tuning.tensor_task([x, te.compute((n,), lambda i: x[i] + 1.0)])


def test_bad_searches() -> None:
    task = tuning.tensor_task(matmul, (8, 8))
    with pytest.raises(InputError, match="trials must be a positive number, not 0"):
        tuning.search(task, trials=0)
    with pytest.raises(InputError, match="there is no preset 'magic'"):
        tuning.search(task, preset="magic")
    with pytest.raises(InputError, match="it has no record of matmul"):
        tuning.best(task, Log(Path("/nonexistent/log.jsonl")))
    wrong = tuning.tensor_task(matmul, (8, 8), reference=lambda A, B, b: A[:2])
    with pytest.raises(InputError, match=r"the reference returns arrays of shapes \[\(2, 8\)\]"):
        tuning.search(wrong, trials=1, progress=False)


def test_layouts_pack_as_they_index() -> None:
    layout = Layout((8, 6, 3), ((0, 4, False), (2, 1, False), (1, 6, True), (0, 4, True)))
    array = np.arange(8 * 6 * 3).reshape(8, 6, 3)
    packed = layout.pack(array)
    assert packed.shape == (2, 3, 6, 4)
    for index in np.ndindex(8, 6, 3):
        assert packed[tuple(layout.index(*index))] == array[index]


def test_a_process_keeps_its_cores() -> None:
    code = (
        "import os\n"
        "from hbtvm import tuning\n"
        "from tests.tuning.tensor_templates import matmul\n"
        "before = os.sched_getaffinity(0)\n"
        "task = tuning.tensor_task(matmul, (16,))\n"
        "name, strategy = next(iter(task.strategies.items()))\n"
        "tuning.built(task, name, strategy.initial[0]).library\n"
        "assert os.sched_getaffinity(0) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
