"""A loaded package predicts as its library does."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.errors import InputError, InputTypeError, PackageError
from hbtvm.runtime import cpu, model
from hbtvm.runtime.model import Model, load
from hbtvm.runtime.package.file import Package
from tests.models import CATEGORY_COLUMN, N_CATEGORIES
from tests.runtime_models import compiled, kernel, package, random_rows, trained

DOUBLE = ("float32", "float64")
MODELS = {
    "lgb_two": DOUBLE, "lgb_three_cat": DOUBLE, "sk_forest_three_nan": ("float32",),
    "sk_isolation_nan": ("float32",), "sk_hist_three_cat": DOUBLE, "xgb_three_vector": ("float32",),
    "xgb_real_base": ("float32",), "sk_forest_pair_labels": ("float32",),
}  # fmt: skip
METHODS = {"predict_proba": "proba", "decision_function": "decision", "score_samples": "score"}


def rows(n: int, name: str, dtype: Any = np.float64) -> np.ndarray:
    X = random_rows(n, dtype=dtype, seed=n)
    X[:, CATEGORY_COLUMN] = np.arange(n) % N_CATEGORIES if "cat" in name else X[:, CATEGORY_COLUMN]
    return X


def same(got: Any, want: Any, rtol: float = 1e-5) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b, rtol)
        return
    want = np.asarray(want)
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", MODELS)
def test_predicts_as_the_library(name: str) -> None:
    trained_model = trained(name)[0]
    loaded = Model(compiled(name, MODELS[name]))
    for n in (1, 2, 63, 64, 65, 200):
        for dtype in (np.float64, np.float32):
            X = rows(n, name, dtype)
            same(loaded.predict(X), trained_model.predict(X))
            for method, output in METHODS.items():
                if output in loaded.package.output.outputs:
                    want = getattr(trained_model, method)(X)
                    same(getattr(loaded, method)(X), want)
                    same(loaded.predict(X, output), want)


def test_float64_kernels_are_exact_to_float64() -> None:
    trained_model = trained("lgb_two")[0]
    X = rows(100, "lgb_two")
    got = Model(compiled("lgb_two", DOUBLE)).predict_proba(X)
    same(got, trained_model.predict_proba(X), rtol=1e-12)


def test_no_rows_give_no_predictions() -> None:
    for name, dtypes in MODELS.items():
        loaded = Model(compiled(name, dtypes))
        with pytest.raises(InputError, match="at least one row"):
            loaded.predict(np.zeros((0, 4)))
        assert len(loaded.predict([[0, 0, 0, 0]])) == 1


def test_outputs_that_a_model_lacks() -> None:
    loaded = Model(compiled("xgb_real_base"))
    X = rows(1, "")
    for name in ("predict_proba", "decision_function", "score_samples"):
        assert not hasattr(loaded, name)
        with pytest.raises(InputError, match="this regressor has no"):
            getattr(loaded, name)(X)
    with pytest.raises(InputError, match="output is 'probability'; expected None or one of label, proba"):
        loaded.predict(X, "probability")  # type: ignore[arg-type]
    for name, message in (("classes_", "no class labels"), ("feature_names_in_", "without feature names")):
        assert not hasattr(loaded, name)
        with pytest.raises(AttributeError, match=message):
            getattr(loaded, name)
    with pytest.raises(InputError, match="expected rows of 4 columns, got 5"):
        loaded.predict(np.ones((2, 5)))


def test_attributes() -> None:
    classifier, graph = trained("lgb_two")
    loaded = Model(compiled("lgb_two", DOUBLE))
    np.testing.assert_array_equal(loaded.classes_, classifier.classes_)
    assert loaded.n_features_in_ == 4
    assert list(loaded.feature_names_in_) == list(graph.input.feature_names or ())
    assert repr(loaded) == "<hbtvm.Model: lightgbm LGBMClassifier, 6 trees>"
    assert len(Model(compiled("sk_forest_pair_labels")).classes_) == 2


def timed(**fields: Any) -> Package:
    """Three kernels with times that send most calls through two of them."""
    graph = trained("lgb_three_nan")[1]
    kernels = [
        kernel(graph, 1, seconds=4e-6, strategy="bitvector"),
        kernel(graph, 64, seconds=20e-6, parallel="rows", **fields),
        kernel(graph, 1, seconds=200e-6, parallel="trees", config={"tree_tile": 1}, **fields),
    ]
    return package(graph, *kernels)


@pytest.mark.parametrize("threads", [None, 1, 2, 3])
@pytest.mark.parametrize("tuned", [1, 2])
def test_any_number_of_threads(threads: int | None, tuned: int) -> None:
    trained_model = trained("lgb_three_nan")[0]
    loaded = Model(timed(threads=tuned), threads)
    steps = set()
    for n in (1, 5, 64, 65, 129, 193, 1000):
        X = rows(n, "")
        X = X.astype(np.float32)
        same(loaded.predict(X), trained_model.predict(X))
        same(loaded.predict_proba(X), trained_model.predict_proba(X))
        assert loaded._kernels.host is not None
        steps.add(len(loaded._kernels.host.steps(n)))
    assert steps == {1, 2}


def test_threads_follow_the_tuner_the_user_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = timed(threads=2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert Model(made).threads == 2
    assert Model(made, threads=3).threads == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert Model(made).threads == 1
    assert Model(made, threads=np.int64(2)).threads == 2  # type: ignore[arg-type]
    with pytest.raises(InputError, match="threads is 0; expected a whole number of at least 1"):
        Model(made, threads=0)
    with pytest.raises(InputError, match="threads is larger than 65,535"):
        Model(made, threads=2**63)
    for wrong, kind in (("2", "a str"), (True, "a bool"), (1.5, "a float"), (np.float64(2), "a float64")):
        with pytest.raises(InputTypeError, match=f"^threads is .*, {kind}; expected a whole number"):
            Model(made, threads=wrong)  # type: ignore[arg-type]


def test_predictions_from_many_threads_at_once() -> None:
    loaded = Model(timed(threads=2), 2)
    batches = [rows(n, "").astype(np.float32) for n in (1, 2, 64, 65, 1, 200, 500, 7)]
    want = [loaded.predict_proba(X) for X in batches]
    wrong: list[int] = []

    def call(i: int) -> None:
        for _ in range(60):
            if not np.array_equal(loaded.predict_proba(batches[i]), want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_forked_children_predict() -> None:
    loaded = Model(timed(threads=2), 2)
    X = rows(500, "").astype(np.float32)
    want = loaded.predict_proba(X)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if np.array_equal(loaded.predict_proba(X), want) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_saved_pickled_and_copied(tmp_path: Path) -> None:
    loaded = Model(compiled("lgb_three_cat", DOUBLE), threads=2)
    X = rows(70, "cat")
    want = loaded.predict_proba(X)
    path = tmp_path / "model.tar"
    loaded.save(path)
    for other in (load(path), pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded), copy.copy(loaded)):
        np.testing.assert_array_equal(other.predict_proba(X), want)
    assert pickle.loads(pickle.dumps(loaded)).threads == 2
    again = tmp_path / "again.tar"
    load(path).save(again)
    assert again.read_bytes() == path.read_bytes()


def test_models_come_and_go() -> None:
    made = compiled("sk_forest_three_nan")
    X = rows(200, "").astype(np.float32)
    want = Model(made).predict_proba(X)
    for _ in range(30):
        np.testing.assert_array_equal(Model(made, threads=2).predict_proba(X), want)


def test_a_frame_with_names_and_categories() -> None:
    trained_model, graph = trained("sk_hist_three_cat")
    named = replace(graph.input, feature_names=("a", "b", "c", "d"))
    loaded = Model(replace(compiled("sk_hist_three_cat", DOUBLE), input=named))
    X = rows(50, "cat")
    frame = pd.DataFrame(X, columns=list("abcd"))
    same(loaded.predict(frame), trained_model.predict(X))
    with pytest.raises(InputError, match=r"another order .* column 0 is 'b', expected 'a'"):
        loaded.predict(frame[["b", "a", "c", "d"]])


def test_wrong_cpu_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = compiled("sk_forest_three_nan")
    made = replace(made, target={**made.target, "features": ["avx2", "avx512f", "fma"]})
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags : fpu sse4_2 popcnt avx avx2 bmi2 fma\n")
    monkeypatch.setattr(cpu.host_features, "__defaults__", (cpuinfo,))
    monkeypatch.setattr(cpu.platform, "machine", lambda: "x86_64")
    with pytest.raises(PackageError, match=r"a CPU with avx512f, which this machine lacks; .*x86-64-v3"):
        Model(made).warm_up()


def test_library_that_cannot_be_loaded() -> None:
    made = compiled("sk_forest_three_nan")
    broken = replace(made, kernels=tuple(replace(k, library=b"\x7fELF nonsense") for k in made.kernels))
    with pytest.raises(PackageError, match="a kernel's library can't be loaded"):
        Model(broken).warm_up()


def test_summary_tells_what_there_is() -> None:
    made = replace(timed(threads=2), tuning={"trials": 128, "seconds": 60.5, "notes": "x" * 300})
    text = Model(made, threads=2).summary()
    for part in (
        "lightgbm LGBMClassifier", "18 trees", "4 columns", "3 classes: high, low, mid", "gives label, proba",
        "bitvector", "2 over rows", "2 over trees", "20.0 µs", "312 ns", "tree_tile=1", "trials: 128",
        "up to 2 for a call",
    ):  # fmt: skip
        assert part in text, part
    assert max(map(len, text.splitlines())) < 250
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert "float64" in Model(compiled("lgb_two", DOUBLE)).summary()


def test_the_runtime_needs_no_compiler_and_no_training_library(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    Model(compiled("lgb_two", DOUBLE)).save(path)
    script = """
