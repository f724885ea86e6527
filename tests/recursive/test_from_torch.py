"""`from_torch` and `read_pt2` against torch, node by node in float64."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.errors import ModelError
from hbtvm.recursive import from_torch, read_pt2, reference, roots, sequences
from tests.recursive.random_cells import random_structures

torch = pytest.importorskip("torch")
modules = pytest.importorskip("tests.recursive.torch_modules")
nn = torch.nn
HIDDEN, WIDTH, WORDS = modules.HIDDEN, modules.WIDTH, modules.WORDS
agree, saved = modules.agree, modules.saved


def state(*places: int) -> Any:
    return torch.zeros((3, *places, HIDDEN))


@pytest.mark.parametrize("children", [1, 2, 3, None])
@pytest.mark.parametrize("kind", ["ChildSumLSTM", "ChildSumLSTMBias"])
def test_child_sum_lstm(kind: str, children: int | None) -> None:
    torch.manual_seed(0)
    module = getattr(modules, kind)()
    own = from_torch(module, children=children, state=("h", "c"), apart=False).cell
    assert own.states == {"h": (HIDDEN,), "c": (HIDDEN,)} and own.inputs["word"].size == WORDS
    agree(module, own)


def test_what_becomes_of_children() -> None:
    """One product for each child, and sums, where zeros for absent children add nothing; else places."""
    ops = [value.op for value in from_torch(modules.ChildSumLSTM(), children=2, state=("h", "c")).cell.values]
    assert ops.count("total") == 2 and "child" not in ops and ops.count("matmul") == 4
    values = from_torch(modules.ChildSumLSTMBias(), children=2, state=("h", "c")).cell.values
    assert {value.start for value in values if value.op == "child"} == {0, 1}


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("NaryLSTM", {"state": ("h", "c")}),
        ("TreeGRU", {}),
        ("Einsum", {}),
        ("Attention", {"state": {"h": HIDDEN}, "inputs": {"x": HIDDEN}}),
        ("Left", {"apart": True}),
    ],
)
def test_two_children(kind: str, how: dict[str, Any]) -> None:
    torch.manual_seed(1)
    module = getattr(modules, kind)()
    agree(module, from_torch(module, children=2, **how).cell, apart=how.get("apart", False))


@pytest.mark.parametrize("children", [2, 3])
@pytest.mark.parametrize("kind", ["BesideTheSum", "BesideTheSecond"])
def test_terms_of_other_children(kind: str, children: int) -> None:
    """What is zero without any child is not, where others are there."""
    torch.manual_seed(5)
    module = getattr(modules, kind)()
    agree(module, from_torch(module, children=children, state={"h": HIDDEN}, inputs={"x": HIDDEN}).cell)


@pytest.mark.parametrize(
    ("kind", "sizes"), [("TreeFC", None), ("MVRNN", {"p": HIDDEN, "P": (HIDDEN, HIDDEN)})]
)
def test_a_method_for_leaves(kind: str, sizes: Any) -> None:
    torch.manual_seed(2)
    module = getattr(modules, kind)()
    own = from_torch(module, children=2, state=sizes, leaf="leaf").cell
    assert own.leaf is not None and list(own.inputs) == ["word"]
    agree(module, own, leaf="leaf")


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_sequences(kind: str) -> None:
    """The layer as a whole is the oracle."""
    torch.manual_seed(3)
    layer = getattr(nn, kind)(WIDTH, HIDDEN)
    own = from_torch(layer)
    rng = np.random.default_rng(0)
    items = [rng.normal(size=(length, WIDTH)).astype(np.float32) for length in (1, 4, 9)]
    structures = sequences([list(range(len(one))) for one in items])
    structures.inputs.clear()
    structures.inputs["x"] = np.concatenate(items)
    found = reference.states(own.cell, structures)["h"]
    with torch.no_grad():
        expected = torch.cat([layer(torch.tensor(one))[0] for one in items]).numpy()
    assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_of_sums(kind: str) -> None:
    torch.manual_seed(4)
    cell = getattr(nn, kind)(WIDTH, HIDDEN, bias=kind != "GRUCell")
    own = from_torch(cell, children=None, reduce="sum").cell

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, *arguments: Any) -> Any:
            *given, x = arguments
            return self.cell(x, given[0] if len(given) == 1 else tuple(given))

    agree(Turned(), own, reduce=True)
    with pytest.raises(ModelError, match="takes one child"):
        from_torch(cell, children=2)


def test_a_model_with_layers_behind() -> None:
    own = from_torch(
        modules.TreeGRU(), children=2, output=roots("h"), classes=[f"c{i}" for i in range(HIDDEN)]
    )
    assert own.readout.over == "roots" and own.cell.name == "TreeGRU" and len(own.classes) == HIDDEN


def test_training_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Dropout(0.5))
    module[1].eval()
    own = from_torch(module, state={"h": HIDDEN}).cell
    assert module.training and not module[1].training
    assert [value.op for value in own.values if value.op not in ("weight", "child")] == ["matmul", "add"]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("children", [2, None])
def test_pt2(children: int | None, plain: bool, tmp_path: Path) -> None:
    torch.manual_seed(5)
    module = modules.ChildSumLSTM()
    axes = {0: "b"} if children else {0: "b", 1: "c"}
    word = torch.zeros(3, dtype=torch.int64)
    content = saved(module, (state(2), state(2), word), (axes, axes, {0: "b"}), plain)
    (tmp_path / "tree.pt2").write_bytes(content)
    own = read_pt2(tmp_path / "tree.pt2", children=children, state=("h", "c"), optional=("word",))
    assert own.name == "tree" and own.inputs["word"].optional
    own = read_pt2(content, children=children, state=("a", "b"), inputs=("w",))
    assert list(own.states) == ["a", "b"] and list(own.inputs) == ["w"]
    agree(module, own)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_pt2_of_torchs_cells(kind: str, plain: bool) -> None:
    """Arguments called as the states are these; torch's cells take the input first."""
    torch.manual_seed(6)
    cell = getattr(nn, kind)(WIDTH, HIDDEN)
    hx: Any = torch.zeros(3, HIDDEN)
    hx = (hx, hx.clone()) if kind == "LSTMCell" else hx
    axes = ({0: "b"}, {0: "b"}) if kind == "LSTMCell" else {0: "b"}
    symbol = torch.export.Dim("b", min=1, max=99)
    shapes = torch.utils._pytree.tree_map(lambda _: symbol, axes)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(
            cell, (torch.zeros(3, WIDTH), hx), dynamic_shapes=({0: symbol}, shapes)
        )
        torch.export.save(exported if plain else exported.run_decompositions(), file)
    names = ("hx_0", "hx_1") if kind == "LSTMCell" else ("hx",)
    found = read_pt2(file.getvalue(), state=names)
    expected = from_torch(cell).cell
    structures = random_structures(expected, 0)
    structures.inputs["input"] = structures.inputs["x"]
    ours, others = reference.states(found, structures), reference.states(expected, structures)
    for one, other in zip(ours.values(), others.values(), strict=True):
        assert np.allclose(one, other, atol=1e-6)


