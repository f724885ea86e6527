"""The compiled code of counters of categories."""

from __future__ import annotations

from hbtvm.runtime.native.counters import CounterFunctions
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.native.objects.build import c_compiler, executor_library


def counter_code() -> CounterFunctions:
    """Return the functions of an executor for this machine's architecture."""
    code = load_library(executor_library(c_compiler())).counters
    assert code is not None
    return code
