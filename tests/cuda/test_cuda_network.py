"""CUDA kernels of networks: run on the CPU as they are, and compiled without a GPU."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC

import hbtvm
from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.compiler.candidates.tasks import usable
from hbtvm.errors import InputError
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input
from hbtvm.operators.distances import Distance, TopK
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import select
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.schedules.cuda import network as network_cuda
from hbtvm.schedules.space import Config
from hbtvm.strategies import Strategy, make_network, strategies_on, workload_of
from tests import emulated, networks
from tests.cuda_kernels import GPU, NO_NVCC, serial_sums, usage
from tests.cuda_kernels import emulated as emulated_sums
from tests.emulated import SM90, Array, Cupy, Machine
from tests.knobs import assert_knobs_matter
from tests.strategies.test_network import check


def fused(network: Network, dtype: Any = "float64") -> tuple[Any, Strategy]:
    operand = make_network(network, dtype)
    return operand, strategies_on(GPU, operand.family)["fused"]


def scores(network: Network, X: np.ndarray, rows: int, config: Config, emulate: bool) -> np.ndarray:
    """Return the scores, float64 (n, O), of a kernel built for calls of `rows` rows, run on the CPU."""
    operand, strategy = fused(network, str(X.dtype))
    tables = list(strategy.tables(operand, config).values())
    run = emulated_sums if emulate else serial_sums
    return run(strategy, workload_of(operand, rows), config, tables, X)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_scores_are_the_references(name: str) -> None:
    network, rng = networks.network(name), np.random.default_rng(len(name))
    for dtype, rows in (("float64", 1), ("float32", 1_000_000)):
        X = networks.rows(77, dtype)
        operand, strategy = fused(network, dtype)
        workload = workload_of(operand, rows)
        space, default = strategy.space(workload, GPU), strategy.default(workload, GPU)
        assert space.contains(default)
        for config in [default, *space.sample(rng, 1)]:
            check(scores(network, X, rows, config, emulate=False), network, X)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_the_cuda_source_itself_gives_the_references_scores(name: str) -> None:
    network, X = networks.network(name), networks.rows(77)
    operand, strategy = fused(network)
    workload = workload_of(operand, 3000)
    space, default = strategy.space(workload, GPU), strategy.default(workload, GPU)
    (config,) = space.sample(np.random.default_rng(5), 1)
    shared = {**default, "output_tile": 1, "block": 0, "distances": "direct", "row_tile": 64}
    shared |= {"row_threads": 32, "column_threads": 8, "columns": "global"}
    if name in ("imputation", "coupled"):
        # A loop over a row's own values is one thread's work.
        assert not space.contains(shared)
        shared["column_threads"] = 1
    for chosen in (config, shared):
        check(scores(network, X, 3000, chosen, emulate=True), network, X)


STAGED = {"columns": "shared", "column_threads": 1, "unroll": 2}
CHOICES: list[tuple[str, Config, str]] = [
    # Blocks of support vectors; rows in shared memory, several for each thread.
    ("machine", {"block": 8, "distances": "expanded", "row_tile": 128, "row_threads": 64}, "float32"),
    ("machine", {"block": 16, "distances": "direct", "row_tile": 64, "row_threads": 32}, "float64"),
    ("softmax", {"row_tile": 128, "row_threads": 32, "output_tile": 2}, "float32"),
    ("layers", {"row_tile": 64, "row_threads": 32, "output_tile": 4}, "float32"),
    # Several threads for each of several rows.
    ("nearest", {"row_tile": 64, "row_threads": 32, "column_threads": 8, "output_tile": 1}, "float32"),
    ("shapes", {"row_tile": 32, "row_threads": 32, "column_threads": 8, "output_tile": 1}, "float32"),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize(("name", "knobs", "dtype"), CHOICES)
def test_the_cuda_source_of_other_choices(name: str, knobs: Config, dtype: str) -> None:
    network, X = networks.network(name), networks.rows(150, dtype)
    operand, strategy = fused(network, dtype)
    workload = workload_of(operand, 3000)
    config = {**strategy.default(workload, GPU), "block": 0, **STAGED, **knobs}
    assert strategy.space(workload, GPU).contains(config)
    check(scores(network, X, 3000, config, emulate=True), network, X)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("threads", [1, 8])
def test_more_shared_memory_than_a_kernel_has_by_itself(threads: int) -> None:
    rng = np.random.default_rng(threads)
    network = Network(300, Contract(Input(300), rng.normal(size=(300, 3))))
    operand, strategy = fused(network)
    workload = workload_of(operand, 3000)
    config = {**strategy.default(workload, GPU), **STAGED, "column_threads": threads, "output_tile": 1}
    config |= {"row_tile": 32, "row_threads": 32}
    assert strategy.space(workload, GPU).contains(config)
    assert network_cuda.needs(workload, config).shared > 48 * 1024
    launch = source_and_launch(strategy.module(workload, config), GPU)[1]
    assert launch.shared > 48 * 1024
    X = rng.normal(size=(50, 300))
    check(scores(network, X, 3000, config, emulate=True), network, X)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("points", [20, 301])
def test_the_nearest_in_one_pass(points: int) -> None:
    # Ties, and what is infinite, keep their order.
    rng = np.random.default_rng(points)
    stored = rng.integers(0, 3, (points, 2)).astype(float)
    x = Input(3)
    factors = np.where(rng.random(points) < 0.3, 1.0, np.inf)
    away = apply("add", Distance(select(x, [0, 1]), stored), 1.0)
    network = Network(3, TopK(apply("multiply", away, factors), points // 2 if points < 64 else 7))
    X = rng.integers(0, 3, (60, 3)).astype(float)
    want = network.reference(X)
    assert np.isinf(want).any() == (points < 64)
    operand, strategy = fused(network)
    # With several threads for each row, all distances are kept, else a few at a time.
    for batch, blocks in ((3000, False), (1_000_000, points > 64)):
        config = strategy.default(workload_of(operand, batch), GPU)
        assert (int(config["block"]) > 0) == blocks
        for emulate in (False, True):
            np.testing.assert_array_equal(scores(network, X, batch, config, emulate), want)


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
@pytest.mark.parametrize(
    ("name", "rows"), [("machine", 1_000_000), ("layers", 1_000_000), ("nearest", 1000), ("tables", 1000)]
)
def test_a_sample_compiles(name: str, rows: int) -> None:
    operand, strategy = fused(networks.network(name))
    workload = workload_of(operand, rows)
    config = strategy.default(workload, GPU)
    source = cuda_source(strategy.module(workload, config), GPU)
    code, printed = machine_code(source, GPU, "-Xptxas=-v")
    assert code[:4] == b"\x7fELF"
    used, said = usage(printed), network_cuda.needs(workload, config)
    assert used["shared"] <= said.shared
    assert used["stack"] <= 8 * network_cuda.kept_numbers(workload, config)
    # Support vectors' kernels never leave the registers.
    assert used["spills"] == 0 and (name != "machine" or used["stack"] == 0)


def test_products_and_sums_are_rounded_together_in_networks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    operand, strategy = fused(networks.network("layers"))
    workload = workload_of(operand, 1000)
    source = cuda_source(strategy.module(workload, strategy.default(workload, GPU)), GPU)
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr("hbtvm.compiler.building.cuda_source.nvcc", lambda: "nvcc")
    monkeypatch.setattr("hbtvm.compiler.building.cuda_source.subprocess.run", run)
    for text in (source, source.partition("\n")[2]):
        with pytest.raises(KeyboardInterrupt):
            machine_code(text, GPU)
    assert ["--fmad=true" in command for command in asked] == [True, False]
    assert ["--fmad=false" in command for command in asked] == [False, True]


@pytest.mark.parametrize(("name", "rows"), [("machine", 1), ("layers", 10_000)])
def test_every_knob_is_a_choice(name: str, rows: int) -> None:
    operand, strategy = fused(networks.network(name))
    assert_knobs_matter(strategy, workload_of(operand, rows), GPU, 30, {"row_tile", "row_threads"})


def test_what_does_not_fit_is_refused_or_made_smaller() -> None:
    x, rng = Input(3000), np.random.default_rng(0)
    wide = Network(3000, Contract(x, rng.normal(size=(3000, 2))))
    operand, strategy = fused(wide)
    workload = workload_of(operand, 100_000)
    assert strategy.default(workload, GPU)["columns"] == "global"
    assert strategy.space(workload, GPU).contains(strategy.default(workload, GPU))
    points = rng.normal(size=(20_000, 3))
    away = Distance(Input(3), points)
    operand, _ = fused(Network(3, TopK(away, 40)))
    with pytest.raises(InputError, match=r"room for 4,096 numbers, not for 20,0.*for a CPU"):
        usable(operand, None, GPU)
    # As many support vectors are computed block by block, and a few nearest neighbours in one pass.
    kernel = Contract(apply("exp", apply("negative", away)), rng.normal(size=(20_000, 1)))
    for node in (kernel, TopK(away, 5)):
        operand, _ = fused(Network(3, node))
        assert usable(operand, None, GPU)[0]


@pytest.mark.parametrize(("width", "most"), [(400, 2), (2000, 1)])
def test_threads_keep_several_rows_of_few_numbers(width: int, most: int) -> None:
    """Devices reserve local memory for every resident thread."""
    rng = np.random.default_rng(0)
    hidden = apply("tanh", Contract(Input(4), rng.normal(size=(4, width))))
    operand, strategy = fused(Network(4, Contract(hidden, rng.normal(size=(width, 2)))))
    workload = workload_of(operand, 100_000)
    space, default = strategy.space(workload, GPU), strategy.default(workload, GPU)
    plain = {**default, "block": 0, "output_tile": 1, "row_threads": 32}
    kept = [n for n in (1, 2, 4, 8) if space.contains({**plain, "row_tile": 32 * n})]
    assert max(kept) == most, network_cuda.kept_numbers(workload, {**plain, "row_tile": 32})


def rows(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 5))
    return X, np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.5, 0.5])]


MODELS: dict[str, Any] = {
    "SVC": lambda: make_pipeline(StandardScaler(), PCA(4), SVC()),
    "neighbours": lambda: make_pipeline(QuantileTransformer(n_quantiles=20), KNeighborsClassifier(3)),
    "bayes": lambda: GaussianNB(),
}


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
@pytest.mark.parametrize("name", MODELS)
def test_a_package_on_a_device_predicts_as_the_library(machine: Machine, name: str) -> None:
    X, y = rows()
    library = MODELS[name]().fit(X, y)
    made = hbtvm.compile(library, target=SM90, batch_sizes=(33, 5000))
    assert made.device == "cuda:0"
    model = Model(from_bytes(to_bytes(made.package)))
    assert {kernel.strategy for kernel in model.package.kernels} == {"fused"}
    X = np.random.default_rng(3).normal(size=(300, 5))
    for n in (1, 33, len(X)):
        np.testing.assert_array_equal(model.predict(X[:n]), library.predict(X[:n]))
    ask = "predict_proba" if hasattr(library, "predict_proba") else "decision_function"
    np.testing.assert_allclose(getattr(model, ask)(X), getattr(library, ask)(X), rtol=1e-7, atol=1e-12)


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_rows_on_the_device_stay_there(
    cupy: type[Cupy], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows()
    response = X[:, 0] * 2 + X[:, 1]
    cases: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (
            MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, random_state=0).fit(X, response),
            np.float32,
            (None,),
        ),
        (KMeans(3, n_init=1, random_state=0).fit(X), np.float64, (None,)),
        (KNeighborsRegressor(2).fit(X, np.stack([response, X[:, 2]], 1)), np.float64, (None,)),
        (GaussianNB().fit(X, y), np.float64, ("proba",)),
    ]
    for library, dtype, outputs in cases:
        model = hbtvm.compile(library, target=SM90, batch_sizes=(5000,))
        given = np.tile(X, (3, 1)).astype(dtype)
        cupy.cuda.stream = int(machine.stream())
        with monkeypatch.context() as patch:
            patch.setattr("hbtvm.runtime.cuda.model._copied_back", None)
            made = [model.predict(Array(given), output) for output in outputs]
        for output, got in zip(outputs, made, strict=True):
            want = model.predict(given, output)
            found = cupy.asnumpy(got)
            assert (found.dtype, found.shape) == (want.dtype, want.shape)
            np.testing.assert_array_equal(found, want)
    # Tables of labels are on the host.
    assert model.predict(Array(X)).tolist() == library.predict(X).tolist()
