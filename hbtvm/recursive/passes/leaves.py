"""Specialisation of a cell for nodes without children (Cortex, section 5.1)."""

from __future__ import annotations

from dataclasses import replace

from hbtvm.recursive.cell import Cell
from hbtvm.recursive.passes.folding import Folder
from hbtvm.recursive.passes.narrowing import narrowed
from hbtvm.recursive.passes.rewriting import Maker, without_dead


def leaf_cell(cell: Cell) -> Cell:
    """Give nodes without children separate values, with zeros propagated.

    Their children's states and sums are zero; products with zero, unread gates and their rows of weights are
    dropped. Weights are assumed to be finite.
    """
    outputs = cell.inner if cell.leaf is None else cell.leaf
    maker = Maker(cell.weights)
    folder = Folder(cell.values, maker)
    folded = {name: folder.fold(number) for name, number in outputs.items()}
    new = narrowed(maker, folded.values())
    offset = len(cell.values)
    moved = [replace(value, of=tuple(operand + offset for operand in value.of)) for value in maker.values]
    leaf = {name: new[number] + offset for name, number in folded.items()}
    values = (*cell.values, *moved)
    return without_dead(replace(cell, values=values, weights=maker.weights, leaf=leaf))
