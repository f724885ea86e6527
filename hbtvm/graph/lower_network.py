"""From operators over tables to kernels over feeds.

Products of a table's columns absorb scalers, imputers and encoders (`fold_linear`), and so do trees
(`trees.fold`); other readers of tables get nodes for the steps in front of them. A network of an earlier step
(`Computed`) is inlined. Trees, and networks in front of trees, have separate kernels (`Stage`), whose scores
are further columns of the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.kernel_input import Feeds
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.steps import Encode
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, RowOperation, Table
from hbtvm.graph.columns.text import Vectorize
from hbtvm.graph.networks import fold_linear
from hbtvm.graph.networks.apart import mixes, rounded_apart, table_compares_apart
from hbtvm.graph.networks.fold_text import vectorizer_of
from hbtvm.graph.networks.inlined import normalized
from hbtvm.graph.networks.network import Computed, Network, TableRows, Trees, leaves
from hbtvm.graph.networks.scope import is_computed, simplified
from hbtvm.graph.networks.step_nodes import has_node, rows_of
from hbtvm.graph.passes import simplify
from hbtvm.graph.stages import Stage
from hbtvm.graph.trees import fold as fold_trees
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import Scaled
from hbtvm.operators.base import Input, Leaf, Node, in_order, rewrite
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.rounding import loosened
from hbtvm.operators.shapes import select
from hbtvm.words.quantities import count


@dataclass(frozen=True, eq=False)
class _Rows(Leaf):
    """The kernel's rows, while their number of columns is unknown."""

    kind = "rows"

    @property
    def width(self) -> int:
        return 1 << 30


@dataclass(frozen=True, eq=False)
class _Scores(Leaf):
    """A stage's scores, while their columns of the matrix are unknown."""

    stage: int
    columns: int
    kind = "scores"

    @property
    def width(self) -> int:
        return self.columns


@dataclass(frozen=True, eq=False)
class _OfStage(RowOperation):
    """A stage's scores as columns of a table."""

    stage: int
    width: int
    inputs = Table(())

    def reference(self, x: np.ndarray) -> np.ndarray:
        raise ValueError("a stage's kernel computes its values")


@dataclass(frozen=True)
class _Forest:
    """Trees over feeds (their indices) and columns of stages (pairs of stage and column)."""

    anchor: TreeEnsemble
    single: TreeEnsemble | None
    scaled: Scaled | None
    reads: tuple[int | tuple[int, int], ...]


@dataclass(frozen=True)
class Lowered:
    """Kernels over feeds, and the rewrites in sentences."""

    # `feeds`, `stages`: the columns of the matrix: the feeds, and behind them each stage's scores
    feeds: Feeds
    # `anchor`, `single`, `columns`: the last kernel, as in `Stage`
    anchor: Network | TreeEnsemble
    rewrites: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    columns: tuple[int, ...] = ()
    single: TreeEnsemble | Network | None = None


def lower_types(
    output: Node, names: Sequence[str] | None, raw: Table | None = None, narrow: bool = False
) -> Lowered:
    """Lower a network as `lower`, for rows of both types.

    Float32 rows need another network if a step compares them with another number than float64 rows, if trees
    read rounded columns beside computed ones, or if `narrow`: the result is rounded as the library rounds it.
    Beside trees, a separate stage does such comparisons, so that it reads the caller's rows.
    """
    apart = any(table_compares_apart(leaf.table, set()) for leaf in leaves(output))
    apart = apart or any(map(mixes, in_order(output)))
    wide = lower(output, names, raw)
    if not apart and (not narrow or wide.stages):
        return wide
    staged = bool(wide.stages)
    if staged:
        wide = lower(output, names, raw, staged=True)
    other = lower(output, names, raw, narrow=True, staged=staged)
    stages = tuple(map(_with_single, wide.stages, other.stages))
    final = _with_single(Stage(wide.anchor, (), wide.single), Stage(other.anchor, ()))
    assert _kinds(wide) == _kinds(other)
    return replace(wide, stages=stages, single=final.single)


def _kinds(lowered: Lowered) -> list[tuple[type, int, list[type]]]:
    """Return what tells feeds apart; operations and steps that a lowering creates compare by identity."""
    feeds = lowered.feeds.feeds
    return [(type(feed.source), feed.source.index, list(map(type, feed.steps))) for feed in feeds]


def _with_single(wide: Stage, narrow: Stage) -> Stage:
    return replace(wide, single=narrow.anchor) if isinstance(wide.anchor, Network) else wide


