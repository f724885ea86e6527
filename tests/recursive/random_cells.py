"""Random cells and structures, for properties that have to hold of all."""

from __future__ import annotations

import numpy as np

from hbtvm.recursive.cell import Cell, Input, Value
from hbtvm.recursive.passes.rewriting import Maker
from hbtvm.recursive.validate import check
from hbtvm.runtime.recursive.structures import Structures

ROWS = 7
"""Numbers that the inputs of kind number have."""


def random_cell(seed: int, children: int | str | None = "any", leaf: bool | None = None) -> Cell:
    """A random cell: sums over children, children in places, gates, products, matrices of states.

    Parameters
    ----------
    children
        Places; "any" for a random choice, None included.
    leaf
        Whether it has values of its own for nodes without children; None for a random choice.
    """
    rng = np.random.default_rng(seed)
    if children == "any":
        children = [None, 1, 2, 3][rng.integers(4)]
    assert not isinstance(children, str)
    h, k = int(rng.integers(2, 6)), int(rng.integers(2, 5))
    states: dict[str, tuple[int, ...]] = {"h": (h,)}
    if rng.random() < 0.5:
        states["c"] = (h,)
    if rng.random() < 0.3:
        states["M"] = (h, h)
    inputs = {"word": Input("number", ROWS, optional=bool(rng.random() < 0.5)), "x": Input("vector", k)}
    maker = Maker({"words": rng.normal(size=(ROWS, k)).astype(np.float32)})
    of_node = [
        maker.put(Value("embed", (), (k,), name="words")),
        maker.put(Value("input", (), (k,), name="x")),
    ]
    matrices = []
    if children is not None:
        places = range(children)
        of_node += [
            maker.put(Value("child", (), (h,), name=name, start=place))
            for name in states
            if name != "M"
            for place in places
        ]
        if "M" in states:
            matrices = [maker.put(Value("child", (), (h, h), name="M", start=place)) for place in places]
    each = [maker.put(Value("children", (), (h,), True, name=name)) for name in states if name != "M"]
    inner = _outputs(maker, rng, states, of_node, each, matrices)
    own = None
    if leaf or (leaf is None and rng.random() < 0.4):
        own = _outputs(maker, rng, states, of_node[:2], [], [])
    cell = Cell(f"random {seed}", children, states, inputs, maker.weights, tuple(maker.values), inner, own)
    check(cell)
    return cell


def _outputs(
    maker: Maker,
    rng: np.random.Generator,
    states: dict[str, tuple[int, ...]],
    vectors: list[int],
    each: list[int],
    matrices: list[int],
) -> dict[str, int]:
    """Random steps, and a value for each state."""
    h = states["h"][0]
    vectors, each = list(vectors), list(each)

    def weight(*shape: int) -> int:
        return maker.weight("w", rng.normal(size=shape) / np.sqrt(shape[-1]))

    def any_of(some: list[int]) -> int:
        return some[rng.integers(len(some))]

    def size(number: int) -> int:
        return maker.values[number].shape[0]

    for _ in range(int(rng.integers(4, 10))):
        x = any_of(each if each and rng.random() < 0.4 else vectors)
        kept = each if maker.values[x].per_child else vectors
        op = rng.choice(["gates", "unary", "binary", "sum", "concat", "scale", "softmax", "outer", "state"])
        if op == "gates":  # a product, of which parts are multiplied
            both = maker.apply("matmul", (weight(2 * h, size(x)), x))
            both = maker.apply("add", (both, weight(2 * h)))
            a, b = (maker.apply("slice", (both,), start=at, stop=at + h) for at in (0, h))
            gate = maker.apply("sigmoid", (a,))
            kept.append(maker.apply("mul", (gate, b)))
        elif op == "unary":
            name = str(rng.choice(["neg", "abs", "relu", "sigmoid", "tanh"]))
            kept.append(maker.apply(name, (x,)))
        elif op == "binary":
            same = [one for one in vectors + each if size(one) == size(x)]
            made = maker.apply(str(rng.choice(["add", "sub", "mul", "max", "min"])), (x, any_of(same)))
            (each if maker.values[made].per_child else vectors).append(made)
        elif op == "sum" and each:
            one = any_of(each)
            vectors.append(maker.apply(str(rng.choice(["total", "most"])), (one,)))
        elif op == "concat":
            y = any_of(vectors)
            made = maker.apply("concat", (x, y))
            kept.append(maker.apply("matmul", (weight(h, size(made)), made)))
        elif op == "scale":
            kept.append(maker.apply("mul", (maker.constant(rng.normal(), ()), x)))
        elif op == "softmax":
            kept.append(maker.apply("softmax", (x,)))
        elif op == "outer":
            y = any_of(vectors)
            matrix = maker.apply("outer", (x, y))
            kept.append(maker.apply("matmul", (matrix, y)))
        elif op == "state" and matrices:
            square = [one for one in vectors if size(one) == h]
            if square:
                vectors.append(maker.apply("matmul", (any_of(matrices), any_of(square))))
    made = {}
    for name, shape in states.items():
        one, other = (
            maker.apply("matmul", (weight(h, size(x)), x)) for x in (any_of(vectors), any_of(vectors))
        )
        if each:
            x = any_of(each)
            summed = maker.apply("total", (x,))
            other = maker.apply("add", (other, maker.apply("matmul", (weight(h, size(x)), summed))))
        if len(shape) == 2:
            made[name] = maker.apply("tanh", (maker.apply("outer", (one, other)),))
        else:
            made[name] = maker.apply("tanh", (maker.apply("add", (one, other)),))
    return made


def random_structures(cell: Cell, seed: int, count: int = 3, most: int = 9) -> Structures:
    """Random graphs without cycles that fit a cell, in any order of nodes; some have one node."""
    rng = np.random.default_rng(seed)
    starts, first, child = [0], [0], []
    for _ in range(count):
        nodes = int(rng.integers(1, most + 1))
        name = rng.permutation(nodes)
        own: list[list[int]] = [[] for _ in range(nodes)]
        for at in range(nodes):
            places = int(rng.integers(0, (cell.children or 3) + 1))
            if at and rng.random() < 0.7:
                own[name[at]] = [
                    -1 if rng.random() < 0.2 else starts[-1] + int(name[rng.integers(at)])
                    for _ in range(places)
                ]
        for one in own:
            child += one
            first.append(len(child))
        starts.append(starts[-1] + nodes)
    inputs: dict[str, np.ndarray] = {}
    for key, one in cell.inputs.items():
        if one.kind == "number":
            inputs[key] = rng.integers(-1 if one.optional else 0, one.size, starts[-1]).astype(np.int32)
        else:
            inputs[key] = rng.normal(size=(starts[-1], one.size)).astype(np.float32)
    return Structures(
        np.array(starts, np.int64), np.array(first, np.int32), np.array(child, np.int32), inputs
    )
