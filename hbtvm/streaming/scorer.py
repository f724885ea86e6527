"""`Scorer`: predicts Arrow batches into Arrow batches with named columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from hbtvm.errors import InputError
from hbtvm.runtime.explaining.contributions import CONTRIBUTIONS, contribution_names, contributions
from hbtvm.runtime.feeds.file_columns import columns_of
from hbtvm.runtime.host import Output
from hbtvm.runtime.model import Model, load
from hbtvm.streaming.categories import codes, numbers_of
from hbtvm.streaming.matching import category_types, positions, some
from hbtvm.streaming.outputs import column_names, table_of

BATCH = 1 << 15  # rows predicted at a time, so that intermediate results stay in a cache and memory is reused
TRANSFORM = "transform"  # the output of a pipeline whose last step transforms


class Scorer:
    """Predicts batches of one schema.

    Parameters
    ----------
    model
        A loaded model, or the path of its package (see `hbtvm.load`).
    schema
        Schema of the rows, ``pyarrow.Schema``.
    output
        As for `hbtvm.Model.predict`, ``"transform"``, or ``"contributions"`` for the Shapley values of all
        columns and the base value (of packages that were compiled with ``explain=True``); None for the output
        of ``predict``.
    keep
        Names of columns, such as ids, that are copied to the result in front of the predictions. A model
        without column names does not read them.
    drop
        Names of other columns that a model without column names does not read.
    threads
        As for `hbtvm.load`, if the model is loaded here.

    Attributes
    ----------
    model
        The model.
    columns
        Names of the columns to read, each once. Batches may have only these, or all of the schema.
    schema
        Schema of the result.

    Raises
    ------
    InputError
        If columns are missing, or the model has no such output.
    PackageError
        As for `hbtvm.load`.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        schema: pa.Schema,
        output: str | None = None,
        *,
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        threads: int | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else load(model, threads=threads)
        of, self._predict, _ = _method(self.model, output)
        self._result, self._outputs = of.package.output, output_fields(self.model, output)
        names = list(schema.names)
        for name in (*keep, *drop):
            if name not in names:
                raise InputError(f"there is no column {name!r}; there are {some(names)}.")
        package, reader = self.model.package, self.model.pipeline
        spec = package.input
        read: Sequence[int] = range(spec.n_features)
        if reader is not None:
            reader_columns = columns_of(reader)
            read = range(spec.n_features) if not spec.by_name else reader_columns.of
        self._own = [names[i] for i in positions(names, spec, read, {*keep, *drop})]
        self._keep = list(keep)
        self.columns = list(dict.fromkeys([*self._keep, *self._own]))
        if spec.category_order and reader is None:
            typed, words = category_types(schema)
            sure = [i for i, name in enumerate(self._own) if name in typed or name in words]
            spec = spec.placed(sure, [i for i in sure if self._own[i] in words])
            self._numbers = {index for index, known in spec.categories.items() if known}
        else:
            self._numbers = numbers_of(spec) if reader is None else set()
        self._spec = spec
        # Names by which a pipeline finds its columns.
        self._known = None
        if reader is not None and spec.feature_names is not None and spec.by_name:
            self._known = [spec.feature_names[i] for i in read]
        self.schema = self._schema(schema)

    def _schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the result's schema: kept columns, then outputs."""
        outputs = [field.name for field in self._outputs]
        repeated = set(outputs) & set(self._keep)
        if repeated:
            raise InputError(f"column {min(repeated)!r} would occur twice, kept and predicted.")
        return pa.schema([*(schema.field(name) for name in self._keep), *self._outputs])

    def __call__(self, batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        """Predict a batch.

        Raises
        ------
        InputError
            If a value does not fit the model.
        """
        if not batch.num_rows:
            return pa.record_batch([pa.array([], field.type) for field in self.schema], schema=self.schema)
        if isinstance(batch, pa.Table):
            batches = batch.to_batches(BATCH)
        else:
            batches = [batch.slice(start, BATCH) for start in range(0, batch.num_rows, BATCH)]
        table = pa.Table.from_batches([self._scored(part) for part in batches]).combine_chunks()
        return table.to_batches()[0]

    def _scored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = [batch.column(name) for name in self._keep]
        predicted = table_of(self._predict(self._rows(batch)), self._result)
        flat = predicted[:, None] if predicted.ndim == 1 else predicted
        outputs = [
            pa.array(np.ascontiguousarray(flat[:, i]), field.type, from_pandas=False)
            for i, field in enumerate(self._outputs)
        ]
        return pa.record_batch([*kept, *outputs], schema=self.schema)

    def _rows(self, batch: pa.RecordBatch) -> Any:
        """Return the batch as the model's input."""
        columns = batch.select(self._own)
        if not self._numbers:
            return columns if self._known is None else columns.rename_columns(self._known)
        rows = np.empty((columns.num_rows, columns.num_columns), object)
        for i in range(columns.num_columns):
            values = columns.column(i).to_pylist()
            rows[:, i] = codes(values, self._spec, i) if i in self._numbers else values
        return rows


def output_fields(model: Model, output: str | None) -> list[pa.Field]:
    """Return names and types of the columns of predictions.

    `output`: as for `Scorer`.
    Raises `InputError` if the model has no such output.
    """
    of, _, name = _method(model, output)
    if output == CONTRIBUTIONS:
        return [pa.field(column, pa.float64()) for column in contribution_names(model)]
    result, table = of.package.output, of.package.parts.table
    example = table_of(of.example(name), result)
    if table is not None and table.names is not None:
        names = list(table.names)
    else:
        names = column_names(result, name, example.shape)
    kind = pa.string() if example.dtype.kind in "OUST" else pa.from_numpy_dtype(example.dtype)
    return [pa.field(column, kind) for column in names]


def _method(model: Model, output: str | None) -> tuple[Model, Any, Output | None]:
    """Return the model that predicts, its method, and the output."""
    package = model.package
    if package.recursion is not None:
        raise InputError("this model takes trees or graphs, which tables cannot hold.")
    if output == TRANSFORM or package.transforms:
        part = model if package.transforms else model.beside
        if part is None or output not in (None, TRANSFORM):
            raise InputError(f"{package.model} has no output {output!r}.")
        return part, part.transform, None
    if output == CONTRIBUTIONS:
        view = contributions(model)
        return view, view.predict, None
    available = package.output.outputs
    if output is not None and output not in available:
        raise InputError(f"there is no output {output!r}; there are {', '.join(available) or 'none'}.")
    return model, partial(model.predict, output=output), output