def lower(
    output: Node,
    names: Sequence[str] | None,
    raw: Table | None = None,
    narrow: bool = False,
    staged: bool = False,
) -> Lowered:
    """Return the network that reads feeds in place of tables.

    `output`: the scores, over `TableRows`. For `Trees`, the scores' reader applies base score and divisor.
    `names`: names of the input's columns, for errors.
    `raw`: the input itself: each of its columns is fed, in order.
    `narrow`: as in `hbtvm.graph.networks.step_nodes.rows_of`.
    `staged`: whether a stage computes a table that compares float32 rows apart (see `lower_types`).
    """
    lowering = _Lowering(Feeds(names), narrow, staged)
    if raw is not None:
        for column in raw.columns:
            lowering.feeds.number(column, True, True)
    last = lowering.forest(output) if isinstance(output, Trees) else lowering.run(output)
    feeds = lowering.feeds
    if not feeds.feeds:
        # Kernels read at least one column: a code that is always 0.
        feeds.codes(Raw(0), (Encode((), "code"),))
    stages: list[Stage] = []
    for i, work in enumerate((*lowering.stages, last)):
        stages.append(lowering.stage(work, i))
    final = stages.pop()
    if not stages and isinstance(final.anchor, TreeEnsemble):
        final = _over_all(final, len(feeds.feeds))
    return Lowered(
        feeds,
        final.anchor,
        tuple(lowering.rewrites),
        tuple(stages),
        final.columns if stages else (),
        final.single,
    )


