"""`Call`: one node of an ONNX graph with the values that it reads, and the errors that name it."""

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
    """A node that is evaluated."""

    operation: Operation
    inputs: tuple[Value | None, ...]  # its inputs; None for what is left out
    version: int  # version of the operators of its domain

    def has(self, at: int) -> bool:
        """Whether an input is given."""
        return at < len(self.inputs) and self.inputs[at] is not None

    def value(self, at: int) -> Value:
        """An input.

        Raises `ModelError` if it is left out.
        """
        if not self.has(at):
            raise self.damaged(f"its input {at} is missing.")
        found = self.inputs[at]
        assert found is not None
        return found

    def rows(self, at: int = 0) -> Rows:
        """An input that has rows.

        Raises `UnsupportedModel` if it is a constant.
        """
        found = self.value(at)
        if not isinstance(found, Rows):
            raise self.unsupported(f"has a constant as its input {at}, which is not supported.")
        return found

    def constant(self, at: int, name: str) -> np.ndarray:
        """An input that is a constant.

        Raises `UnsupportedModel` if it depends on the rows.
        """
        found = self.value(at)
        if isinstance(found, Rows):
            raise self.unsupported(f"computes its {name} from the rows, which is not supported.")
        return found

    def whole(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer."""
        return self._attribute(name, int, default)  # type: ignore[no-any-return]

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a number."""
        found = self._attribute(name, (int, float), default)
        return float(found)

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute that is a text."""
        return self._attribute(name, str, default)  # type: ignore[no-any-return]

    def texts(self, name: str) -> list[str]:
        """An attribute that is a list of texts; empty if it is not there."""
        found = self.operation.attributes.get(name, [])
        if isinstance(found, np.ndarray) and not found.size:
            return []
        if not isinstance(found, list):
            raise self.damaged(f"its {name} is no list of strings.")
        return found

    def array(self, name: str, kinds: str = "f") -> np.ndarray:
        """An attribute that is an array of numbers, flat; empty if it is not there."""
        found = self.operation.attributes.get(name)
        if found is None or (isinstance(found, list) and not found):
            return np.zeros(0)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds:
            raise self.damaged(f"its {name} is no list of numbers.")
        return found.ravel()

    def integers(self, name: str) -> np.ndarray:
        """An attribute that is a list of integers; int64."""
        return self.array(name, "iu").astype(np.int64)

    def _attribute(self, name: str, kind: Any, default: Any) -> Any:
        found = self.operation.attributes.get(name, default)
        if found is None:
            raise self.damaged(f"it has no attribute {name}.")
        if not isinstance(found, kind):
            raise self.damaged(f"its {name} is {shown(found, 40)!r}.")
        return found

    def unsupported(self, sentence: str) -> UnsupportedModel:
        """The error for something of this node that is not supported; `sentence` goes on after its name."""
        return UnsupportedModel(f"{self.operation.where} {_worded(sentence)}")

    def damaged(self, sentence: str) -> ModelError:
        """The error for something of this node that cannot be."""
        return ModelError(f"{self.operation.where} is damaged: {_worded(sentence)}")


def _worded(sentence: str) -> str:
    """The sentence without what stands for the number of rows in shapes."""
    return sentence.replace(f"{ROWS:,}", "rows").replace(str(ROWS), "rows")


Evaluate = Callable[[Call], "Value | tuple[Value, ...]"]  # what a node computes
