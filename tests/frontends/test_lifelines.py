"""lifelines' regressions against the library."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.comparison.library import Live
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from tests.staged import outputs_of

pd = pytest.importorskip("pandas")
lifelines = pytest.importorskip("lifelines")

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(7)
N = 120
DATA = pd.DataFrame(
    {
        "zeta": RNG.normal(3, 2, N),
        "alpha": RNG.integers(0, 4, N),
        "flag": RNG.random(N) < 0.5,
        "s": RNG.integers(0, 2, N),
    }
)
DATA["time"] = np.exp(1.0 + 0.3 * DATA.zeta - 0.4 * DATA.alpha + 0.5 * RNG.normal(size=N))
DATA["event"] = RNG.random(N) < 0.8
COLUMNS = ["zeta", "alpha", "flag", "s"]
AFT = ("WeibullAFTFitter", "LogNormalAFTFitter", "LogLogisticAFTFitter")


def fitted(name: str, **options: Any) -> Any:
    return getattr(lifelines, name)(penalizer=0.01).fit(DATA, "time", "event", **options)


def outputs(graph: Any) -> Any:
    return outputs_of(graph, DATA[[*graph.input.feature_names]])


def assert_comparable(model: Any, ours: Any) -> None:
    """Check that comparisons with the library call the method that `predict` stands for."""
    library = Live(model, ("predict", "raw"), 1)
    library.take(DATA)
    np.testing.assert_allclose(ours[None], library.result("predict"), rtol=1e-11)


@pytest.mark.parametrize("strata", [None, ["s"]])
def test_cox(strata: Any):
    model = fitted("CoxPHFitter", strata=strata)
    graph = from_object(model)
    names = COLUMNS if strata is None else COLUMNS[:3]
    assert {*graph.input.feature_names} == {*names}
    ours = outputs(graph)
    np.testing.assert_allclose(ours[None], model.predict_partial_hazard(DATA), rtol=1e-12)
    np.testing.assert_allclose(ours["raw"], model.predict_log_partial_hazard(DATA), rtol=1e-12, atol=1e-14)
    assert_comparable(model, ours)


@pytest.mark.parametrize("ancillary", [None, True])
@pytest.mark.parametrize("name", AFT)
def test_accelerated_failure_times(name: str, ancillary: Any):
    model = fitted(name, ancillary=ancillary)
    graph = from_object(model)
    ours = outputs(graph)
    np.testing.assert_allclose(ours[None], model.predict_median(DATA), rtol=1e-11)
    assert_comparable(model, ours)
    first, second = np.exp(ours["raw"]).T
    survival = {
        "WeibullAFTFitter": np.exp(-((5.0 / first) ** second)),
        "LogLogisticAFTFitter": 1 / (1 + (5.0 / first) ** second),
    }
    if name in survival:
        theirs = model.predict_survival_function(DATA, times=[5.0]).loc[5.0]
        np.testing.assert_allclose(survival[name], theirs, rtol=1e-9)


def test_columns_of_the_ancillary_parameter():
    model = fitted("WeibullAFTFitter", ancillary=DATA[["alpha", "time", "event"]])
    ours = outputs(from_object(model))
    np.testing.assert_allclose(ours[None], model.predict_median(DATA), rtol=1e-11)


def test_formulas_of_columns():
    cox = fitted("CoxPHFitter", formula="zeta + s")
    np.testing.assert_allclose(outputs(from_object(cox))[None], cox.predict_partial_hazard(DATA), rtol=1e-12)
    aft = fitted("LogLogisticAFTFitter", formula="zeta + s", ancillary="alpha")
    np.testing.assert_allclose(outputs(from_object(aft))[None], aft.predict_median(DATA), rtol=1e-11)


def test_a_file_compiles(tmp_path: Path):
    model = fitted("CoxPHFitter")
    Path(tmp_path, "m.pkl").write_bytes(pickle.dumps(model))
    load_model(tmp_path / "m.pkl")
    compiled = hbtvm.compile(tmp_path / "m.pkl", batch_sizes=50, threads=1)
    # A frame's columns are found by name.
    rows = DATA[["event", *reversed(COLUMNS)]]
    np.testing.assert_allclose(compiled.predict(rows), model.predict_partial_hazard(rows), rtol=1e-6)
    with pytest.raises(InputError, match="zeta"):
        compiled.predict(rows.assign(zeta=np.nan))


def test_refusals():
    for formula, term in (("zeta * alpha", "zeta:alpha"), ("np.exp(zeta)", "np.exp"), ("C(s)", "C")):
        with pytest.raises(UnsupportedModel, match=f"CoxPHFitter has a formula with the term '{term}"):
            from_object(fitted("CoxPHFitter", formula=formula))
    spline = lifelines.CoxPHFitter(baseline_estimation_method="spline", n_baseline_knots=2)
    with pytest.raises(UnsupportedModel, match="has the baseline 'spline', which is not supported"):
        from_object(spline.fit(DATA, "time", "event"))
    for name in ("CoxPHFitter", *AFT):
        with pytest.raises(UnsupportedModel, match="is not fitted"):
            from_object(getattr(lifelines, name)())
    with pytest.raises(
        UnsupportedModel, match="lifelines's KaplanMeierFitter is not supported: it has one curve"
    ):
        from_object(lifelines.KaplanMeierFitter().fit(DATA.time, DATA.event))
    model = fitted("LogNormalAFTFitter")
    model.params_ = model.params_.iloc[1:]
    with pytest.raises(ModelError, match="is damaged: it has 5 coefficients"):
        from_object(model)
