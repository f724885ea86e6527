"""The commands on cells that torch exported, compiled from the file, without torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.cli.structures.options import model_of
from hbtvm.errors import ModelError
from hbtvm.recursive import reference
from tests.cli.recursive.conftest import run
from tests.recursive.random_cells import random_structures


def test_modules_of_torch(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled from the file, without torch."""
    torch = pytest.importorskip("torch")
    modules = pytest.importorskip("tests.recursive.torch_modules")
    torch.manual_seed(0)
    module = modules.ChildSumLSTM()
    state, word = torch.zeros(3, 2, modules.HIDDEN), torch.zeros(3, dtype=torch.int64)
    (here / "cell.pt2").write_bytes(modules.saved(module, (state, state.clone(), word), ({0: "b"},) * 3))
    monkeypatch.setitem(sys.modules, "torch", None)
    given = "cell.pt2 --children 2 --state h,c"
    assert "states     h (6), c (6)" in run(f"inspect {given}", capsys)
    run(f"compile {given} --readout mean:c --threads 1 --batch-size 4 -o cell.tar", capsys)
    run("predict cell.tar trees.npz -o cell.npy", _saved(here, capsys))
    cell = rec.read_pt2("cell.pt2", children=2, state=("h", "c"))
    structures = random_structures(cell, 1, count=5)
    states = reference.states(cell, structures)["c"]
    expected = [states[a:b].mean(0) for a, b in zip(structures.starts, structures.starts[1:], strict=False)]
    np.testing.assert_allclose(np.load("cell.npy"), expected, atol=1e-6)
    for options, sentence in (
        ("", "say how many children a node has, such as --children 2, or --children any"),
        ("--children 3", "cell.pt2: state 'h' is (s"),
        ("--children 2 --state h,c --readout roots:x", "--readout roots:x: the states are h, c"),
        ("--children 2 --state h,c --leaf none.pt2", "none.pt2: there is no such file, expected a .pt2 file"),
    ):
        assert sentence in run(f"compile cell.pt2 {options}", capsys, 2)
    with pytest.raises(
        ModelError, match=r"cell\.pt2: this is a module that torch exported, which can be the"
    ):
        hbtvm.compile("cell.pt2")


def _saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    given = random_structures(rec.read_pt2(folder / "cell.pt2", children=2, state=("h", "c")), 1, count=5)
    np.savez(folder / "trees.npz", starts=given.starts, first=given.first, child=given.child, **given.inputs)
    return capsys


def test_modules_that_are_no_cells(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator is named."""
    torch = pytest.importorskip("torch")
    modules = pytest.importorskip("tests.recursive.torch_modules")

    class Sorts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            return torch.sort(h.sum(1) + x)[0]

    content = modules.saved(Sorts(), (torch.zeros(3, 2, 4), torch.zeros(3, 4)), ({0: "b"},) * 2)
    (here / "sorts.pt2").write_bytes(content)
    for command in ("compile", "inspect"):
        err = run(f"{command} sorts.pt2 --children 2", capsys, 2)
        assert err.startswith("hbtvm: error: sorts.pt2: ") and "sort" in err.removeprefix(
            "hbtvm: error: sorts."
        )


def test_options_of_cells_are_passed_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hbtvm.cli.main import make_parser
    from hbtvm.recursive.torch_modules import pt2

    seen: dict[str, object] = {}

    def read(path: str, **given: object) -> object:
        seen.update(given, path=path)
        return rec.load("roots.rec").cell

    monkeypatch.setattr(pt2, "read_pt2", read)
    monkeypatch.setattr("hbtvm.frontends.files.recursive_kind", lambda path: "pt2")
    command = (
        "compile a.pt2 --children any --state h,c --inputs w,x --optional w --reduce max --leaf roots.rec "
        "--readout nodes:c"
    )
    arguments: argparse.Namespace = make_parser().parse_args(command.split())
    model = model_of(arguments, "a.pt2")
    assert model is not None and (model.readout.over, model.readout.state) == ("nodes", "c")
    assert seen == {
        "path": "a.pt2", "children": None, "state": ("h", "c"), "inputs": ("w", "x"), "optional": ("w",),
        "reduce": "max", "apart": None, "leaf": "roots.rec",
    }  # fmt: skip
