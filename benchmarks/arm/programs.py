"""Programs for 64-bit Arm CPUs that predict with one library's code each, linked statically."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hbtvm

TRIPLE = "aarch64-linux-gnu"
LIBRARIES = ("hbtvm", "lleaves", "treelite")

_HERE = Path(__file__).parent
_NATIVE = _HERE.parent / "native"

# Run in lleaves' environment. lleaves optimises for no particular CPU; its machine code is for the one named.
_LLEAVES = """
import sys
import llvmlite.binding as llvm
from lleaves.compiler import tree_compiler
model, to, triple, cpu = sys.argv[1:]
llvm.initialize_native_target(), llvm.initialize_all_targets(), llvm.initialize_all_asmprinters()
tree_compiler.llvm.get_process_triple = lambda: triple
module = tree_compiler.compile_to_module(model)
machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3, reloc="pic")
open(to, "wb").write(machine.emit_object(module))
"""

_TREELITE = """
import sys
import tl2cgen, treelite
model = treelite.frontend.load_lightgbm_model(sys.argv[1])
tl2cgen.generate_c_code(model, dirpath=sys.argv[2], params={})
"""


@dataclass(frozen=True)
class Order:
    """What a program is built of.

    Attributes
    ----------
    model
        A LightGBM model file.
    folder
        Gets the program.
    cpu
        LLVM's name of the CPU.
    rows
        Rows of the calls that hbtvm's kernels suit.
    python
        The interpreter of the library's environment; not used for hbtvm.
    strategies
        Those that hbtvm may choose from; None for all.
    """

    model: Path
    folder: Path
    cpu: str
    rows: tuple[int, ...]
    python: str
    strategies: list[str] | None = None


def program(library: str, order: Order) -> Path:
    """Build the program of one of the `LIBRARIES`.

    Raises
    ------
    subprocess.CalledProcessError
        If a tool fails.
    """
    folder = order.folder
    folder.mkdir(parents=True, exist_ok=True)
    if library == "hbtvm":
        target = {"kind": "llvm", "mcpu": order.cpu, "mtriple": TRIPLE}
        options: dict[str, Any] = {} if order.strategies is None else {"strategies": order.strategies}
        compiled = hbtvm.compile(order.model, target=target, batch_sizes=order.rows, threads=1, **options)
        hbtvm.export(compiled, folder / "export", "model", force=True)
        included = f"-I{folder / 'export'}"
        parts = [str(_NATIVE / "hbtvm.c"), "-DPREDICT=model_predict_f32", "-DRESULT=double", included]
        return _linked(folder, [*parts, str(folder / "export" / "libmodel.a")])
    if library == "lleaves":
        made = folder / "lleaves.o"
        command = [order.python, "-c", _LLEAVES, str(order.model), str(made), TRIPLE, order.cpu]
        subprocess.run(command, check=True)
        return _linked(folder, [str(_NATIVE / "lleaves.c"), str(made)])
    subprocess.run([order.python, "-c", _TREELITE, str(order.model), str(folder)], check=True)
    names = [source["name"] for source in json.loads((folder / "recipe.json").read_text())["sources"]]
    sources = [str(folder / f"{name}.c") for name in names]
    return _linked(folder, [str(_HERE / "treelite.c"), "-O3", f"-mcpu={_gcc_name(order.cpu)}", *sources])


def _gcc_name(cpu: str) -> str:
    """Return gcc 12's name of a CPU, or of the one most like it."""
    return {"neoverse-v2": "neoverse-v1", "apple-m1": "cortex-x1"}.get(cpu, cpu)


def _linked(folder: Path, arguments: list[str]) -> Path:
    to = folder / "program"
    command = [f"{TRIPLE}-gcc", "-std=c11", "-O2", "-static", "-o", str(to), str(_HERE / "driver.c")]
    subprocess.run([*command, *arguments, "-lm", "-lpthread"], check=True)
    return to
