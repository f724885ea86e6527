"""Pipelines whose own steps stay in Python: compiled, saved, and loaded by a process that trusts them."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import NMF
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import hbtvm
from hbtvm.cli.main import main
from hbtvm.errors import InputError, PackageError, UnsupportedModel
from hbtvm.frontends.kept import from_pipeline
from hbtvm.runtime.package.file import read, to_bytes
from hbtvm.streaming.scorer import Scorer

RNG = np.random.default_rng(5)
X = RNG.normal(size=(90, 3))
Y = X[:, 0] * X[:, 1] > 0

MODULE = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin


class AddRatios(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.scale_ = np.abs(X).max()
        return self

    def transform(self, X):
        return np.column_stack([X, np.sort(X, axis=1)[:, 0] / self.scale_])


def ranks(X, least=0):
    return np.argsort(np.argsort(X, axis=1), axis=1) + least
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module of the user's."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_steps.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("my_steps")
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def fitted(own: Any) -> Pipeline:
    """Compiled, Python, Python, compiled."""
    steps = [
        ("scale", StandardScaler()),
        ("ratios", own.AddRatios()),
        ("ranks", FunctionTransformer(own.ranks, kw_args={"least": 1})),
        ("narrow", MinMaxScaler()),
        ("clf", LogisticRegression()),
    ]
    return Pipeline(steps).fit(X, Y)


@pytest.fixture(scope="module")
def kept(fitted: Pipeline) -> hbtvm.Model:
    return hbtvm.compile(fitted, python_steps="keep", batch_sizes=1, threads=1)


@pytest.fixture(scope="module")
def saved(kept: hbtvm.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "model.tar"
    kept.save(path)
    return path


def test_answers(kept: hbtvm.Model, fitted: Pipeline) -> None:
    for rows in (X, X[:1], X.astype(np.float32), X.tolist()):
        np.testing.assert_array_equal(kept.predict(rows), fitted.predict(rows))
        np.testing.assert_allclose(kept.predict_proba(rows), fitted.predict_proba(rows), rtol=1e-6)
        np.testing.assert_allclose(kept.decision_function(rows), fitted.decision_function(rows), rtol=1e-6)
    assert kept.n_features_in_ == 3
    assert kept.score(X, Y) == fitted.score(X, Y)
    assert kept.package.steps == tuple((name, type(step).__name__) for name, step in fitted.steps)
    with pytest.raises(InputError, match="output is 'probability'; expected"):
        kept.predict(X, "probability")  # type: ignore[arg-type]
    copied = pickle.loads(pickle.dumps(kept))
    np.testing.assert_array_equal(copied.predict(X), kept.predict(X))


def test_a_package_needs_trust(saved: Path, fitted: Pipeline) -> None:
    words = r"step 'ratios' \(my_steps.AddRatios\), step 'ranks' \(my_steps.ranks\)"
    with pytest.raises(PackageError, match=rf"runs Python code, {words}; if you trust it, .*trust=True\)\.$"):
        hbtvm.load(saved)
    trusted = hbtvm.load(saved, trust=True)
    np.testing.assert_array_equal(trusted.predict(X), fitted.predict(X))
    assert to_bytes(read(saved)) == saved.read_bytes()


def test_another_process(saved: Path, own: Any, tmp_path: Path, fitted: Pipeline) -> None:
    """It imports the module by its name, and says so if it can't."""
    np.save(tmp_path / "x.npy", X)
    program = (
        "import sys, numpy as np, hbtvm\n"
        "print(hbtvm.load(sys.argv[1], trust=True).predict(np.load(sys.argv[2])).tolist())"
    )
    command = [sys.executable, "-c", program, str(saved), str(tmp_path / "x.npy")]
    folder = Path(own.__file__).parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    assert done.stdout.strip() == str(fitted.predict(X).tolist())
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "can't load step 'ratios' (my_steps.AddRatios): No module named 'my_steps'" in done.stderr


