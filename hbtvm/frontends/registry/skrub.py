"""Transformers of skrub."""

from __future__ import annotations

from hbtvm.frontends.skrub import columns
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("skrub", "skrub"): {
        "TableVectorizer Cleaner": Estimator(
            transforms=columns.table_vectorizer, first=columns.pipeline_of, fitted=False, frames=True
        ),
        "ApplyToCols": Estimator(
            transforms=columns.to_columns, first=columns.wrapped, fitted=False, frames=True
        ),
        "ApplyToSubFrame": Estimator(transforms=columns.together, frames=True),
        "SelectCols DropCols": Estimator(transforms=columns.chosen, rows="names", frames=True),
        "ApplyToEachCol": Estimator(transforms=columns.each_column, frames=True),
        "DatetimeEncoder": Estimator(transforms=columns.datetime_encoder, frames=True),
        "ToDatetime": Estimator(transforms=columns.to_datetime),
        "ToFloat": Estimator(transforms=columns.to_float, frames=True),
        "CleanNullStrings": Estimator(transforms=columns.null_strings),
        "DropUninformative": Estimator(transforms=columns.dropped, frames=True),
        "Drop": Estimator(transforms=columns.dropped, fitted=False),
        "CheckInputDataFrame CleanCategories PassThrough ToStr": Estimator(
            transforms=columns.same, fitted=False, frames=True
        ),
    },
}
