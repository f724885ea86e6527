"""Modules that are no cells: one sentence for each."""

from __future__ import annotations

from typing import Any

import pytest

from hbtvm.errors import ModelError
from hbtvm.recursive import from_torch, read_pt2

torch = pytest.importorskip("torch")
modules = pytest.importorskip("tests.recursive.torch_modules")
nn = torch.nn
HIDDEN, WIDTH = modules.HIDDEN, modules.WIDTH
agree, saved = modules.agree, modules.saved


class Refused(nn.Module):
    """One of several modules that are no cells."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.U = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, h: Any) -> Any:
        own = self.U(h[:, 0])
        if self.kind == "sort":
            return own.sort(dim=1)[0]
        if self.kind == "norm":
            return nn.functional.layer_norm(own, (HIDDEN,))
        if self.kind == "mixed":
            return own - own.mean(0, keepdim=True)
        if self.kind == "attention":
            return own @ (own.T @ own)
        if self.kind == "flat":
            return own.sum().expand(h.shape[0], HIDDEN)
        if self.kind == "power":
            return own**0.5
        if self.kind == "double":
            return (own.double() * 2).float()
        if self.kind == "turned":
            return own.flip(0)
        return torch.where(own > 0, own, 2 * own)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            "sort",
            r"aten.sort \(test_torch_refusals.py, line \d+: return own.sort\(dim=1\)\[0\]\) is",
        ),
        ("norm", "aten.native_layer_norm .*is not an operator"),
        ("mixed", "aten.mean .*reduces over the nodes of the batch"),
        ("attention", "aten.mm .*(batch|nodes)"),
        ("flat", "aten.sum .*reduces over the nodes"),
        ("power", "aten.pow .*power 0.5; expected 1, 2 or 3"),
        ("double", "aten._to_copy .*another type than float32"),
        ("turned", "aten.flip"),
        ("where", "aten.(gt|where).* is not an operator"),
    ],
)
def test_what_is_no_cell(kind: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        from_torch(Refused(kind), children=2)


def test_what_else_is_refused() -> None:
    module = modules.TreeGRU()
    with pytest.raises(ModelError, match=r"torch.float64; call float\(\)"):
        from_torch(modules.TreeGRU().double(), children=2)
    with pytest.raises(ModelError, match=r"bfloat16; call float\(\)"):
        from_torch(nn.GRUCell(3, 4).bfloat16())
    with pytest.raises(ModelError, match=r"expected a torch\.nn\.Module"):
        from_torch(3)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="can't be called with its states and inputs"):
        from_torch(module, children=2, state={"h": 4}, inputs={"x": 3})
    with pytest.raises(ModelError, match="give them"):
        from_torch(module, children=2, state=("h", "c"))
    with pytest.raises(ModelError, match="several layers"):
        from_torch(nn.LSTM(3, 4, num_layers=2))
    with pytest.raises(ModelError, match="the module can't be called"):
        from_torch(modules.NaryLSTM(), children=None, state={"h": HIDDEN, "c": HIDDEN}, inputs={"x": WIDTH})
    with pytest.raises(ModelError, match=r"tells children apart by their place.*children=None"):
        from_torch(modules.TreeFC(), children=None, leaf="leaf")
    with pytest.raises(ModelError, match="method"):
        from_torch(modules.TreeFC(), children=2, leaf="nothing")
    with pytest.raises(ModelError, match="names of their own"):
        from_torch(module, children=2, state=("h", "h"))
    with pytest.raises(ModelError, match="children is 65"):
        from_torch(module, children=65)


def test_mean_over_any_number_of_children() -> None:
    class Mean(nn.Module):
        def forward(self, h: Any) -> Any:
            return torch.tanh(h.mean(1))

    with pytest.raises(ModelError, match="mean over children"):
        from_torch(Mean(), children=None, state={"h": HIDDEN})
    agree(Mean(), from_torch(Mean(), children=3, state={"h": HIDDEN}).cell)


def test_files_that_do_not_fit() -> None:
    """Exported with a fixed batch or number of children, with one tensor for two arguments, or in place."""
    tree = modules.ChildSumLSTM()
    one, word = torch.zeros(3, 2, HIDDEN), torch.zeros(3, dtype=torch.int64)
    fixed = saved(tree, (one, one.clone(), word), ({}, {}, {}))
    with pytest.raises(ModelError, match=r"state 'h' is \(3, 2, 6\); expected \(batch, ...\), exported with"):
        read_pt2(fixed, children=2, state=("h", "c"))
    axes = ({0: "b"},) * 3
    content = saved(tree, (one, one.clone(), word), axes)
    with pytest.raises(
        ModelError, match=r"state .h. is \(s\d+, 2, 6\); expected \(batch, child, \.\.\.\) with 3"
    ):
        read_pt2(content, children=3, state=("h", "c"))
    with pytest.raises(ModelError, match=r"input 'c' is float32 \(s\d+, 2, 6\)"):
        read_pt2(content, children=2, state=("h",))
    with pytest.raises(ModelError, match="a sample tensor of its own"):
        read_pt2(saved(tree, (one, one, word), axes), children=2, state=("h", "c"))

    class InPlace(nn.Module):
        def forward(self, h: Any) -> Any:
            return (h + 1).relu_()

    with pytest.raises(ModelError, match=r"aten.relu_ .*run_decompositions\(\) may replace it"):
        read_pt2(saved(InPlace(), (torch.zeros(3, HIDDEN),), ({0: "b"},)))
    decomposed = saved(InPlace(), (torch.zeros(3, HIDDEN),), ({0: "b"},), plain=False)
    agree(InPlace(), read_pt2(decomposed), reduce=True)