def test_commands_and_engines(
    saved: Path, kept: hbtvm.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(saved)]) == 0
    assert "step 'ratios' (my_steps.AddRatios)" in capsys.readouterr().out
    assert main(["inspect", str(saved), "--json"]) == 0
    assert '"imports": "my_steps.ranks"' in capsys.readouterr().out
    (tmp_path / "rows.csv").write_text("a,b,c\n1,2,3\n")
    assert main(["predict", str(saved), str(tmp_path / "rows.csv")]) != 0
    assert "the package runs Python code, step 'ratios'" in capsys.readouterr().err
    with pytest.raises(PackageError, match="can't be exported to C: it runs Python code, step 'ratios'"):
        hbtvm.export(kept, tmp_path / "c")
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="runs in Python: pass rows to predict or transform"):
        Scorer(kept, pa.schema([("a", "double"), ("b", "double"), ("c", "double")]))


def test_damaged_packages(saved: Path) -> None:
    """A package in front of no Python step is refused."""
    lead = read(saved).lead
    assert lead is not None
    with pytest.raises(ValueError, match="leads to no Python step"):
        type(lead)(**{**vars(lead), "lead": lead}).validate()


def test_functions_without_a_name(tmp_path: Path) -> None:
    """They work in memory; saving says what to do."""
    model = make_pipeline(FunctionTransformer(lambda rows: rows.sum(axis=1)[:, None]), LinearRegression())
    model.fit(X, X[:, 0])
    ours = hbtvm.compile(model, python_steps="keep", batch_sizes=1, threads=1)
    np.testing.assert_allclose(ours.predict(X), model.predict(X), rtol=1e-6)
    assert not hasattr(ours, "n_features_in_")
    with pytest.raises(PackageError, match=r"can't save step 'functiontransformer' .*define its function"):
        ours.save(tmp_path / "model.tar")
    assert not (tmp_path / "model.tar").exists()


def test_what_is_kept(own: Any) -> None:
    """The parts of pipelines within searches and pipelines, and steps of scikit-learn that are refused."""
    inner = make_pipeline(MinMaxScaler(clip=True), NMF(2, max_iter=1000), StandardScaler())
    nested = Pipeline([("prep", inner), ("own", own.AddRatios()), ("reg", LinearRegression())])
    search = GridSearchCV(nested, {"reg__fit_intercept": [True]}, cv=2).fit(X, X[:, 0])
    graph = from_pipeline(search)
    assert [step.name for step in graph.python] == ["own"]
    assert graph.lead is not None and graph.lead.model == "StandardScaler"
    assert [step.kind for step in graph.lead.python] == ["sklearn.decomposition._nmf.NMF"]
    assert graph.lead.lead is not None and graph.lead.lead.model == "MinMaxScaler"
    columns = ColumnTransformer([("own", own.AddRatios(), [0, 1])])
    graph = from_pipeline(make_pipeline(columns, LinearRegression()).fit(X, X[:, 0]))
    assert [step.name for step in graph.python] == ["columntransformer"]
    function = make_pipeline(FunctionTransformer(np.log1p), own.AddRatios(), LinearRegression())
    graph = from_pipeline(function.fit(np.abs(X), X[:, 0]))
    assert [step.name for step in graph.python] == ["functiontransformer", "addratios"]
    scaled = make_pipeline(StandardScaler(), own.AddRatios(), LinearRegression()).fit(X, X[:, 0])
    assert from_pipeline(scaled).lead is not None
    with config_context(transform_output="pandas"):
        assert from_pipeline(scaled).lead is None
    whole = from_pipeline(make_pipeline(StandardScaler(), LinearRegression()).fit(X, X[:, 0]))
    assert not whole.python and whole.lead is None


FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
    kind=pd.array(RNG.choice(["x", "y", "z"], len(X)), "str"), n=RNG.integers(0, 5, len(X))
)


