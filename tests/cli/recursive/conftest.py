"""Files of small recursive models, and the commands on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.cli.main import main

WORDS = ["not", "very", "good", "works", "it", "unk"]
TREES = [["not", ["very", "good"]], ["it", "works"], "good", [["it", "it"], "not"]]
TEXT = "(not (very good))\n(it works)\ngood\n((it it) not)\n"


@rec.cell(children=2, state={"h": 4, "c": 4}, inputs={"word": rec.embedding("words", optional=True)})
def small(node, w):  # type: ignore[no-untyped-def]
    """What compiles quickly."""
    h = rec.tanh(w.U @ rec.total(node.children.h) + node.word)
    return {"h": h, "c": h + rec.total(node.children.c)}


def model_with(output: rec.output.Output, **options: object) -> rec.Model:
    rng = np.random.default_rng(1)
    shapes = {"U": (4, 4), "words": (len(WORDS), 4), "head.weight": (2, 4)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return rec.Model(small, weights, output, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, their packages, structures and words."""
    made = tmp_path_factory.mktemp("recursive")
    models = {
        "classes": model_with(rec.roots("h") | rec.linear("head") | rec.softmax(), classes=("bad", "fine")),
        "nodes": model_with(rec.nodes("h")),
        "roots": model_with(rec.roots("h")),
    }
    for name, model in models.items():
        model.save(made / f"{name}.rec")
        hbtvm.compile(model, batch_sizes=(4,), threads=1).save(made / f"{name}.tar")
    (made / "words.txt").write_text("\n".join(WORDS))
    (made / "trees.txt").write_text(TEXT)
    return made


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def run(command: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    """What a command writes; on an error, its sentence."""
    capsys.readouterr()
    code = main(command.split())
    out, err = capsys.readouterr()
    assert code == status, err
    if status:
        assert err.startswith("hbtvm: error: ") and len(err.splitlines()) == 1, err
    return err if status else out
