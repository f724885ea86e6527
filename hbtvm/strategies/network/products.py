"""Contractions, sums of products and distances of a network's expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from hbtvm.schedules.network.plan import Stage
from hbtvm.strategies.network import functions, single
from hbtvm.strategies.network.functions import known, number, truth
from hbtvm.strategies.network.stages import (
    Stages,
    Value,
    bounded,
    clipped,
    is_single,
    stage_type,
    within,
)


class Products(Stages):
    """Contractions, sums of products and distances."""

    def _contract(self, at: int, stage: Stage) -> Value:
        (x,), weight = self._inputs(stage), self._table(at, "weight")
        width = self._width(stage)
        if stage.split:
            return self._split_contract(at, stage, x, weight, width)
        terms = int(weight.shape[0])
        k = te.reduce_axis((0, terms), "k")

        def value(i: Any, w: Any, r: Any) -> Any:
            return te.sum(within(k, width, terms, x(i, k, r)) * weight[k, w], axis=k)

        return self._stage(f"s{at}", stage.room, value)

    def _split_contract(self, at: int, stage: Stage, x: Value, weight: Any, width: int) -> Value:
        """Compute a few long sums of one row, each as a vector of partial sums."""
        lanes, terms = self.plan.lanes, int(weight.shape[1])
        shape = (self.tiles, stage.room, self.plan.row_tile, lanes)
        k = te.reduce_axis((0, terms // lanes), "k")

        def part(i: Any, w: Any, r: Any, n: Any) -> Any:
            # The input is stored with padding, so all lanes may be loaded and some ignored.
            at_term = k * lanes + n
            value = x(i, at_term, r)
            value = value if terms == width else tirx.Select(at_term < width, value, number(0))
            return te.sum(value * weight[w, at_term], axis=k)

        parts = te.compute(shape, lambda i, w, r, n: part(i, w, r, n), name=f"s{at}_parts")
        n = te.reduce_axis((0, lanes), "n")
        return self._stage(f"s{at}", stage.room, lambda i, w, r: te.sum(parts[i, w, r, n], axis=n))

    def _linear_sum(self, at: int, stage: Stage) -> Value:
        (x,), parts = self._inputs(stage), []
        tables = {
            name: self._table(at, name) for name in stage.form["tables"] if f"t{at}_{name}" in self.tables
        }
        if "weight" in tables:
            k = te.reduce_axis((0, int(tables["weight"].shape[0])), "k")

            def term(i: Any, w: Any, r: Any) -> Any:
                value = x(i, tables["feature"][k] if "feature" in tables else k, r)
                product = (value - tables["shift"][k] if "shift" in tables else value) * tables["weight"][
                    k, w
                ]
                if "missing" not in tables:
                    return te.sum(product, axis=k)
                return te.sum(tirx.Select(known(value), product, tables["missing"][k, w]), axis=k)

            parts.append(self._stage(f"s{at}_numbers", stage.room, term))
        if "entries" in tables:
            c = te.reduce_axis((0, int(tables["code_feature"].shape[0])), "c")
            entries = tables["entries"]

            def entry(i: Any, w: Any, r: Any) -> Any:
                code = clipped(x(i, tables["code_feature"][c], r), tables["code_last"][c])
                place = bounded(tables["code_first"][c] + code, int(entries.shape[0]))
                return te.sum(entries[place, w], axis=c)

            parts.append(self._stage(f"s{at}_codes", stage.room, entry))
        if not parts:
            return lambda i, w, r: number(0)
        if len(parts) == 1:
            return parts[0]
        return lambda i, w, r: parts[0](i, w, r) + parts[1](i, w, r)

    def _monomials(self, at: int, stage: Stage) -> Value:
        (x,), factors, width = self._inputs(stage), self._table(at, "factors"), self._width(stage)

        def value(i: Any, w: Any, r: Any) -> Any:
            result = None
            for d in range(int(factors.shape[1])):
                column = factors[w, d]
                factor = x(i, tirx.min(column, tirx.const(width - 1, "int32")), r)
                # The condition is the same for a whole vector of rows.
                factor = tirx.if_then_else(column < width, factor, number(1))
                result = factor if result is None else result * factor
            return result

        return value

    def _distance(self, at: int, stage: Stage) -> Value:
        if at in self.plan.nearest.values():
            # The `TopK` computes the distances that it needs.
            return self._inputs(stage)[0]
        (x,), points = self._inputs(stage), self._table(at, "points")
        scale = self.tables.get(f"t{at}_scale")
        metric, features = str(stage.form["metric"]), self._width(stage)

        def difference(i: Any, w: Any, r: Any, f: Any) -> Any:
            distance = x(i, f, r) - points[f, w]
            return distance if scale is None else distance * scale[f, w]

        def size(value: Any) -> Any:
            return tirx.Select(value < number(0), number(0) - value, value)

        def reduced(name: str, reducer: Callable[..., Any], term: Callable[[Any], Any]) -> Value:
            f = te.reduce_axis((0, features), "f")
            return self._stage(
                name, stage.room, lambda i, w, r: reducer(term(difference(i, w, r, f)), axis=f)
            )

        match metric:
            case "squared_euclidean" if self.plan.expanded and scale is None:
                return self._expanded(at, stage, x, points, features)
            case "squared_euclidean":
                return reduced(f"s{at}", te.sum, lambda d: d * d)
            case "manhattan":
                return reduced(f"s{at}", te.sum, size)
            case "chebyshev":
                return reduced(f"s{at}", te.max, size)
            case "minkowski":
                p = number(float(stage.form["p"]))
                zero = number(0)
                return reduced(
                    f"s{at}",
                    te.sum,
                    lambda d: tirx.Select(d == zero, zero, tirx.pow(size(d), p)),
                )
        total = reduced(f"s{at}_total", te.sum, lambda d: tirx.Select(known(d), d * d, number(0)))
        count = reduced(f"s{at}_count", te.sum, lambda d: truth(known(d)))

        def scaled(i: Any, w: Any, r: Any) -> Any:
            mean = tirx.div(total(i, w, r) * number(features), count(i, w, r))
            return tirx.Select(count(i, w, r) > number(0), mean, number(float("nan")))

        return self._stage(f"s{at}", stage.room, scaled)

    def _expanded(self, at: int, stage: Stage, x: Value, points: Any, features: int) -> Value:
        """Compute ``|x|**2 + |p|**2 - 2 x p``: half the operations, but cancellation in small distances."""
        f = te.reduce_axis((0, features), "f")
        square = self._stage(f"s{at}_square", 1, lambda i, w, r: te.sum(x(i, f, r) * x(i, f, r), axis=f))
        g = te.reduce_axis((0, features), "g")
        dot = self._stage(f"s{at}", stage.room, lambda i, w, r: te.sum(x(i, g, r) * points[g, w], axis=g))
        norms = self._table(at, "norms")
        product = next((multiple for multiple, distance in self.plan.scaled.items() if distance == at), None)
        if product is not None:
            # The tables contain the factor: norms times it, points times minus twice it.
            factor = self._table(self.plan.stages[product].form["inputs"][1], "values")
            times = self._stage(
                f"s{at}_times_square",
                1,
                lambda i, w, r: square(i, 0, r) * factor[0].astype(stage_type(stage)),
            )
            return lambda i, w, r: (times(i, 0, r) + norms[w]) + dot(i, w, r)

        def value(i: Any, w: Any, r: Any) -> Any:
            expanded = (square(i, 0, r) + norms[w]) - tirx.const(2, stage_type(stage)) * dot(i, w, r)
            return (
                single.FUNCTIONS["relu"](expanded)
                if is_single(stage)
                else functions.FUNCTIONS["relu"](expanded)
            )

        return value
