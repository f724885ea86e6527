"""lifelines' regressions: Cox's partial hazard, and medians of accelerated failure times (AFT).

lifelines has no ``predict``. Here it is ``predict_partial_hazard`` for ``CoxPHFitter``, and
``predict_median`` for AFT fitters. Raw scores are logarithms from which survival functions follow: of the
partial hazard, and of the primary and the ancillary parameter of AFT fitters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.pandas_objects import series_parts
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.sklearn.linear import linear_of
from hbtvm.graph.columns.steps import Arithmetic
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.compose import compose
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import select
from hbtvm.words.printable import shown

_INTERCEPT = "Intercept"
_PARAMETERS = {
    "WeibullAFTFitter": ("lambda_", "rho_"),
    "LogNormalAFTFitter": ("mu_", "sigma_"),
    "LogLogisticAFTFitter": ("alpha_", "beta_"),
}
"""The primary and the ancillary parameter of AFT fitters."""


def read_cox(model: Record) -> Graph:
    """Read ``CoxPHFitter`` with Breslow's baseline.

    Raises
    ------
    UnsupportedModel
        If it has another baseline or a formula, or is not fitted.
    """
    if not isinstance(model.get("_model", None), Record):
        raise _unfitted(model)
    inner = model.record("_model")
    if inner.kind != "SemiParametricPHFitter":
        raise UnsupportedModel(
            f"the {model.kind} has the baseline {model.text('baseline_estimation_method')!r:.40}, which is "
            "not supported; supported is baseline_estimation_method='breslow'."
        )
    names = _columns(inner, ("beta_",), model.kind)["beta_"]
    if _INTERCEPT in names:
        raise UnsupportedModel(f"the {model.kind} has a column {_INTERCEPT!r}, which is not supported.")
    params, mean = _series(inner, "params_"), _series(inner, "_norm_mean")
    if not len(params) == len(mean) == len(names):
        raise ModelError(f"the {model.kind} is damaged: it has {len(params)} coefficients.")
    raw: Node = Input(1)
    nodes = {"response": apply("exp", raw), "raw": raw}
    return _graph(model, names, mean, params[:, None], np.zeros(1), nodes)


def read_aft(model: Record) -> Graph:
    """Read ``WeibullAFTFitter``, ``LogNormalAFTFitter`` or ``LogLogisticAFTFitter``; errors as `read_cox`."""
    if "params_" not in model:
        raise _unfitted(model)
    parameters = _PARAMETERS[model.kind]
    columns = _columns(model, parameters, model.kind)
    params = _series(model, "params_")
    if len(params) != sum(map(len, columns.values())):
        raise ModelError(f"the {model.kind} is damaged: it has {len(params)} coefficients.")
    # The coefficients are in the order of the mappings.
    each = dict(
        zip(
            columns, np.split(params, np.cumsum([len(names) for names in columns.values()])[:-1]), strict=True
        )
    )
    every = dict.fromkeys(name for names in columns.values() for name in names if name != _INTERCEPT)
    names = list(every)
    weight, base = np.zeros((len(names), len(parameters))), np.zeros(len(parameters))
    for output, parameter in enumerate(parameters):
        for name, coefficient in zip(columns[parameter], each[parameter].tolist(), strict=True):
            if name == _INTERCEPT:
                base[output] += coefficient
            else:
                weight[names.index(name), output] += coefficient
    raw: Node = Input(2)
    median: Node = apply("exp", select(raw, [0]))
    if model.kind == "WeibullAFTFitter":
        inverse = apply("exp", apply("negative", select(raw, [1])))
        median = apply("multiply", median, apply("power", math.log(2.0), inverse))
    nodes = {"response": median, "raw": raw}
    return _graph(model, names, np.zeros(len(names)), weight, base, nodes)


def _unfitted(model: Record) -> UnsupportedModel:
    return UnsupportedModel(f"the {model.kind} is not fitted; hbtvm compiles trained models.")


def _columns(model: Record, parameters: Sequence[str], kind: str) -> Mapping[str, list[str]]:
    """Return the names of the columns of each parameter, in the order of the coefficients."""
    regressors = model.record("regressors")
    mappings = regressors.get("mappings")
    if not isinstance(mappings, dict) or sorted(mappings) != sorted(parameters):
        raise ModelError(f"the {kind} is damaged: its parameters are {kind_of(mappings)}.")
    result = {}
    for parameter, columns in mappings.items():
        if isinstance(columns, Record):
            columns = [_term(structure, kind) for structure in columns.records("structure")]
        if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
            raise UnsupportedModel(
                f"the {kind} has columns whose names are not strings; rename them, df.rename(columns=str)."
            )
        if regressors.get("force_no_intercept", False) and len(columns) > 1:
            columns = [name for name in columns if name != _INTERCEPT]
        if len({*columns}) < len(columns):
            raise UnsupportedModel(f"the {kind} has two columns of the same name.")
        result[parameter] = columns
    return result


def _term(structure: Record, kind: str) -> str:
    """Return the name of the only column of a formula's term, which has to be a column of the rows."""
    term, scoped, columns = structure.args
    factors = term.records("factors")
    ways = [factor.record("_eval_method").args[0] for factor in factors]
    names: list[str] = [factor.text("expr") for factor in factors]
    plain = len(scoped) == 1 and scoped[0].get("scale", 1) == 1
    if plain and ways == ["literal"] and columns == [_INTERCEPT]:
        return _INTERCEPT
    if plain and ways == ["lookup"] and columns == names:
        return names[0]
    raise UnsupportedModel(
        f"the {kind} has a formula with the term '{shown(':'.join(names), 60)}', which is "
        "not supported; supported are sums of columns of numbers, so fit it on columns that hold the terms."
    )


def _series(model: Record, name: str) -> np.ndarray:
    """Return the numbers of a pandas Series, float64, shape (n,)."""
    try:
        _, values = series_parts(model.record(name))
    except ModelError:
        raise ModelError(f"the {model.kind} is damaged: its {name} is not a Series.") from None
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.ndim != 1:
        raise ModelError(f"the {model.kind} is damaged: its {name} is {kind_of(values)}.")
    return values.astype(np.float64)


def _graph(
    model: Record,
    names: Sequence[str],
    mean: np.ndarray,
    weight: np.ndarray,
    base: np.ndarray,
    nodes: Mapping[str, Node],
) -> Graph:
    """Return the graph of ``(x - mean) @ weight + base``; columns are looked up by name."""
    anchor = linear_of(weight, base, model.kind)
    if not np.all(np.isfinite(mean)):
        raise ModelError(f"the {model.kind} is damaged: a mean is not finite.")
    inputs = InputSpec(len(names), tuple(names), allow_nan=False, allow_inf=False, by_name=True)
    columns = [
        Column(Raw(i), (Arithmetic("subtract", shift),) if shift else (), False, False)
        for i, shift in enumerate(mean.tolist())
    ]
    output = OutputSpec("regressor", anchor.n_outputs, nodes)
    graph = Graph("lifelines", model.kind, inputs, anchor, output)
    return compose(inputs, Table(tuple(columns), False, tuple(names)), graph, ())
