"""Stages of a network's expressions: inputs, constants, elementwise operators and the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cpu.steps import transposed_lanes
from hbtvm.schedules.network.plan import Plan, Stage, passes, stores_by_row
from hbtvm.strategies.columns import placeholder, transposed_tile
from hbtvm.strategies.network import functions, single
from hbtvm.strategies.network.functions import number

Value = Callable[[Any, Any, Any], Any]  # from tile, column and row to a node's value


class Stages:
    """Builds the expressions of one plan.

    `dtype`, `features`: type and width of the rows.
    `arguments`: the tables, in order.
    `score_dtype`: type of the scores.
    """

    searches = True  # whether `hbtvm.compiler.lowering.nearest.search` finds the smallest values row by row

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
        """Return the `PrimFunc`."""
        for at, stage in enumerate(self.plan.stages):
            value = self._node(at, stage)
            self.native.append(value)
            self.values.append(self._widened(at, stage, value) if is_single(stage) else value)
        return te.create_prim_func([self.rows, *self.tables.values(), self._scores()])

    def _table(self, at: int, name: str) -> Any:
        return self.tables[f"t{at}_{name}"]

    def _stage(self, name: str, width: int, value: Value) -> Value:
        """Store values in a stage."""
        # TVM counts a function's parameters, defaults included, so wrap `value`.
        tensor = te.compute(
            (self.tiles, width, self.plan.row_tile), lambda i, w, r: value(i, w, r), name=name
        )
        return lambda i, w, r: tensor[i, w, r]

    def _node(self, at: int, stage: Stage) -> Value:
        kind = str(stage.form["kind"])
        build: Callable[[int, Stage], Value] = getattr(self, f"_{kind}")
        value = build(at, stage)
        if kind in ("elementwise", "concat", "lookup", "one_hot", "monomials", "take") and stage.kept:
            return self._stage(f"s{at}", stage.room, value)
        return value

    def _inputs(self, stage: Stage) -> list[Value]:
        # (A node that rounds may read either type.)
        if not is_single(stage):
            return [self.values[source] for source in stage.form["inputs"]]
        return [self._narrow(source) for source in stage.form["inputs"]]

    def _narrow(self, at: int) -> Value:
        """Return a node's values as float32."""
        value = self.native[at]
        if is_single(self.plan.stages[at]):
            return value
        return lambda i, w, r: value(i, w, r).astype("float32")

    def _width(self, stage: Stage, place: int = 0) -> int:
        return int(self.plan.stages[stage.form["inputs"][place]].form["width"])

    def _input(self, at: int, stage: Stage) -> Value:
        plan, rows = self.plan, self.rows
        if not plan.by_rows or plan.lanes == 1:
            return lambda i, w, r: rows[i, r, w].astype(stage_type(stage))
        block = transposed_lanes(plan.lanes, str(rows.dtype))
        columns = transposed_tile(rows, block, "columns")
        if is_single(stage) or str(rows.dtype) == "float64":
            return lambda i, w, r: columns[i, w, r]
        return self._widened(at, stage, lambda i, w, r: columns[i, w, r])

    def _widened(self, at: int, stage: Stage, value: Value) -> Value:
        """Return float32 values as float64; a transposed tile is widened once, in a stage."""

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
            operand if self._width(stage, place) > 1 or width == 1 else first_value(operand)
            for place, operand in enumerate(self._inputs(stage))
        ]
        if name == "normal_quantile":
            root = self._stage(
                f"s{at}_root",
                stage.room,
                lambda i, w, r: functions.tail_root(values[0](i, w, r), self.functions["log"]),
            )
            return lambda i, w, r: functions.normal_quantile(values[0](i, w, r), root(i, w, r))
        if name in ("power", "cbrt") and name not in self.functions:
            # Two stages avoid a logarithm nested in an exponential.
            log = self._stage(
                f"s{at}_log", stage.room, lambda i, w, r: functions.log_of_size(values[0](i, w, r))
            )
            if name == "cbrt":
                return lambda i, w, r: functions.root(values[0](i, w, r), log(i, w, r))
            return lambda i, w, r: functions.raised(values[0](i, w, r), values[1](i, w, r), log(i, w, r))
        function = single.FUNCTIONS[name] if is_single(stage) else self.functions[name]
        return lambda i, w, r: function(*(operand(i, w, r) for operand in values))

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
                part_value = part(i, w - first if first else w, r)
                result = (
                    part_value if result is None else tirx.if_then_else(w < first + width, part_value, result)
                )
            return result

        return value

    def _scores(self) -> Any:
        last = self.plan.stages[-1]
        value, width, dtype = self.native[-1], int(last.form["width"]), self.score_dtype
        tiles, row_tile = self.tiles, self.plan.row_tile
        if stores_by_row(self.plan, width):
            # `hbtvm.compiler.lowering.block_stores` stores them by rows, block by block.
            columns = (tiles, width, row_tile)
            outputs = te.compute(columns, lambda i, o, r: value(i, o, r).astype(dtype), name="outputs")
            return te.compute((tiles, row_tile, width), lambda i, r, o: outputs[i, o, r], name="scores")
        return te.compute(
            (tiles, row_tile, width), lambda i, r, o: value(i, o, r).astype(dtype), name="scores"
        )


_FEW_PASSES = 2  # up to this many passes over a row tile, each pass widens its values


def is_single(stage: Stage) -> bool:
    """Whether a node is computed in float32 (`hbtvm.strategies.network.single`)."""
    return bool(stage.form.get("single"))


def stage_type(stage: Stage) -> str:
    return "float32" if is_single(stage) else "float64"


def first_value(value: Value) -> Value:
    """Return a function that reads the only column for any column number."""
    return lambda i, w, r: value(i, 0, r)


def within(k: Any, width: int, terms: int, value: Any) -> Any:
    """Return a term, or 0 for padding columns, whose values are undefined."""
    return value if terms == width else tirx.if_then_else(k < width, value, number(0))


def clipped(code: Any, last: Any) -> Any:
    """Return a code as int32, clipped to 0 and `last`; NaN becomes 0."""
    positive = tirx.Select(code > number(0), code, number(0))
    return tirx.Select(positive < last, positive, last).astype("int32")


def bounded(place: Any, count: int) -> Any:
    """Clip a place to a table of `count` entries."""
    zero, last = tirx.const(0, "int32"), tirx.const(count - 1, "int32")
    return tirx.max(tirx.min(place, last), zero)
