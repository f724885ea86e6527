"""Functions of one number that C computes, as `hbtvm/native/pointwise/functions.h` lists them."""

from __future__ import annotations

import re

from hbtvm.runtime.native.objects.build import SOURCES

_ROWS = re.findall(r"^  F\((\w+), (EXACT|LIBM),", (SOURCES / "pointwise/functions.h").read_text(), re.M)

NUMBERS = {name: number for number, (name, _) in enumerate(_ROWS)}  # by numpy's names
# Functions whose results equal numpy's to the last bit
EXACT = frozenset(name for name, kind in _ROWS if kind == "EXACT")
