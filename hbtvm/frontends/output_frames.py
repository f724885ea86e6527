"""Data frames as a transformer's output, by ``set_output``."""

from __future__ import annotations

from typing import cast, get_args

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.columns_anchor import Frame


def output_frame(record: Record, table: Table, where: Where) -> Frame | None:
    """Return the library of the data frames that a pipeline's last step returns; None for arrays.

    `record`: the last step.
    `table`: its output.
    Raises `UnsupportedModel` for other libraries, and for output that has no data frame. Raises `ModelError`
    if it is damaged.
    """
    config = record.get("_sklearn_output_config", None) or {}
    if not isinstance(config, dict):
        raise where.damaged("its _sklearn_output_config is not a dictionary.")
    name = config.get("transform")
    if name in (None, "default"):
        return "pandas" if where.how(record).frames and record.get("return_df", True) else None
    if name not in get_args(Frame):
        raise where.unsupported(f"returns its output as {name!r:.40}, which is not supported.")
    if table.sparse:
        raise where.unsupported(f"returns sparse rows, which data frames of {name} can't hold.")
    if table.names is None:
        raise where.unsupported(
            f"returns a data frame of {name}, but the names of its columns are unknown; "
            'compile it after set_output(transform="default").'
        )
    return cast(Frame, name)
