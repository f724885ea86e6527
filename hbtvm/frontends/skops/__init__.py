"""Files of skops, a zip archive of a tree of objects, read as the inert values that pickles become."""

from hbtvm.frontends.skops.load import load

__all__ = ["load"]
