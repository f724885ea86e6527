"""Data frames that a transformer was told to give, by ``set_output``."""

from __future__ import annotations

from typing import get_args

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.columns_anchor import Frame


def output_frame(record: Record, table: Table, where: Where) -> Frame | None:
    """The library whose data frames a pipeline's last step gives.

    `record`: the last step.
    `table`: what it makes.
    Returns None for arrays, or sparse matrices. Raises `UnsupportedModel` if it is another library's, or the
    step's output makes no data frame. Raises `ModelError` if it is damaged.
    """
    config = record.get("_sklearn_output_config", None) or {}
    if not isinstance(config, dict):
        raise where.damaged("its _sklearn_output_config is no dictionary.")
    name = config.get("transform")
    if name in (None, "default"):
        return None
    for known in get_args(Frame):
        if name == known:
            break
    else:
        raise where.unsupported(f"gives its output as {name!r:.40}, which is not supported.")
    if table.sparse:
        raise where.unsupported(f"gives sparse rows, of which {name} makes no data frame.")
    if table.names is None:
        raise where.unsupported(
            f"gives a data frame of {name}, but the names of its columns are not known; "
            'compile it after set_output(transform="default").'
        )
    found: Frame = known
    return found
