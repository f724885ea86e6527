"""Front ends of transformers: short functions that turn a table of columns into another one."""

from hbtvm.frontends.transformers.dispatch import apply
from hbtvm.frontends.transformers.where import Where

__all__ = ["Where", "apply"]
