"""`Explanation`: indexing, tables, the strongest reasons, and shap's plots."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from hbtvm.errors import InputError
from hbtvm.runtime.explaining.explanation import Explanation

matplotlib.use("Agg")

NAMES = ("age", "pay", "job")


def single(n: int = 5) -> Explanation:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(n, 3))
    return Explanation(values, np.full(n, 0.5), rng.normal(size=(n, 3)), NAMES, None, np.abs(values) / 9)


def several(n: int = 5) -> Explanation:
    rng = np.random.default_rng(3)
    base = np.tile([0.1, 0.2], (n, 1))
    return Explanation(rng.normal(size=(n, 3, 2)), base, rng.normal(size=(n, 3)), NAMES, ("no", "yes"))


def test_indexing() -> None:
    explanation = several()
    row = explanation[1]
    assert row.shape == (3, 2) and row.base_values.tolist() == [0.1, 0.2] and row.data.shape == (3,)
    yes = explanation[..., "yes"]
    np.testing.assert_array_equal(yes.values, explanation.values[:, :, 1])
    assert yes.base_values.tolist() == [0.2] * 5 and yes.output_names == "yes"
    job = explanation[1:3, "job"]
    np.testing.assert_array_equal(job.values, explanation.values[1:3, 2])
    np.testing.assert_array_equal(job.data, explanation.data[1:3, 2])
    assert job.feature_names == "job"
    few = explanation[np.array([4, 0]), [2, 0], "no"]
    np.testing.assert_array_equal(few.values, explanation.values[[4, 0]][:, [2, 0], 0])
    assert few.feature_names == ("job", "age")
    assert single()[0, "pay"].errors == single().errors[0, 1]  # type: ignore[index]
    assert len(explanation) == 5 and explanation.shape == (5, 3, 2)
    with pytest.raises(InputError, match="no feature 'pays'; there are age, pay, job"):
        explanation[:, "pays"]
    with pytest.raises(IndexError, match="too many indices"):
        explanation[0, 0, 0, 0]


def test_top() -> None:
    values = np.array([[1.0, -3.0, 0.0], [0.5, 0.2, 0.1]])
    explanation = Explanation(values, np.zeros(2), np.array([[1, "x", 2], [3, "y", 4]], object), NAMES)
    top = explanation.top(2)
    assert top.names.tolist() == [["pay", "age"], ["age", "pay"]]
    assert top.values.tolist() == [["x", 1], [3, "y"]]
    assert top.contributions.tolist() == [[-3, 1], [0.5, 0.2]]
    lowering = explanation.top(2, "negative")
    assert lowering.names.tolist() == [["pay", None], [None, None]]
    assert np.isnan(lowering.contributions[:, 1]).all() and lowering.contributions[0, 0] == -3
    assert explanation.top(9, "positive").names.tolist() == [["age", None, None], ["age", "pay", "job"]]
    with pytest.raises(InputError, match="k is 0"):
        explanation.top(0)
    with pytest.raises(InputError, match="sign is 'up'"):
        explanation.top(1, "up")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rows and features"):
        explanation[0].top(1)


def test_top_of_several_outputs_is_of_the_highest_score() -> None:
    explanation = several()
    highest = (explanation.base_values + explanation.values.sum(axis=1)).argmax(axis=1)
    assert len(set(highest)) == 2
    top = explanation.top(1)
    for i, output in enumerate(highest):
        alone = explanation[..., int(output)].top(1)
        assert top.names[i] == alone.names[i] and top.contributions[i] == alone.contributions[i]
    np.testing.assert_array_equal(explanation.top(2, output="yes").names, explanation[..., 1].top(2).names)


def test_to_pandas() -> None:
    frame = single().to_pandas()
    assert list(frame.columns) == ["base_value", *NAMES] and len(frame) == 5
    np.testing.assert_array_equal(frame[list(NAMES)].to_numpy(), single().values)
    wide = several().to_pandas()
    np.testing.assert_array_equal(wide["yes"][list(NAMES)].to_numpy(), several().values[:, :, 1])
    assert wide[("no", "base_value")].tolist() == [0.1] * 5


def test_shap_plots_take_it() -> None:
    import matplotlib.pyplot as plt

    shap = pytest.importorskip("shap")

    plt.switch_backend("agg")  # waterfall needs a renderer, whatever other tests use
    explanation = single(30)
    assert isinstance(explanation, shap.Explanation) and isinstance(explanation, Explanation)
    shap.plots.beeswarm(explanation, show=False)
    shap.plots.bar(explanation, show=False)
    shap.plots.bar(explanation[0], show=False)
    shap.plots.waterfall(explanation[3], show=False)
    shap.plots.scatter(explanation[:, "age"], show=False)
    shap.plots.heatmap(explanation, show=False)
    shap.plots.violin(explanation, show=False)
    shap.plots.decision(explanation.base_values[0], explanation.values, show=False)
    shap.plots.beeswarm(several(20)[..., "yes"], show=False)
    plt.close("all")
    np.testing.assert_allclose(explanation.abs.mean(0).values, np.abs(explanation.values).mean(axis=0))
    assert explanation[:, np.argsort(-explanation.abs.mean(0).values)].shape == (30, 3)
    assert explanation.to_shap().feature_names == list(NAMES)


def test_copies_and_pickles() -> None:
    shap = pytest.importorskip("shap")

    assert shap  # with it, the class that an explanation reports is shap's
    for explanation in (single(), several(), several()[2, :, "yes"]):
        for again in (pickle.loads(pickle.dumps(explanation)), copy.deepcopy(explanation)):
            assert type(again) is Explanation and repr(again) == repr(explanation)
            np.testing.assert_array_equal(again.values, explanation.values)
            np.testing.assert_array_equal(again[:1].values, explanation[:1].values)


def test_repr() -> None:
    assert repr(several()) == "<hbtvm.Explanation: 5 rows x 3 features x 2 outputs, exact>"
    assert repr(single()[0]).startswith("<hbtvm.Explanation: 3 features, standard errors up to 0.")


def test_it_needs_numpy_alone() -> None:
    code = (
        "import sys, numpy as np\n"
        "from hbtvm.runtime.explaining.explanation import Explanation\n"
        "e = Explanation(np.ones((2, 2)), np.zeros(2), np.ones((2, 2)), ('a', 'b'))\n"
        "e.top(1), e[0, 'a'], repr(e)\n"
        "assert type(e) is e.__class__ and not hasattr(e, 'abs')\n"
        "assert not {'shap', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