def beside(own: Any, **options: Any) -> Pipeline:
    """A ColumnTransformer with a class of the user's and a lambda among others."""
    columns = ColumnTransformer(
        [
            ("scaled", StandardScaler(), ["c", "n"]),
            ("own", make_pipeline(FunctionTransformer(np.asarray), own.AddRatios()), ["b", "a"]),
            ("kinds", OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            ("length", FunctionTransformer(lambda kinds: kinds.map(ord).to_frame()), "kind"),
        ],
        **options,
    )
    return Pipeline([("columns", columns), ("clf", LogisticRegression(max_iter=1000))]).fit(FRAME, Y)


def test_a_remainder_in_python(own: Any) -> None:
    columns = ColumnTransformer([("s", StandardScaler(), [2])], remainder=own.AddRatios())
    pipeline = make_pipeline(columns, LinearRegression()).fit(X, X[:, 0])
    model = hbtvm.compile(pipeline, python_steps="keep", batch_sizes=1, threads=1)
    assert [step.name for step in model.package.python] == ["columntransformer__remainder"]
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X), rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"remainder": "passthrough", "transformer_weights": {"own": 2.0}}])
def test_branches(own: Any, options: dict[str, Any]) -> None:
    """A ColumnTransformer's refused transformers stay in Python, and the others are compiled."""
    pipeline = beside(own, **options)
    model = hbtvm.compile(pipeline, python_steps="keep", batch_sizes=1, threads=1)
    (step,) = model.package.python
    assert step.name == "columns__own, columns__length"
    assert model.package.lead is None and model.package.steps == (
        ("columns", "ColumnTransformer"), ("clf", "LogisticRegression"),
    )  # fmt: skip
    assert len(model._parts) == 1 and model._parts[0].pipeline is not None
    for rows in (FRAME, FRAME[:1], FRAME[:1], FRAME[::-1][["kind", "n", "c", "b", "a"]], FRAME.assign(z=1)):
        np.testing.assert_allclose(model.predict_proba(rows), pipeline.predict_proba(rows), rtol=1e-6)
    narrow = FRAME.astype({"a": np.float32, "b": np.float32, "c": np.float32})
    np.testing.assert_allclose(model.predict_proba(narrow), pipeline.predict_proba(narrow), rtol=1e-5)
    with pytest.raises(InputError, match="column 'c', which the pipeline reads, is missing"):
        model.predict(FRAME.drop(columns="c"))


def test_branches_of_arrays(own: Any, tmp_path: Path) -> None:
    columns = ColumnTransformer([("s", StandardScaler(), [2, 0]), ("own", own.AddRatios(), slice(0, 2))])
    pipeline = make_pipeline(columns, DecisionTreeClassifier(max_depth=4, random_state=0)).fit(X, Y)
    model = hbtvm.compile(pipeline, python_steps="keep", batch_sizes=1, threads=1)
    assert str(model.package.python[0]) == "step 'columntransformer__own' (my_steps.AddRatios)"
    model.save(tmp_path / "model.tar")
    with pytest.raises(PackageError, match="runs Python code, step 'columntransformer__own'"):
        hbtvm.load(tmp_path / "model.tar")
    loaded = hbtvm.load(tmp_path / "model.tar", trust=True)
    for rows in (X, X[:1], X.astype(np.float32), X[:3].tolist()):
        np.testing.assert_array_equal(loaded.predict(rows), pipeline.predict(rows))
    with pytest.raises(InputError, match=r"expected rows of 3 columns, got shape \(90, 2\)"):
        model.predict(X[:, :2])


def test_refusals(own: Any, tmp_path: Path) -> None:
    last = make_pipeline(StandardScaler(), own.AddRatios()).fit(X)
    with pytest.raises(UnsupportedModel, match="keeps steps before the last one only"):
        hbtvm.compile(last, python_steps="keep")
    with pytest.raises(UnsupportedModel, match="keeps steps of a Pipeline, and this is a NMF"):
        hbtvm.compile(NMF(2, max_iter=1000).fit(np.abs(X)), python_steps="keep")
    with pytest.raises(InputError, match=r"takes pipelines in memory, .*: load the pipeline, and pass it"):
        hbtvm.compile(tmp_path / "model.pkl", python_steps="keep")
    with pytest.raises(InputError, match="python_steps is 'yes'; expected 'refuse' or 'keep'"):
        hbtvm.compile(last, python_steps="yes")
