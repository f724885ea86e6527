"""Front ends of transformers: functions from a table of columns to a table."""

from hbtvm.frontends.transformers.dispatch import apply
from hbtvm.frontends.transformers.where import Where

__all__ = ["Where", "apply"]
