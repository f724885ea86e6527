"""`Call`: a node of an ONNX graph with its inputs' values; its errors name the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.onnx.reading import Operation
from hbtvm.frontends.onnx.values import ROWS, Rows, Value
from hbtvm.words.printable import shown


@dataclass(frozen=True, eq=False)
class Call:
    """A node with the values of its inputs."""

    operation: Operation
    inputs: tuple[Value | None, ...]  # None for omitted inputs
    version: int  # version of the operators of its domain

    def has(self, at: int) -> bool:
        """Return whether there is such an input."""
        return at < len(self.inputs) and self.inputs[at] is not None

    def value(self, at: int) -> Value:
        """Return an input.

        Raises `ModelError` if it is omitted.
        """
        if not self.has(at):
            raise self.damaged(f"its input {at} is missing.")
        value = self.inputs[at]
        assert value is not None
        return value

    def rows(self, at: int = 0) -> Rows:
        """Return an input that has rows.

        Raises `UnsupportedModel` if it is a constant.
        """
        value = self.value(at)
        if not isinstance(value, Rows):
            raise self.unsupported(f"has a constant as its input {at}, which is not supported.")
        return value

    def constant(self, at: int, name: str) -> np.ndarray:
        """Return an input that is a constant.

        Raises `UnsupportedModel` if it depends on the rows.
        """
        value = self.value(at)
        if isinstance(value, Rows):
            raise self.unsupported(f"computes its {name} from the rows, which is not supported.")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return an attribute that is an integer."""
        return self._attribute(name, int, default)  # type: ignore[no-any-return]

    def number(self, name: str, default: float | None = None) -> float:
        """Return an attribute that is a number."""
        return float(self._attribute(name, (int, float), default))

    def text(self, name: str, default: str | None = None) -> str:
        """Return an attribute that is a text."""
        return self._attribute(name, str, default)  # type: ignore[no-any-return]

    def texts(self, name: str) -> list[str]:
        """Return an attribute that is a list of texts; empty if it is missing."""
        values = self.operation.attributes.get(name, [])
        if isinstance(values, np.ndarray) and not values.size:
            return []
        if not isinstance(values, list):
            raise self.damaged(f"its {name} is not a list of strings.")
        return values

    def array(self, name: str, kinds: str = "f") -> np.ndarray:
        """Return an attribute that is an array of numbers, flat; empty if it is missing."""
        values = self.operation.attributes.get(name)
        if values is None or (isinstance(values, list) and not values):
            return np.zeros(0)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
            raise self.damaged(f"its {name} is not a list of numbers.")
        return values.ravel()

    def integers(self, name: str) -> np.ndarray:
        """Return an attribute that is a list of integers; int64."""
        return self.array(name, "iu").astype(np.int64)

    def _attribute(self, name: str, kind: Any, default: Any) -> Any:
        value = self.operation.attributes.get(name, default)
        if value is None:
            raise self.damaged(f"it has no attribute {name}.")
        if not isinstance(value, kind):
            raise self.damaged(f"its {name} is {shown(value, 40)!r}.")
        return value

    def unsupported(self, sentence: str) -> UnsupportedModel:
        """Return the error for an unsupported feature; `sentence` continues behind the node's name."""
        return UnsupportedModel(f"{self.operation.where} {_worded(sentence)}")

    def damaged(self, sentence: str) -> ModelError:
        """Return the error for a contradiction in the node."""
        return ModelError(f"{self.operation.where} is damaged: {_worded(sentence)}")


def _worded(sentence: str) -> str:
    """Replace the number that stands for the rows in shapes."""
    return sentence.replace(f"{ROWS:,}", "rows").replace(str(ROWS), "rows")


Evaluate = Callable[[Call], "Value | tuple[Value, ...]"]  # computes a node's outputs
