"""``TransformedTargetRegressor``: a regressor, and the way back from the scale of its target."""

from __future__ import annotations

from dataclasses import replace

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers import Where
from hbtvm.frontends.transformers.functions import known_function
from hbtvm.graph.inverse import Inverse
from hbtvm.graph.output import OutputSpec

_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")


def undone(model: Record, output: OutputSpec, where: Where) -> OutputSpec:
    """The outputs of a regressor on the scale of the target before it was transformed.

    Parameters
    ----------
    model
        The ``TransformedTargetRegressor``.
    output
        Those of the regressor within.
    where
        The model's place.

    Raises
    ------
    UnsupportedModel
        If the regressor is none, or the target was transformed by something that is not known.
    """
    if output.kind not in ("regressor", "ranker", "booster") or output.label_rule is not None:
        raise where.unsupported(f"has a {output.kind} as its regressor, which is not supported.")
    steps: Inverse = inverse_of(model.record("transformer_"), output.n_outputs, where)
    if model.whole("_training_dim", 1, 1) != 1 and output.n_outputs == 1:
        steps = (*steps, ("column", ()))
    return replace(output, outputs=(), inverse=(*output.inverse, *steps))


def inverse_of(transformer: Record, width: int, where: Where) -> Inverse:
    """What a fitted transformer's ``inverse_transform`` does, in order."""
    if transformer.is_a("sklearn", "FunctionTransformer"):
        arguments = transformer.get("inv_kw_args", None)
        name = known_function(transformer.get("inverse_func", None), arguments, where)
        return () if name is None else ((name, ()),)
    if not transformer.is_a("sklearn", *_SCALERS):
        raise where.unsupported(
            f"transforms its target by a {transformer.kind}, which is not supported; supported are functions "
            f"of numpy, {', '.join(_SCALERS)}."
        )

    def constants(name: str) -> tuple[float, ...]:
        values = transformer.array(name, "f", 1)
        if len(values) != width:
            raise where.damaged(f"its target's {name} has {len(values)} values for {width} outputs.")
        return tuple(values.tolist())

    if transformer.kind == "MinMaxScaler":
        return (("subtract", constants("min_")), ("divide", constants("scale_")))
    if transformer.kind == "MaxAbsScaler":
        return (("multiply", constants("scale_")),)
    scaled, shifted, center = (
        ("with_std", "with_mean", "mean_")
        if transformer.kind == "StandardScaler"
        else ("with_scaling", "with_centering", "center_")
    )
    steps: Inverse = ()
    if transformer.get(scaled, True):
        steps = (("multiply", constants("scale_")),)
    if transformer.get(shifted, True):
        steps = (*steps, ("add", constants(center)))
    return steps