class _Lowering:
    def __init__(self, feeds: Feeds, narrow: bool, staged: bool) -> None:
        self.feeds, self.rows, self._narrow, self._staged_leaves = feeds, _Rows(), narrow, staged
        self.stages: list[Node | _Forest] = []
        self.rewrites: list[str] = []
        self._operations: dict[int, tuple[RowOperation, Node]] = {}

    def run(self, output: Node, decides: bool = False) -> Node:
        """Replace all tables of a node; `decides`: whether the reader of the node compares it."""
        if not self._narrow:
            output = loosened(output, decides)
        # Trees and products first: the steps that they absorb must not be computed as well.
        (output,), rewrites = simplify([simplified(output)])
        self._add_rewrites(rewrites)
        (absorbed,) = rewrite([output], self._reader)
        result = rewrite([absorbed], self._leaf)[0]
        return result if self._narrow else loosened(result, decides)

    def _add_rewrites(self, rewrites: Sequence[str]) -> None:
        self.rewrites += [sentence for sentence in rewrites if sentence not in self.rewrites]

    def stage(self, work: Node | _Forest, before: int) -> Stage:
        """Return a kernel's work, once all feeds are known; `before`: number of stages in front of it."""
        first = len(self.feeds.feeds) + np.cumsum([0, *map(_width, self.stages)])
        if isinstance(work, _Forest):
            columns = [at if isinstance(at, int) else int(first[at[0]]) + at[1] for at in work.reads]
            return Stage(work.anchor, tuple(columns), work.single, work.scaled)
        # Consecutive columns, so that rows are mostly read in place. Without stages, even constants read the
        # feeds.
        nodes = in_order(work)
        fed = not before or any(isinstance(node, _Rows) for node in nodes)
        start, end = 0 if fed else len(self.feeds.feeds), int(first[before])
        if fed and not any(isinstance(node, _Scores) for node in nodes):
            # A kernel that reads the caller's rows alone may read them in their type.
            end = len(self.feeds.feeds)
        rows = Input(end - start)

        def change(node: Node) -> Node:
            if isinstance(node, _Scores):
                at = int(first[node.stage]) - start
                return select(rows, range(at, at + node.columns))
            return rows if isinstance(node, _Rows) else node

        (changed,), _ = simplify(rewrite([work], change))
        return Stage(Network(rows.width, changed), tuple(range(start, start + rows.width)))

    def forest(self, trees: Trees) -> _Forest:
        """Return trees over feeds and stages' columns; the steps in front of them move into them."""
        leaf = trees.x
        if isinstance(leaf, TableRows):
            table, allow_nan, allow_inf = leaf.table, leaf.allow_nan, leaf.allow_inf
            computed = [i for i, column in enumerate(table.columns) if is_computed(column.source)]
            if computed:
                columns = list(table.columns)
                # Behind stages, kernels read float64: a stage that reads the rows alone rounds float32 rows.
                rounded = [i for i, column in enumerate(columns) if rounded_apart(column)]
                for group in filter(None, (computed, rounded)):
                    some, refuses = [columns[i] for i in group], (allow_nan, allow_inf)
                    rows = rows_of(some, self.feeds, self.rows, self._node_of, *refuses, self._narrow)
                    for i, column in zip(group, self._staged(rows), strict=True):
                        columns[i] = column
                table = Table(tuple(columns))
        else:
            allow_nan = allow_inf = True
            table = Table(self._staged(self.run(leaf, decides=True)))
        folded = fold_trees.fold(table, trees.ensemble, None, allow_nan, allow_inf)
        self._add_rewrites(folded.rewrites)
        reads = tuple(self._read(feed) for feed in folded.feeds.feeds)
        return _Forest(folded.anchor, folded.single, folded.scaled, reads)

    def _read(self, feed: Feed) -> int | tuple[int, int]:
        source = feed.source
        if isinstance(source, Made) and isinstance(source.operation, _OfStage):
            return source.operation.stage, source.index
        return self.feeds.merge(feed)

    def _staged(self, output: Node) -> tuple[Column, ...]:
        """Return the columns of a network as columns of a table, computed by a stage."""
        if isinstance(output, _Scores):
            operation = _OfStage(output.stage, output.columns)
        else:
            self.stages.append(output)
            operation = _OfStage(len(self.stages) - 1, output.width)
        return tuple(Column(Made(operation, i)) for i in range(output.width))

    def _reader(self, node: Node) -> Node:
        if isinstance(node, Trees):
            return self._scores(node)
        return self._product(node)

    def _scores(self, trees: Trees) -> Node:
        ensemble = trees.ensemble
        plain = replace(ensemble, divisor=1.0, base_score=np.zeros(ensemble.n_outputs))
        self.stages.append(self.forest(trees.on_ensemble(plain)))
        scores: Node = _Scores(len(self.stages) - 1, ensemble.n_outputs)
        if ensemble.divisor != 1.0:
            scores = apply("divide", scores, ensemble.divisor)
        return apply("add", scores, ensemble.base_score) if ensemble.base_score.any() else scores

    def _product(self, node: Node) -> Node:
        if not isinstance(node, Contract) or not isinstance(node.x, TableRows):
            return node
        leaf, columns = node.x, node.x.table.columns
        if isinstance(columns, AllColumns) and isinstance(columns.operation, Vectorize):
            chosen = list(range(len(columns)))
        else:
            chosen = [i for i, column in enumerate(columns) if _folds(column)]
        if not chosen:
            return node
        others = np.ones(len(columns), bool)
        others[chosen] = False
        rest = np.flatnonzero(others).tolist()
        absorbed = leaf.table.select(chosen) if rest else leaf.table
        folded = fold_linear.fold(
            absorbed, node.weight[chosen], np.zeros(node.width), None, leaf.allow_nan, self.feeds
        )
        linear = folded.anchor
        self._add_rewrites(folded.rewrites)
        total: Node = linear.sums.on(self.rows)
        if rest:
            remaining = TableRows(leaf.table.select(rest), leaf.allow_nan, leaf.allow_inf)
            total = apply("add", total, Contract(remaining, node.weight[rest]))
        return apply("add", total, linear.base_score) if linear.base_score.any() else total

    def _leaf(self, node: Node) -> Node:
        if not isinstance(node, TableRows):
            return node
        before = len(self.feeds.feeds)
        result = rows_of(
            node.table.columns,
            self.feeds,
            self.rows,
            self._node_of,
            node.allow_nan,
            node.allow_inf,
            self._narrow,
        )
        hosted = sum(bool(feed.steps) and feed.encoder is None for feed in self.feeds.feeds[before:])
        if hosted:
            self.rewrites.append(f"{count(hosted, 'column')} computed by numpy before the kernel")
        if self._staged_leaves and table_compares_apart(node.table, set()):
            self.stages.append(result)
            return _Scores(len(self.stages) - 1, result.width)
        return result

    def _node_of(self, source: Made) -> tuple[Node, int] | None:
        operation = source.operation
        if not isinstance(operation, Computed | Normalize):
            return None
        if id(operation) not in self._operations:
            output = operation.output if isinstance(operation, Computed) else normalized(operation)
            self._operations[id(operation)] = operation, self.run(output, decides=True)
        return self._operations[id(operation)][1], source.index


def _folds(column: Column) -> bool:
    """Return whether a product absorbs a column, or numpy computes it in any case."""
    if isinstance(column.source, Made) and vectorizer_of(column.source) is None:
        return False
    return fold_linear.absorbs(column) or not all(map(has_node, column.steps))


def _over_all(stage: Stage, width: int) -> Stage:
    """Return trees that read all columns, as a single kernel does, from trees that read some."""
    assert isinstance(stage.anchor, TreeEnsemble)
    place = np.array(stage.columns, np.int32)

    single = stage.single.over(place, width) if isinstance(stage.single, TreeEnsemble) else None
    return Stage(stage.anchor.over(place, width), (), single)


def _width(work: Node | _Forest) -> int:
    return work.anchor.n_outputs if isinstance(work, _Forest) else work.width