def test_pt2_of_leaves() -> None:
    module = modules.TreeFC()

    class Leaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = module.words

        def forward(self, word: Any) -> Any:
            return self.words(word)

    inner = saved(module, (state(2),), ({0: "b"},))
    leaf = saved(Leaf(), (torch.zeros(3, dtype=torch.int64),), ({0: "b"},))
    agree(module, read_pt2(inner, children=2, leaf=leaf), leaf="leaf")


def test_weights_that_share_memory() -> None:
    """Transposed ones, parts of larger ones, and lifted constants."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.U = nn.Parameter(torch.randn(HIDDEN, HIDDEN).t())
            self.part = nn.Parameter(torch.randn(4, 2 * HIDDEN)[2:4, 1 : HIDDEN + 1])
            self.plain = torch.randn(HIDDEN)
            self.register_buffer("own", torch.randn(HIDDEN), persistent=False)
            self.register_buffer("count", torch.zeros(3, dtype=torch.int64))

        def forward(self, h: Any) -> Any:
            one = h @ self.U + self.part.mean(0) * self.plain
            return torch.tanh(
                one + self.own - torch.tensor([1.0] * HIDDEN) + torch.full((h.shape[0], 1), 0.5)
            )

    torch.manual_seed(7)
    module = Odd()
    agree(module, from_torch(module).cell, reduce=True)
    agree(module, read_pt2(saved(module, (state(),), ({0: "b"},))), reduce=True)
