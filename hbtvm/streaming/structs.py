"""`StructScorer`: predicts Arrow structs, in which query engines hand over rows."""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pyarrow as pa

from hbtvm.runtime.feeds.file_columns import columns_of
from hbtvm.runtime.model import Model, load
from hbtvm.streaming.scorer import Scorer, output_fields

_SCHEMAS = 16  # schemas whose scorers are kept


class StructScorer:
    """Predicts an array of structs, one per row, as one array. Several threads may call it at once.

    Parameters
    ----------
    model, output, threads
        As for `hbtvm.streaming.scorer.Scorer`; the model may also be its package's content.

    Attributes
    ----------
    name, type
        Name and type of the result: the output's column, or a struct of its columns if it has several.
    columns
        Names of the columns to read, in the order of training; their numbers if they have no names.

    Raises
    ------
    InputError
        If the model has no such output.
    PackageError
        As for `hbtvm.load`.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str] | bytes,
        output: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else load(model, threads=threads)
        self._output = output
        fields = output_fields(self.model, output)
        self._single = len(fields) == 1
        self.name: str = fields[0].name if self._single else output or "prediction"
        self.type: pa.DataType = fields[0].type if self._single else pa.struct(fields)
        self.columns = _columns(self.model)
        self._scorer = lru_cache(_SCHEMAS)(self._scorer_of)

    def _scorer_of(self, schema: pa.Schema) -> Scorer:
        return Scorer(self.model, schema, self._output)

    def __call__(self, rows: pa.StructArray) -> pa.Array:
        """Predict structs; null structs give null, null fields are missing values.

        Raises
        ------
        InputError
            If fields are missing, or a value does not fit the model.
        """
        if not rows.null_count:
            return self._predict(rows)
        present = rows.is_valid().to_numpy(zero_copy_only=False)
        at = pa.array(np.cumsum(present) - 1, mask=~present)
        return self._predict(rows.drop_null()).take(at)

    def _predict(self, rows: pa.StructArray) -> pa.Array:
        columns = [_plain(column) for column in rows.flatten()]
        batch = pa.RecordBatch.from_arrays(columns, names=[field.name for field in rows.type])
        predicted = self._scorer(batch.schema)(batch)
        if self._single:
            return predicted.column(0)
        return pa.StructArray.from_arrays(predicted.columns, fields=list(self.type))


def _columns(model: Model) -> list[str]:
    spec, reader = model.package.input, model.pipeline
    if reader is not None and spec.by_name:
        spec = columns_of(reader).spec
    return [str(i) for i in range(spec.n_features)] if spec.feature_names is None else [*spec.feature_names]


def _plain(column: pa.Array) -> pa.Array:
    """Return decimals, which queries make of literals and sums, as floats."""
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
