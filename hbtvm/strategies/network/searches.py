"""Searches, look-ups and reductions of a network's expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from hbtvm.schedules.network.plan import Stage
from hbtvm.strategies.network import nearest, row_loops
from hbtvm.strategies.network.functions import known, number, truth
from hbtvm.strategies.network.stages import (
    Stages,
    Value,
    bounded,
    clipped,
    is_single,
    stage_type,
)

_FEW_EDGES = 16  # up to this many edges, compare all; beyond, binary search


class Searches(Stages):
    """Searches, look-ups and reductions."""

    def _top_k(self, at: int, stage: Stage) -> Value:
        (x,), width, k = self._inputs(stage), self._width(stage), int(stage.form["k"])
        if at in self.plan.nearest:
            tensor = nearest.stages(self.plan, self.plan.nearest[at], k, x, self.tables, self.tiles, f"s{at}")
            return lambda i, w, r: tensor[i, w, r]
        if self.searches:
            kept = self.plan.stages[stage.form["inputs"][0]].kept
            values = x if kept else self._stage(f"s{at}_values", width, x)
            return self._stage(f"s{at}", 2 * k, nearest.smallest(k, width, self.plan, values))
        infinity = number(float("inf"))

        def value(i: Any, t: Any, r: Any) -> Any:
            value_ = x(i, t, r)
            return tirx.Select(known(value_), value_, infinity)

        smallest: list[Value] = []
        places: list[Value] = []
        for n in range(k):
            t = te.reduce_axis((0, width), "t")

            def behind(i: Any, t: Any, r: Any, n: int = n) -> Any:
                if not n:
                    return tirx.const(True, "bool")
                last, place = smallest[n - 1](i, 0, r), places[n - 1](i, 0, r)
                candidate = value(i, t, r)
                return tirx.any(candidate > last, tirx.all(candidate == last, t.astype("float64") > place))

            def least(i: Any, w: Any, r: Any, t: Any = t, behind: Any = behind) -> Any:
                return te.min(tirx.Select(behind(i, t, r), value(i, t, r), infinity), axis=t)

            smallest.append(self._stage(f"s{at}_least{n}", 1, least))
            t = te.reduce_axis((0, width), "t")

            def place(i: Any, w: Any, r: Any, n: int = n, t: Any = t, behind: Any = behind) -> Any:
                here = tirx.all(behind(i, t, r), value(i, t, r) == smallest[n](i, 0, r))
                return te.min(tirx.Select(here, t.astype("float64"), number(width - 1)), axis=t)

            places.append(self._stage(f"s{at}_place{n}", 1, place))

        def entry(i: Any, w: Any, r: Any) -> Any:
            entries = [*smallest, *places]
            result = entries[-1](i, 0, r)
            for n in range(2 * k - 2, -1, -1):
                result = tirx.if_then_else(w == n, entries[n](i, 0, r), result)
            return result

        return self._stage(f"s{at}", 2 * k, entry)

    def _take(self, at: int, stage: Stage) -> Value:
        (x,), table, count = self._inputs(stage), self._table(at, "table"), self._width(stage)
        last = int(table.shape[0]) - 1

        def value(i: Any, w: Any, r: Any) -> Any:
            place = clipped(x(i, tirx.indexmod(w, count) if count > 1 else 0, r), number(last))
            return table[place, tirx.indexdiv(w, count)]

        return value

    def _stored(self, at: int, stage: Stage, place: int) -> tuple[Value, int]:
        """Return an input with values in memory, and its width."""
        value, source = self._inputs(stage)[place], self.plan.stages[stage.form["inputs"][place]]
        width = self._width(stage, place)
        # Float32 values are copied to a float64 stage.
        return value if source.kept and not is_single(source) else self._stage(
            f"s{at}_given{place}", width, value
        ), width

    def _imputation(self, at: int, stage: Stage) -> Value:
        tables = [self._table(at, name) for name in ("column", "weight", "intercept", "low", "high")]
        steps, width = (int(size) for size in stage.form["tables"]["weight"])
        inputs = [self._stored(at, stage, place) for place in range(2)]
        return self._stage(
            f"s{at}", width, row_loops.call(row_loops.IMPUTATION, inputs, tables, (steps, width))
        )

    def _coupling(self, at: int, stage: Stage) -> Value:
        sizes = int(stage.form["classes"]), int(stage.form["rounds"])
        inputs = [self._stored(at, stage, 0)]
        return self._stage(f"s{at}", sizes[0], row_loops.call(row_loops.COUPLING, inputs, (), sizes))

    def _reduce(self, at: int, stage: Stage) -> Value:
        (x,), function, size = self._inputs(stage), str(stage.form["function"]), int(stage.form["size"])
        width = int(stage.form["width"])

        def reduced(name: str, reducer: Callable[..., Any], term: Value) -> Value:
            k = te.reduce_axis((0, size), "k")
            return self._stage(
                name, width, lambda i, g, r: reducer(term(i, g * size + k if width > 1 else k, r), axis=k)
            )

        if function in ("sum", "max", "min"):
            return reduced(f"s{at}", getattr(te, function), x)
        if function == "product":
            product = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), "product")
            return reduced(f"s{at}", product, x)
        peak = reduced(f"s{at}_peak", te.max if function == "argmax" else te.min, x)
        k = te.reduce_axis((0, size), "k")

        def place(i: Any, g: Any, r: Any) -> Any:
            here = x(i, g * size + k if width > 1 else k, r) == peak(i, g, r)
            return te.min(tirx.Select(here, k.astype("float64"), number(size - 1)), axis=k)

        return self._stage(f"s{at}", width, place)

    def _positions(self, at: int, stage: Stage, table: Any, left: bool) -> Value:
        """Return the number of a column's edges before a value, int32; see `Bucketize`."""
        (x,), count, width = self._inputs(stage), int(table.shape[1]), int(stage.form["width"])

        def behind(edge: Any, value: Any) -> Any:
            # False for NaN, which sorts after all edges. (TVM turns a negated comparison into the opposite
            # comparison, which is also false for NaN.)
            return edge >= value if left else edge > value

        if count <= _FEW_EDGES:
            e = te.reduce_axis((0, count), "e")
            tensor = te.compute(
                (self.tiles, width, self.plan.row_tile),
                lambda i, w, r: te.sum(
                    tirx.Select(
                        behind(table[w, e], x(i, w, r)), tirx.const(0, "int32"), tirx.const(1, "int32")
                    ),
                    axis=e,
                ),
                name=f"s{at}_place",
            )
            return lambda i, w, r: tensor[i, w, r]

        def halved(place: Value, step: int) -> Value:
            def entry(i: Any, w: Any, r: Any) -> Any:
                base = place(i, w, r)
                last = base + (step - 1)
                edge = table[w, tirx.min(last, tirx.const(count - 1, "int32"))]
                less = tirx.any(last >= count, behind(edge, x(i, w, r)))
                return base + tirx.Select(less, tirx.const(0, "int32"), tirx.const(step, "int32"))

            return entry

        place: Value = lambda i, w, r: tirx.const(0, "int32")  # noqa: E731
        step = 1 << (count.bit_length() - 1)
        n = 0
        while step:
            place = self._stage(f"s{at}_place{n}", width, halved(place, step))
            step >>= 1
            n += 1
        return place

    def _bucketize(self, at: int, stage: Stage) -> Value:
        place = self._positions(at, stage, self._table(at, "edges"), stage.form["side"] == "left")
        return self._stage(
            f"s{at}", int(stage.form["width"]), lambda i, w, r: place(i, w, r).astype(stage_type(stage))
        )

    def _interpolate(self, at: int, stage: Stage) -> Value:
        (x,), points, values = self._inputs(stage), self._table(at, "at"), self._table(at, "values")
        count = int(points.shape[1])
        place = self._positions(at, stage, points, False)

        def value(i: Any, w: Any, r: Any) -> Any:
            here = place(i, w, r)
            low = tirx.max(tirx.min(here - 1, tirx.const(count - 2, "int32")), tirx.const(0, "int32"))
            high = tirx.min(low + 1, tirx.const(count - 1, "int32"))
            x0, y0, here_value = points[w, low], values[w, low], x(i, w, r)
            inner = tirx.div(values[w, high] - y0, points[w, high] - x0) * (here_value - x0) + y0
            result = tirx.Select(here == 0, values[w, 0], inner)
            result = tirx.Select(here >= count, values[w, count - 1], result)
            return tirx.Select(known(here_value), result, here_value)

        return self._stage(f"s{at}", int(stage.form["width"]), value)

    def _lookup(self, at: int, stage: Stage) -> Value:
        (x,) = self._inputs(stage)
        column, first, last, entries = (
            self._table(at, name) for name in ("column", "first", "last", "entries")
        )

        def value(i: Any, w: Any, r: Any) -> Any:
            code = clipped(x(i, column[w], r), last[w].astype("float64"))
            return entries[bounded(first[w] + code, int(entries.shape[0]))]

        return value

    def _one_hot(self, at: int, stage: Stage) -> Value:
        (x,), column, code = self._inputs(stage), self._table(at, "column"), self._table(at, "value")
        return lambda i, w, r: truth(x(i, column[w], r) == code[w]).astype(stage_type(stage))
