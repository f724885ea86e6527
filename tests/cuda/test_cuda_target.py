"""CUDA targets are described by their architecture, and refused in one sentence where they cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.compiler.candidates.tasks import usable
from hbtvm.compiler.targets.target import resolve, tvm_target
from hbtvm.errors import DeviceError, InputError, ModelError, TargetError
from hbtvm.runtime.cuda import driver
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.ensembles import random_ensemble

SM90 = {"kind": "cuda", "arch": "sm_90"}


def _no_gpu() -> bool:
    try:
        driver.gpu()
    except DeviceError:
        return True
    return False


NO_GPU = _no_gpu()


def test_an_architecture_says_what_a_block_may_have() -> None:
    target = resolve(SM90)
    assert resolve('{"kind": "cuda", "arch": "sm_90"}') == target
    assert resolve(target) == target
    assert target["max_shared_memory_per_block"] == 227 * 1024
    assert resolve({"kind": "cuda", "arch": "sm_86"})["max_shared_memory_per_block"] == 99 * 1024
    assert resolve({**SM90, "max_shared_memory_per_block": 1000})["max_shared_memory_per_block"] == 1000
    assert (target["cores"], resolve({"kind": "cuda", "arch": "sm_80"})["cores"]) == (132, 108)
    assert resolve({**SM90, "cores": 114})["cores"] == 114
    assert "cores" not in resolve({"kind": "cuda", "arch": "sm_72"})
    made = tvm_target(target)
    assert (str(made.kind.name), made.attrs["arch"], str(made.host.kind.name)) == ("cuda", "sm_90", "llvm")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kind": "cuda"}, "takes the architecture"),
        ({"kind": "cuda", "arch": "hopper"}, "not 'hopper'"),
        ({"kind": "cuda", "arch": "sm_61"}, "'sm_61' is too old; expected sm_70"),
        ({**SM90, "warps": 3}, "no entry 'warps'"),
        ({**SM90, "cores": "all"}, "whole number for 'cores'"),
        ("rocm", "'rocm' is not supported; expected 'cpu', 'cuda'"),
    ],
)
def test_what_is_no_target_is_refused(given: Any, text: str) -> None:
    with pytest.raises(TargetError, match=text):
        resolve(given)


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_this_machines_gpu_is_missed_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TargetError, match="no NVIDIA GPU that can be used"):
        resolve("cuda")
    model = tmp_path / "model.pkl"
    model.write_bytes(b"read later, if at all")
    assert main(["tune", str(model), "--target", "cuda"]) != 0
    said = capsys.readouterr().err
    assert "no NVIDIA GPU" in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_another_machines_gpu_can_be_compiled_for_but_not_tuned_for() -> None:
    with pytest.raises(TargetError, match="no NVIDIA GPU that can be used"):
        hbtvm.search("no-such-model.pkl", target=SM90)
    with pytest.raises(ModelError):
        hbtvm.compile("no-such-model.pkl", target=SM90)


def test_threads_are_the_cpus() -> None:
    with pytest.raises(InputError, match="a GPU is driven by one thread"):
        hbtvm.compile("no-such-model.pkl", target=SM90, threads=4)


def test_gemm_is_searched_by_name_alone() -> None:
    forest = make_forest(random_ensemble(np.random.default_rng(0)), "float32", "float32")
    chosen, refused = usable(forest, None, resolve(SM90))
    assert set(chosen) == {"bitvector", "ranked_traversal", "perfect_tree_traversal", "tree_traversal"}
    assert refused.pop("oblivious").startswith("a level's nodes make different tests")
    assert refused == {"gemm": "gemm is ten times behind on GPUs, and is searched only by name"}
    assert set(usable(forest, ["gemm"], resolve(SM90))[0]) == {"gemm"}


def test_what_does_not_fit_a_gpu_is_refused_for_it() -> None:
    ensemble = random_ensemble(np.random.default_rng(0), max_leaves=250, trees=2, chain=True)
    forest = make_forest(ensemble, "float32", "float32")
    assert "gemm" in usable(forest, ["gemm"], resolve(SM90))[0]
    names = ["gemm", "tree_traversal"]
    _, refused = usable(forest, names, resolve({"kind": "cuda", "arch": "sm_75"}))
    assert refused["gemm"] == "gemm takes more for such a model than a multiprocessor of sm_75 has"


@pytest.mark.parametrize(
    "limit",
    [
        {"max_threads_per_block": 64},
        {"max_shared_memory_per_block": 1024},
        {"max_registers_per_thread": 40},
        {"registers_per_block": 4096},
    ],
)
def test_what_breaks_a_limit_is_no_configuration(limit: dict[str, int]) -> None:
    forest = make_forest(random_ensemble(np.random.default_rng(1), trees=50), "float32", "float32")
    workload: Workload = workload_of(forest, 10_000)
    for strategy in strategies_on(SM90).values():
        wide = strategy.space(workload, resolve(SM90))
        narrow = strategy.space(workload, resolve({**SM90, **limit}))
        drawn = wide.sample(np.random.default_rng(2), 300)
        held = [config for config in drawn if narrow.contains(config)]
        assert len(held) < len(drawn)
