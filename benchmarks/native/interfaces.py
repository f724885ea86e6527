"""The libraries that are called from C, and what their programs are made of."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.native.programs import PeerError, compiled, compiled_cpp, package_folder, shared_library
from benchmarks.peers.cells import GRID, MODELS
from benchmarks.peers.libraries import Job

Made = tuple[Path, dict[str, Any]]
"""A program, and its arguments."""


@dataclass(frozen=True)
class Order:
    """What a program is made of.

    Attributes
    ----------
    job
        The model; its artifact is there, if there is to be one.
    classes
        Classes of the model, 2 where it has none.
    python
        The interpreter of the library's environment.
    folder
        Where the program is put.
    """

    job: Job
    classes: int
    python: str
    folder: Path

    def outputs(self, *, both: bool) -> int:
        """Results of a row; `both`: whether there are two where there are two classes."""
        if self.job.task == "regression":
            return 1
        return self.classes if self.job.task == "classes" else 2 if both else 1


@dataclass(frozen=True)
class Interface:
    """A library's C interface.

    Attributes
    ----------
    make
        Makes its program.
    models
        Kinds of models that it is called for.
    converts
        Whether the peer of the same name in `benchmarks.peers` makes an artifact of the model first.
    """

    make: Callable[[Order], Made]
    models: tuple[str, ...] = GRID
    converts: bool = True


def _hbtvm(order: Order) -> Made:
    exported = order.folder / f"{Path(order.job.artifact).stem}-export"
    export = [sys.executable, "-m", "hbtvm", "export", order.job.artifact, "-o", str(exported)]
    _run(*export, "--name", "model")
    boosted = order.job.model in ("lightgbm", "xgboost")
    labels = not boosted and order.job.task != "regression"
    function = f"model_{'predict_proba' if labels else 'predict'}_f32"
    declared = re.search(rf"\b{function}\([^)]*?(\w+) \*out", (exported / "model.h").read_text())
    if declared is None:
        raise PeerError(f"export: there is no {function}")
    program = compiled(
        "hbtvm",
        exported / "program",
        f"-I{exported}",
        f"-DPREDICT={function}",
        f"-DRESULT={declared[1]}",
        str(exported / "libmodel.a"),
    )
    return program, {"outputs": order.outputs(both=labels)}


def _lightgbm(order: Order) -> Made:
    library = package_folder(order.python, "lightgbm") / "lib" / "lib_lightgbm.so"
    return compiled("lightgbm", order.folder / "lightgbm"), {"library": library, "model": order.job.path}


def _xgboost(order: Order) -> Made:
    library = package_folder(order.python, "xgboost") / "lib" / "libxgboost.so"
    program = compiled("xgboost", order.folder / "xgboost")
    outputs = order.outputs(both=False)
    return program, {"library": library, "model": order.job.path, "outputs": outputs}


def _catboost(order: Order) -> Made:
    source = order.folder / "catboost-model.cpp"
    code = (
        "import catboost, sys; model = catboost.CatBoostClassifier().load_model(sys.argv[1]);"
        "model.save_model(sys.argv[2], format='cpp')"
    )
    _run(order.python, "-c", code, order.job.path, str(source))
    return compiled_cpp("catboost", order.folder / "catboost", f'-DMODEL="{source}"'), {}


def _native(order: Order) -> Made:
    if order.job.model in ("catboost-6", "catboost-8"):
        return _catboost(order)
    return (_lightgbm if order.job.model == "lightgbm" else _xgboost)(order)


def _lleaves(order: Order) -> Made:
    linked = order.folder / "lleaves.o"
    linked.write_bytes(Path(order.job.artifact).read_bytes())
    program = compiled("lleaves", order.folder / "lleaves", str(linked))
    return program, {"outputs": order.outputs(both=False)}


def _tl2cgen(order: Order) -> Made:
    return compiled("tl2cgen", order.folder / "tl2cgen"), {"model": order.job.artifact}


def _onnx(order: Order) -> Made:
    library = shared_library(package_folder(order.python, "onnxruntime") / "capi", "libonnxruntime.so.*")
    names = _run(
        order.python,
        "-c",
        "import onnx, sys; g = onnx.load(sys.argv[1]).graph; print(g.input[0].name, g.output[-1].name)",
        order.job.artifact,
    ).split()
    arguments = {
        "library": library,
        "model": order.job.artifact,
        "input": names[0],
        "output": names[1],
        "outputs": order.outputs(both=True),
    }
    return compiled("onnxruntime", order.folder / "onnx"), arguments


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise PeerError(lines[-1])
    return done.stdout


INTERFACES = {
    "hbtvm": Interface(_hbtvm, tuple(MODELS)),
    "native": Interface(_native, ("lightgbm", "xgboost", "catboost-6", "catboost-8"), converts=False),
    "lleaves": Interface(_lleaves, ("lightgbm",)),
    "onnx": Interface(_onnx),
    "tl2cgen": Interface(_tl2cgen),
}
"""By the names that `benchmarks.peers` has for the libraries. scikit-learn has no C interface."""
