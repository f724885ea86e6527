"""`Model`: a cell with weights and a readout, to tune, compile and save."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.recursive import file
from hbtvm.recursive.builder import CellFunction
from hbtvm.recursive.cell import Cell, Layer, Readout, RecursiveModel
from hbtvm.recursive.output import Output
from hbtvm.recursive.validate import check_model
from hbtvm.runtime.recursive.vocabulary import Vocabulary


class Model(RecursiveModel):
    """A recursive model.

    Parameters
    ----------
    cell
        A function that `hbtvm.recursive.cell` declares, or a recorded `Cell`.
    weights
        Weights of the cell and of layers by name: arrays or torch's tensors, of one or two axes; rounded to
        float32.
    output
        Such as ``roots("h") | linear("head") | softmax()``; by default, the first state of roots.
    readout, layers
        The parts of `output`, as an alternative.
    classes
        Labels of the last layer's outputs.
    vocabulary
        Words that structures may have instead of numbers; packages of the model keep it.

    Raises
    ------
    ModelError
        If a weight is missing, or a shape does not fit.
    """

    def __init__(
        self,
        cell: CellFunction | Cell,
        weights: Mapping[str, Any] | None = None,
        output: Output | None = None,
        *,
        readout: Readout | None = None,
        layers: Sequence[Layer] = (),
        classes: Sequence[str | int] = (),
        vocabulary: Vocabulary | None = None,
    ) -> None:
        arrays = dict(weights or {})
        if isinstance(cell, CellFunction):
            cell = cell.bind(arrays)
        elif not isinstance(cell, Cell):
            raise ModelError(f"the cell is {cell!r:.100}; expected a function that rec.cell declares")
        if output is not None:
            if not isinstance(output, Output):
                raise ModelError(f"the output is {output!r:.100}; expected such as rec.roots('h')")
            readout, layers = output.readout, [stage.bound(arrays) for stage in output.stages]
        readout = readout or Readout(next(iter(cell.states)))
        super().__init__(cell, readout, tuple(layers), tuple(classes), vocabulary)
        check_model(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, ``.rec`` by custom.

        Raises
        ------
        ModelFileError
            If the file can't be written.
        """
        file.save(self, path)


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model that `Model.save` wrote; nothing in the file is executed.

    Raises `ModelError` for other files, or if it is damaged.
    """
    model = file.load(path)
    return Model(
        model.cell,
        readout=model.readout,
        layers=model.layers,
        classes=model.classes,
        vocabulary=model.vocabulary,
    )
