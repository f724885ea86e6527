"""Results of pipelines whose last step transforms: kernels or host, and the type of numbers."""

from __future__ import annotations

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.typed import kind_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.kernel_input import Coded, resolve
from hbtvm.graph.columns.steps import Above, Fill, IsMissing
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, Table, parts_of
from hbtvm.graph.networks.inlined import made_by_nodes
from hbtvm.graph.networks.network import Computed
from hbtvm.graph.networks.step_nodes import has_node


def by_kernels(table: Table, numbers: bool = False) -> bool:
    """Whether kernels compute all columns: numbers for certain, each with operators.

    `table`: what the pipeline returns.
    `numbers`: whether columns that are returned as they come are numbers, though nothing checks them.
    """
    if table.sparse and not needs_kernels(table):
        return False
    raws = {
        column.source
        for column in _read(table)
        if isinstance(column.source, Raw)
        and (_numeric(column) or (numbers and all(map(has_node, column.steps))))
    }
    return all(_has_operators(column, column.source in raws) for column in table.columns)


def needs_kernels(table: Table) -> bool:
    """Return whether packages lack the parts for numpy to compute some columns."""
    # All columns of an operation are alike in this, and there may be a million of them.
    parts = (part[:1] if isinstance(part, AllColumns) else part for part in parts_of(table.columns))
    return any(_network(column) is not None for part in parts for column in part)


def _read(table: Table) -> list[Column]:
    """Yield all columns of a table, and of the networks behind it."""
    read, networks = list(table.columns), set()
    for column in read:
        network = _network(column)
        if network is not None and id(network) not in networks:
            networks.add(id(network))
            read.extend(network.inputs.columns)
    return read


def _network(column: Column) -> Computed | None:
    """Return the network that computes a column; None for other columns."""
    operation = column.source.operation if isinstance(column.source, Made) else None
    return operation if isinstance(operation, Computed) else None


def _numeric(column: Column) -> bool:
    """Whether a column is checked for numbers, so that its values can't be texts."""
    first = column.steps[0] if column.steps else None
    return not column.allow_inf and not isinstance(first, IsMissing) and all(map(has_node, column.steps))


def _has_operators(column: Column, numeric: bool) -> bool:
    if isinstance(column.source, Made):
        return made_by_nodes(column)
    if isinstance(resolve(column), Coded):
        return True
    return numeric and all(map(has_node, column.steps))


def result_dtype(table: Table) -> str | None:
    """Return the columns' common type: None for float64, ``"float32"``, or ``"rows"`` for the rows' type."""
    kinds = {kind_of(column) for column in table.columns}
    if kinds & {"float64", "weak"}:
        return None
    return "rows" if "input" in kinds else "float32"


def of_numbers(model: Record) -> bool:
    """Whether a transformer returns numbers even in columns that it neither changes nor checks.

    Variances are those of numbers, though any values pass the selector once it is fitted; and estimators that
    are stacked read numbers. So do Spark's stages that make vectors.
    """
    kinds = ("VarianceThreshold", "StackingClassifier", "StackingRegressor")
    return model.library == "pyspark" or model.is_a("sklearn", *kinds)


def keeps_integers(table: Table) -> bool:
    """Return whether the library returns integers for integers: it fills, compares or marks values."""
    if isinstance(table.columns, AllColumns) or not any(column.steps for column in table.columns):
        return False
    steps = [step for column in table.columns for step in column.steps]
    kept = all(
        isinstance(step, Above | IsMissing) or (isinstance(step, Fill) and step.keeps_integers)
        for step in steps
    )
    # Marks alone are bools.
    return (
        kept
        and all(isinstance(column.source, Raw) for column in table.columns)
        and not all(any(isinstance(step, IsMissing) for step in column.steps) for column in table.columns)
    )


def gives_labels(model: Record) -> bool:
    """Return whether ``transform`` returns integers: positions of labels, or marks of them."""
    if model.is_a("sklearn", "LabelBinarizer"):
        return True
    if model.is_a("sklearn", "VotingClassifier"):
        return model.text("voting") == "hard"
    if not model.is_a("sklearn", "StackingClassifier") or model.get("passthrough", False):
        return False
    return all(method == "predict" for method in model.sequence("stack_method_"))


def selected(model: Record, table: Table, where: Where) -> tuple[int, ...]:
    """Return the input's columns that a selector keeps, if they have no steps; else an empty tuple."""
    if not where.how(model).selects:
        return ()
    sources = [None if column.steps else column.source for column in table.columns]
    kept = tuple(source.index for source in sources if isinstance(source, Raw))
    return kept if len(kept) == len(sources) else ()
