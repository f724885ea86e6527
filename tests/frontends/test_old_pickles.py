"""Pickles of many releases, whatever is installed here, against what those releases predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import load_model
from hbtvm.graph.graph import Graph
from tests.oracle import margins
from tests.pickles import RELEASES, release

METHODS = {
    "predict": "predict",
    "predict_proba": "proba",
    "decision_function": "decision",
    "score_samples": "score",
    "raw": "raw",
}
REFUSED = {
    "refused_boost_linear": "starts from a LinearRegression",
}
ONCE_REFUSED = {"refused_xgb_linear": "XGBRegressor", "refused_lgb_linear": "LGBMRegressor"}
"""Classes of models that are read since, and without predictions by their release."""


def _check(found: object, expected: object, exact: bool) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _check(one, other, exact)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        rtol, atol = (1e-12, 1e-13) if exact else (1e-5, 2e-6)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(found.astype(expected.dtype), expected)


def _same(graph: Graph, expected: dict[str, Any], X: np.ndarray) -> None:
    raw = margins(graph, X)
    if graph.output.kind == "anomaly":
        # numpy's power differs in its last bit among releases, which decides about rows on the threshold.
        beside = np.abs(expected["decision_function"]) > 1e-12
        expected = {method: value[beside] for method, value in expected.items()}
        raw = raw[beside]
    for method, value in expected.items():
        output = METHODS[method]
        if output == "predict" or output in graph.output.outputs:
            found = graph.output.compute(None if output == "predict" else output, raw)
            _check(found, value, graph.library != "xgboost")
        else:
            assert graph.output.kind == "booster" and output in ("proba", "decision")


@pytest.mark.parametrize("name", RELEASES)
def test_models_of_a_release_predict_as_it_did(name: str, tmp_path: Path) -> None:
    stored = release(name)
    faults = []
    for file, content in stored.files.items():
        path = tmp_path / file
        path.write_bytes(content)
        model = path.stem
        if model in REFUSED:
            with pytest.raises(UnsupportedModel, match=REFUSED[model]):
                load_model(path)
            continue
        if model in ONCE_REFUSED:
            assert load_model(path).model == ONCE_REFUSED[model]
            continue
        try:
            graph = load_model(path)
            _same(graph, stored.methods(model, "rows"), stored.expected["rows"])
            with_missing = stored.methods(model, "rows_missing")
            assert graph.input.allow_nan == bool(with_missing), "missing values"
            if with_missing:
                _same(graph, with_missing, stored.expected["rows_missing"])
        except (AssertionError, ModelError) as error:
            faults.append(f"{file}: {str(error)[:300]}")
    assert not faults, "\n".join(faults)


def test_all_kinds_and_releases_are_there() -> None:
    """That a sample got lost must not pass for success."""
    versions = {str(v) for name in RELEASES for v in release(name).expected["versions"]}
    numbers = {library: {v.split()[1] for v in versions if v.startswith(library)} for library in (
        "sklearn", "xgboost", "lightgbm",
    )}  # fmt: skip
    assert {v.rpartition(".")[0] for v in numbers["sklearn"]} >= {f"1.{minor}" for minor in range(10)}
    assert {v.partition(".")[0] for v in numbers["xgboost"]} == {"1", "2", "3"}
    assert {v.partition(".")[0] for v in numbers["lightgbm"]} == {"3", "4"}
    kinds = {file.partition(".")[0].split("_")[0] for name in RELEASES for file in release(name).files}
    assert kinds >= {"tree", "extra", "forest", "boost", "hist", "isolation", "xgb", "lgb", "named"}