import sys
import numpy as np
from hbtvm.runtime.model import load
model = load(sys.argv[1])
assert len(model.predict(np.ones((3, 4)))) == 3 and model.summary()
top = {name.partition(".")[0] for name, module in sys.modules.items() if module}
foreign = {
    "tvm", "tvm_ffi", "sklearn", "lightgbm", "xgboost", "pandas", "polars", "pyarrow", "scipy", "torch",
    "joblib",
}
assert not top & foreign, top & foreign
ours = {name for name in sys.modules if name.startswith("hbtvm.")}
parts = {name.split(".")[1] for name in ours}
known = {
    "runtime", "codec", "errors", "atomic", "checks", "words", "graph", "operators", "version",
}
assert parts <= known, parts
"""
    root = str(Path(model.__file__).parents[2])
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, cwd=root, timeout=60)


def test_the_interpreter_ends_while_daemon_threads_predict(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    Model(compiled("lgb_two")).save(path)
    script = """
import sys, threading
import numpy as np
from hbtvm.runtime.model import load
model = load(sys.argv[1], threads=2)
X = np.ones((100_000, 4), np.float32)
called = [threading.Event() for _ in range(3)]
def call(event):
    while True:
        model.predict(X)
        event.set()
for event in called:
    threading.Thread(target=call, args=(event,), daemon=True).start()
for event in called:
    assert event.wait(60)
"""
    root = str(Path(model.__file__).parents[2])
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, cwd=root, timeout=90)
