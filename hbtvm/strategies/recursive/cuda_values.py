"""Expressions of a node's values on GPUs, a number at a time, with CUDA's functions."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.schedules.statements import scratch
from hbtvm.strategies.recursive.functions import Functions
from hbtvm.strategies.recursive.vectors import Vectors


class DeviceFunctions(Functions):
    """As `Functions`; CUDA's functions are correct to the last bit or two."""

    def shared(self, value: Any, name: str = "v") -> Any:
        """A name for a value that is used more than once.

        Numbers of float32 go to an array of one, which becomes a register: simplifying a function, TVM puts
        what variables stand for in their places, and values of values would grow without bounds.
        """
        if str(value.ty.dtype) != "float32":
            return super().shared(value, name)
        if isinstance(value, ir.TensorLoad) and str(value.source.name) == _REGISTER:
            return value
        memory = scratch(_REGISTER, 1, "float32")
        self.statements += [*memory.made(), memory.store(value, tirx.const(0, "int64"))]
        return memory.load(tirx.const(0, "int64"))

    def tanh(self, x: Any) -> Any:
        return _function("tanhf", x)

    def exp(self, x: Any) -> Any:
        return _function("expf", x)

    def sigmoid(self, x: Any) -> Any:
        one = self.number(1.0)
        return one / (one + _function("expf", self.number(0.0) - x))


class DeviceVectors(Vectors):
    """Expressions at one place, each made once."""

    _functions = DeviceFunctions


_REGISTER = "register"
"""Name of an array of one number."""


def _function(name: str, x: Any) -> Any:
    return tirx.call_pure_extern("float32", name, x)
