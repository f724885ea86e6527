"""A network's tensor expressions: one function of rows and tables, in stages (see
`schedules.network_plan`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from hbtvm.runtime.signature import Argument
from hbtvm.schedules.cpu import transposed_lanes
from hbtvm.schedules.network_plan import Plan, Stage, passes, stores_by_row
from hbtvm.strategies.columns import placeholder, transposed_tile
from hbtvm.strategies.network import functions, nearest, row_loops, single
from hbtvm.strategies.network.functions import known, number, truth

Value = Callable[[Any, Any, Any], Any]
"""From tile, column and row to a node's value."""


class Expressions:
    """Builds the expressions of one plan.

    Parameters
    ----------
    plan
        The stages.
    dtype, features
        Type of the rows, and their columns.
    arguments
        The tables, in order.
    score_dtype
        Type of the scores.
    """

    searches = True
    """Whether `hbtvm.compiler.lowering.nearest` looks for the smallest values, row by row."""

    def __init__(
        self,
        plan: Plan,
        dtype: str,
        features: int,
        arguments: Sequence[Argument],
        score_dtype: str = "float64",
    ) -> None:
        self.plan, self.score_dtype = plan, score_dtype
        self.tiles = te.var("tiles", "int64")
        self.rows = te.placeholder((self.tiles, plan.row_tile, features), dtype, name="rows")
        self.tables = {argument.name: placeholder(argument) for argument in arguments}
        self.values: list[Value] = []
        self.native: list[Value] = []
        self.functions = functions.FUNCTIONS
        self.arguments = arguments

    def function(self) -> Any:
        """The `PrimFunc`."""
        for at, stage in enumerate(self.plan.stages):
            value = self._node(at, stage)
            self.native.append(value)
            self.values.append(self._widened(at, stage, value) if is_single(stage) else value)
        return te.create_prim_func([self.rows, *self.tables.values(), self._scores()])

    def _table(self, at: int, name: str) -> Any:
        return self.tables[f"t{at}_{name}"]

    def _stage(self, name: str, width: int, value: Value) -> Value:
        """Keep values in a stage."""
        # TVM counts a function's parameters, defaults included.
        made = te.compute((self.tiles, width, self.plan.row_tile), lambda i, w, r: value(i, w, r), name=name)
        return lambda i, w, r: made[i, w, r]

    def _node(self, at: int, stage: Stage) -> Value:
        kind = str(stage.form["kind"])
        build: Callable[[int, Stage], Value] = getattr(self, f"_{kind}")
        value = build(at, stage)
        if kind in ("elementwise", "concat", "lookup", "one_hot", "monomials", "take") and stage.kept:
            return self._stage(f"s{at}", stage.room, value)
        return value

    def _inputs(self, stage: Stage) -> list[Value]:
        # (What rounds may read either type.)
        if not is_single(stage):
            return [self.values[one] for one in stage.form["inputs"]]
        return [self._narrow(one) for one in stage.form["inputs"]]

    def _narrow(self, at: int) -> Value:
        """A node's values as what is computed in float32 reads them."""
        value = self.native[at]
        if is_single(self.plan.stages[at]):
            return value
        return lambda i, w, r: value(i, w, r).astype("float32")

    def _width(self, stage: Stage, place: int = 0) -> int:
        return int(self.plan.stages[stage.form["inputs"][place]].form["width"])

    def _input(self, at: int, stage: Stage) -> Value:
        plan, rows = self.plan, self.rows
        if not plan.by_rows or plan.lanes == 1:
            return lambda i, w, r: rows[i, r, w].astype(_type(stage))
        block = transposed_lanes(plan.lanes, str(rows.dtype))
        columns = transposed_tile(rows, block, "columns")
        if is_single(stage) or str(rows.dtype) == "float64":
            return lambda i, w, r: columns[i, w, r]
        return self._widened(at, stage, lambda i, w, r: columns[i, w, r])

    def _widened(self, at: int, stage: Stage, value: Value) -> Value:
        """Float32 values as float64; those of a transposed tile once for all that read them."""

        def wide(i: Any, w: Any, r: Any) -> Any:
            return value(i, w, r).astype("float64")

        transposed = stage.form["kind"] == "input" and self.plan.by_rows and self.plan.lanes > 1
        if not transposed or passes(self.plan, at) <= _FEW_PASSES:
            return wide
        return self._stage("wide", int(self.rows.shape[2]), wide)

    def _constant(self, at: int, stage: Stage) -> Value:
        values = self._table(at, "values")
        if int(stage.form["width"]) == 1:
            return lambda i, w, r: values[0]
        return lambda i, w, r: values[w]

    def _elementwise(self, at: int, stage: Stage) -> Value:
        name, width = str(stage.form["function"]), int(stage.form["width"])
        if at in self.plan.scaled:
            return (self.native if is_single(stage) else self.values)[self.plan.scaled[at]]
        values = [
            one if self._width(stage, place) > 1 or width == 1 else _first(one)
            for place, one in enumerate(self._inputs(stage))
        ]
        if name == "normal_quantile":
            root = self._stage(
                f"s{at}_root", stage.room, lambda i, w, r: functions.tail_root(values[0](i, w, r))
            )
            return lambda i, w, r: functions.normal_quantile(values[0](i, w, r), root(i, w, r))
        if name in ("power", "cbrt") and name not in self.functions:
            # In two stages: in one, a logarithm would stand within an exponential.
            log = self._stage(
                f"s{at}_log", stage.room, lambda i, w, r: functions.log_of_size(values[0](i, w, r))
            )
            if name == "cbrt":
                return lambda i, w, r: functions.root(values[0](i, w, r), log(i, w, r))
            return lambda i, w, r: functions.raised(values[0](i, w, r), values[1](i, w, r), log(i, w, r))
        function = single.FUNCTIONS[name] if is_single(stage) else self.functions[name]
        return lambda i, w, r: function(*(one(i, w, r) for one in values))

    def _select(self, at: int, stage: Stage) -> Value:
        (x,) = self._inputs(stage)
        if "first" in stage.form:
            first = int(stage.form["first"])
            return lambda i, w, r: x(i, w + first if first else w, r)
        indices = self._table(at, "indices")
        return lambda i, w, r: x(i, indices[w], r)

    def _repeat(self, at: int, stage: Stage) -> Value:
        (x,) = self._inputs(stage)
        times, width = int(stage.form["times"]), self._width(stage)
        if stage.form["tiled"]:
            return lambda i, w, r: x(i, tirx.indexmod(w, width), r)
        return lambda i, w, r: x(i, tirx.indexdiv(w, times), r)

    def _concat(self, at: int, stage: Stage) -> Value:
        parts, widths = self._inputs(stage), [self._width(stage, n) for n in range(len(stage.form["inputs"]))]

        def value(i: Any, w: Any, r: Any) -> Any:
            first = sum(widths)
            result = None
            for part, width in zip(reversed(parts), reversed(widths), strict=True):
                first -= width
                own = part(i, w - first if first else w, r)
                result = own if result is None else tirx.if_then_else(w < first + width, own, result)
            return result

        return value

    def _contract(self, at: int, stage: Stage) -> Value:
        (x,), weight = self._inputs(stage), self._table(at, "weight")
        width = self._width(stage)
        if stage.split:
            return self._split_contract(at, stage, x, weight, width)
        terms = int(weight.shape[0])
        k = te.reduce_axis((0, terms), "k")

        def value(i: Any, w: Any, r: Any) -> Any:
            return te.sum(_within(k, width, terms, x(i, k, r)) * weight[k, w], axis=k)

        return self._stage(f"s{at}", stage.room, value)

    def _split_contract(self, at: int, stage: Stage, x: Value, weight: Any, width: int) -> Value:
        """A few sums of many terms of one row, each made of a vector of sums."""
        lanes, terms = self.plan.lanes, int(weight.shape[1])
        shape = (self.tiles, stage.room, self.plan.row_tile, lanes)
        k = te.reduce_axis((0, terms // lanes), "k")

        def part(i: Any, w: Any, r: Any, n: Any) -> Any:
            # What is read is stored, padding included, so that all lanes may be read, and some left out.
            at_term = k * lanes + n
            value = x(i, at_term, r)
            value = value if terms == width else tirx.Select(at_term < width, value, number(0))
            return te.sum(value * weight[w, at_term], axis=k)

        parts = te.compute(shape, lambda i, w, r, n: part(i, w, r, n), name=f"s{at}_parts")
        n = te.reduce_axis((0, lanes), "n")
        return self._stage(f"s{at}", stage.room, lambda i, w, r: te.sum(parts[i, w, r, n], axis=n))

    def _linear_sum(self, at: int, stage: Stage) -> Value:
        (x,), parts = self._inputs(stage), []
        given = {
            name: self._table(at, name) for name in stage.form["tables"] if f"t{at}_{name}" in self.tables
        }
        if "weight" in given:
            k = te.reduce_axis((0, int(given["weight"].shape[0])), "k")

            def term(i: Any, w: Any, r: Any) -> Any:
                value = x(i, given["feature"][k] if "feature" in given else k, r)
                product = (value - given["shift"][k] if "shift" in given else value) * given["weight"][k, w]
                if "missing" not in given:
                    return te.sum(product, axis=k)
                return te.sum(tirx.Select(known(value), product, given["missing"][k, w]), axis=k)

            parts.append(self._stage(f"s{at}_numbers", stage.room, term))
        if "entries" in given:
            c = te.reduce_axis((0, int(given["code_feature"].shape[0])), "c")
            entries = given["entries"]

            def entry(i: Any, w: Any, r: Any) -> Any:
                code = _clipped(x(i, given["code_feature"][c], r), given["code_last"][c])
                place = _bounded(given["code_first"][c] + code, int(entries.shape[0]))
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
            # Computed by what takes the smallest, as far as it is needed.
            return self._inputs(stage)[0]
        (x,), points = self._inputs(stage), self._table(at, "points")
        scale = self.tables.get(f"t{at}_scale")
        metric, features = str(stage.form["metric"]), self._width(stage)

        def difference(i: Any, w: Any, r: Any, f: Any) -> Any:
            found = x(i, f, r) - points[f, w]
            return found if scale is None else found * scale[f, w]

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
        """Squared distances as ``|x|**2 + |p|**2 - 2 x p``: half the operations, but small ones cancel."""
        f = te.reduce_axis((0, features), "f")
        own = self._stage(f"s{at}_square", 1, lambda i, w, r: te.sum(x(i, f, r) * x(i, f, r), axis=f))
        g = te.reduce_axis((0, features), "g")
        dot = self._stage(f"s{at}", stage.room, lambda i, w, r: te.sum(x(i, g, r) * points[g, w], axis=g))
        norms = self._table(at, "norms")
        product = next((one for one, distance in self.plan.scaled.items() if distance == at), None)
        if product is not None:
            # The tables hold the factor: of norms, and minus twice of points.
            factor = self._table(self.plan.stages[product].form["inputs"][1], "values")
            times = self._stage(
                f"s{at}_times_square", 1, lambda i, w, r: own(i, 0, r) * factor[0].astype(_type(stage))
            )
            return lambda i, w, r: (times(i, 0, r) + norms[w]) + dot(i, w, r)

        def value(i: Any, w: Any, r: Any) -> Any:
            found = (own(i, 0, r) + norms[w]) - tirx.const(2, _type(stage)) * dot(i, w, r)
            return single.FUNCTIONS["relu"](found) if is_single(stage) else functions.FUNCTIONS["relu"](found)

        return value

    def _top_k(self, at: int, stage: Stage) -> Value:
        (x,), width, k = self._inputs(stage), self._width(stage), int(stage.form["k"])
        if at in self.plan.nearest:
            made = nearest.stages(self.plan, self.plan.nearest[at], k, x, self.tables, self.tiles, f"s{at}")
            return lambda i, w, r: made[i, w, r]
        if self.searches:
            kept = self.plan.stages[stage.form["inputs"][0]].kept
            values = x if kept else self._stage(f"s{at}_values", width, x)
            return self._stage(f"s{at}", 2 * k, nearest.smallest(k, width, self.plan, values))
        infinity = number(float("inf"))

        def value(i: Any, t: Any, r: Any) -> Any:
            found = x(i, t, r)
            return tirx.Select(known(found), found, infinity)

        smallest: list[Value] = []
        places: list[Value] = []
        for n in range(k):
            t = te.reduce_axis((0, width), "t")

            def behind(i: Any, t: Any, r: Any, n: int = n) -> Any:
                if not n:
                    return tirx.const(True, "bool")
                last, place = smallest[n - 1](i, 0, r), places[n - 1](i, 0, r)
                found = value(i, t, r)
                return tirx.any(found > last, tirx.all(found == last, t.astype("float64") > place))

            def least(i: Any, w: Any, r: Any, t: Any = t, behind: Any = behind) -> Any:
                return te.min(tirx.Select(behind(i, t, r), value(i, t, r), infinity), axis=t)

            smallest.append(self._stage(f"s{at}_least{n}", 1, least))
            t = te.reduce_axis((0, width), "t")

            def place(i: Any, w: Any, r: Any, n: int = n, t: Any = t, behind: Any = behind) -> Any:
                here = tirx.all(behind(i, t, r), value(i, t, r) == smallest[n](i, 0, r))
                return te.min(tirx.Select(here, t.astype("float64"), number(width - 1)), axis=t)

            places.append(self._stage(f"s{at}_place{n}", 1, place))

        def found(i: Any, w: Any, r: Any) -> Any:
            every = [*smallest, *places]
            result = every[-1](i, 0, r)
            for n in range(2 * k - 2, -1, -1):
                result = tirx.if_then_else(w == n, every[n](i, 0, r), result)
            return result

        return self._stage(f"s{at}", 2 * k, found)

    def _take(self, at: int, stage: Stage) -> Value:
        (x,), table, count = self._inputs(stage), self._table(at, "table"), self._width(stage)
        last = int(table.shape[0]) - 1

        def value(i: Any, w: Any, r: Any) -> Any:
            place = _clipped(x(i, tirx.indexmod(w, count) if count > 1 else 0, r), number(last))
            return table[place, tirx.indexdiv(w, count)]

        return value

    def _stored(self, at: int, stage: Stage, place: int) -> tuple[Value, int]:
        """An input whose values are in memory, and its width."""
        value, source = self._inputs(stage)[place], self.plan.stages[stage.form["inputs"][place]]
        width = self._width(stage, place)
        # What is stored as float32 is widened in memory.
        return value if source.kept and not is_single(source) else self._stage(
            f"s{at}_given{place}", width, value
        ), width

    def _imputation(self, at: int, stage: Stage) -> Value:
        tables = [self._table(at, name) for name in ("column", "weight", "intercept", "low", "high")]
        steps, width = (int(one) for one in stage.form["tables"]["weight"])
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
        """How many of each column's edges come before a value, as int32; see `Bucketize`."""
        (x,), count, width = self._inputs(stage), int(table.shape[1]), int(stage.form["width"])

        def behind(edge: Any, value: Any) -> Any:
            # False of NaN, which comes behind all edges itself. (What is negated, TVM turns to the opposite
            # comparison, which is false of NaN, too.)
            return edge >= value if left else edge > value

        if count <= _FEW_EDGES:
            e = te.reduce_axis((0, count), "e")
            made = te.compute(
                (self.tiles, width, self.plan.row_tile),
                lambda i, w, r: te.sum(
                    tirx.Select(
                        behind(table[w, e], x(i, w, r)), tirx.const(0, "int32"), tirx.const(1, "int32")
                    ),
                    axis=e,
                ),
                name=f"s{at}_place",
            )
            return lambda i, w, r: made[i, w, r]

        def halved(place: Value, step: int) -> Value:
            def found(i: Any, w: Any, r: Any) -> Any:
                base = place(i, w, r)
                last = base + (step - 1)
                edge = table[w, tirx.min(last, tirx.const(count - 1, "int32"))]
                less = tirx.any(last >= count, behind(edge, x(i, w, r)))
                return base + tirx.Select(less, tirx.const(0, "int32"), tirx.const(step, "int32"))

            return found

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
            f"s{at}", int(stage.form["width"]), lambda i, w, r: place(i, w, r).astype(_type(stage))
        )

    def _interpolate(self, at: int, stage: Stage) -> Value:
        (x,), points, values = self._inputs(stage), self._table(at, "at"), self._table(at, "values")
        count = int(points.shape[1])
        place = self._positions(at, stage, points, False)

        def value(i: Any, w: Any, r: Any) -> Any:
            here = place(i, w, r)
            low = tirx.max(tirx.min(here - 1, tirx.const(count - 2, "int32")), tirx.const(0, "int32"))
            high = tirx.min(low + 1, tirx.const(count - 1, "int32"))
            x0, y0, own = points[w, low], values[w, low], x(i, w, r)
            inner = tirx.div(values[w, high] - y0, points[w, high] - x0) * (own - x0) + y0
            result = tirx.Select(here == 0, values[w, 0], inner)
            result = tirx.Select(here >= count, values[w, count - 1], result)
            return tirx.Select(known(own), result, own)

        return self._stage(f"s{at}", int(stage.form["width"]), value)

    def _lookup(self, at: int, stage: Stage) -> Value:
        (x,) = self._inputs(stage)
        column, first, last, entries = (
            self._table(at, name) for name in ("column", "first", "last", "entries")
        )

        def value(i: Any, w: Any, r: Any) -> Any:
            code = _clipped(x(i, column[w], r), last[w].astype("float64"))
            return entries[_bounded(first[w] + code, int(entries.shape[0]))]

        return value

    def _one_hot(self, at: int, stage: Stage) -> Value:
        (x,), column, code = self._inputs(stage), self._table(at, "column"), self._table(at, "value")
        return lambda i, w, r: truth(x(i, column[w], r) == code[w]).astype(_type(stage))

    def _scores(self) -> Any:
        last = self.plan.stages[-1]
        value, width, dtype = self.native[-1], int(last.form["width"]), self.score_dtype
        tiles, row_tile = self.tiles, self.plan.row_tile
        if stores_by_row(self.plan, width):
            # Stored by rows as they are, block by block (`hbtvm.compiler.lowering.block_stores`).
            columns = (tiles, width, row_tile)
            made = te.compute(columns, lambda i, o, r: value(i, o, r).astype(dtype), name="outputs")
            return te.compute((tiles, row_tile, width), lambda i, r, o: made[i, o, r], name="scores")
        return te.compute(
            (tiles, row_tile, width), lambda i, r, o: value(i, o, r).astype(dtype), name="scores"
        )


_FEW_PASSES = 2
"""Passes over a row tile up to which its values are widened in each of them."""

_FEW_EDGES = 16
"""Edges up to which all of them are compared; beyond, the place is found by halving."""


def is_single(stage: Stage) -> bool:
    """Whether a node is computed in float32 (`hbtvm.strategies.network.single`)."""
    return bool(stage.form.get("single"))


def _type(stage: Stage) -> str:
    return "float32" if is_single(stage) else "float64"


def _first(value: Value) -> Value:
    """The only column, whichever is asked for."""
    return lambda i, w, r: value(i, 0, r)


def _within(k: Any, width: int, terms: int, value: Any) -> Any:
    """A term, or 0 beyond those that count: what pads columns may be anything."""
    return value if terms == width else tirx.if_then_else(k < width, value, number(0))


def _clipped(code: Any, last: Any) -> Any:
    """A code as int32, from 0 to `last`; NaN is 0."""
    positive = tirx.Select(code > number(0), code, number(0))
    return tirx.Select(positive < last, positive, last).astype("int32")


def _bounded(place: Any, count: int) -> Any:
    """A place in a table of so many entries, whatever other tables say."""
    zero, last = tirx.const(0, "int32"), tirx.const(count - 1, "int32")
    return tirx.max(tirx.min(place, last), zero)
