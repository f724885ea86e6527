"""Pickles read as data: no class or function that a file names is ever imported or called.

A pickle is a small program for a stack machine. `operations` runs that program over inert values only: plain
Python values, numpy arrays (`arrays`), and a `Record` for every object of a class, which keeps the class's
name, its arguments and its state. `source` reads plain and compressed files, and bounds their expansion.
Objects in memory are pickled by their libraries and then read in the same way (`live`).
"""

from hbtvm.frontends.pickles.live import from_live
from hbtvm.frontends.pickles.load import MAX_BYTES, load
from hbtvm.frontends.pickles.records import Global, ObjectArray, Record

__all__ = ["MAX_BYTES", "Global", "ObjectArray", "Record", "from_live", "load"]
