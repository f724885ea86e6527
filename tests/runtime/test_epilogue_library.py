"""The native epilogues as a library: its functions, structures and compilers."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hbtvm.operators.base import Input
from hbtvm.operators.pointwise import apply
from hbtvm.runtime.native.epilogues import epilogue as native
from hbtvm.runtime.native.epilogues.epilogue import EpilogueFields
from hbtvm.runtime.native.epilogues.select import epilogue_of
from hbtvm.runtime.native.functions import NUMBERS
from tests.epilogues import (
    NATIVE,
    Finisher,
    assert_same,
    columns,
    compiled,
    forests,
    rounded,
    scores_of,
    spec_of,
)


@pytest.fixture(scope="module")
def finisher(tmp_path_factory: pytest.TempPathFactory) -> Finisher:
    return Finisher(compiled(tmp_path_factory.mktemp("epilogue")))


def test_exponential(finisher: Finisher) -> None:
    """Errors of e to a power, in units of the last place."""
    rng = np.random.default_rng(5)
    middles = (np.arange(-1020, 1021) + 0.5) * np.log(2)
    powers = np.concatenate([rng.uniform(-708, 709.7, 40000), rng.normal(size=40000), middles])
    for dtype, most in (("float64", 0.7), ("float32", 0.501)):
        response = rounded(apply("exp", rounded(Input(1), dtype)), dtype)
        spec = spec_of("booster", 1, {"response": response})
        found = epilogue_of(spec, None, n_outputs=1)
        assert found is not None
        some = powers if dtype == "float64" else powers[np.abs(powers) < 87].astype(dtype).astype(np.float64)
        given = finisher.run(found, some[:, None])[1]
        exact = np.exp(some.astype(np.longdouble))
        off = np.abs(given.astype(np.longdouble) - exact) / np.spacing(exact.astype(dtype))
        assert off.max() <= most
    for power, result in (
        (0.0, 1.0),
        (-0.0, 1.0),
        (709.79, np.inf),
        (np.inf, np.inf),
        (-746.0, 0.0),
        (-np.inf, 0.0),
    ):
        spec = spec_of("booster", 1, {"response": apply("exp", Input(1))})
        found = epilogue_of(spec, None, n_outputs=1)
        assert found is not None
        assert finisher.run(found, np.array([[power]]))[1].tolist() == [result]


def test_compilers_agree(finisher: Finisher, tmp_path: Path) -> None:
    """Results do not depend on the compiler, nor on the instructions that it may use, to the last bit."""
    others = [Finisher(compiled(tmp_path, "-O1", "-march=native"))]
    if shutil.which("clang"):
        others.append(Finisher(compiled(tmp_path, "-march=native", compiler="clang")))
    for spec in (*forests(), *columns()):
        for output in (None, *spec.outputs):
            found = epilogue_of(spec, output, n_outputs=spec.n_outputs, exported=True)
            assert found is not None
            for n in (1, 33):
                raw = scores_of(spec, n)
                expected = finisher.run(found, raw)[1]
                for other in others:
                    assert_same(other.run(found, raw)[1], expected, 0)


def test_structures_agree(tmp_path: Path) -> None:
    """ctypes' structure has C's layout, and Python's numbers are those of the header."""
    header = (NATIVE / "epilogue/epilogue.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"\bHBTVM_(\w+) = (\d+)", header)}
    for kind in (native.Type, native.Rule):
        for one in kind:
            assert numbers.pop(one.name) == one, one
    functions = numbers.pop("FUNCTION")
    assert {name.upper(): value for name, value in native.STEPS.items() if value < functions} == numbers
    table = {name: value - functions for name, value in native.STEPS.items() if value >= functions}
    assert table and table.items() <= NUMBERS.items()
    assert f"HBTVM_MOST_COUPLED {native.MOST_COUPLED}\n" in header

    source = [
        '#include "epilogue/epilogue.h"',
        "#include <stddef.h>",
        "#include <stdio.h>",
        "int main(void) {",
    ]
    source += [
        f'printf("%zu\\n", offsetof(struct epilogue, {name}));'
        for name in [field[0] for field in EpilogueFields._fields_]
    ]
    source += ['printf("%zu\\n", sizeof(struct epilogue)); return 0; }']
    (tmp_path / "layout.c").write_text("\n".join(source))
    program = tmp_path / "layout"
    subprocess.run(["gcc", f"-I{NATIVE}", str(tmp_path / "layout.c"), "-o", str(program)], check=True)
    found = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    own = [getattr(EpilogueFields, field[0]).offset for field in EpilogueFields._fields_]
    assert [int(one) for one in found] == [*own, ctypes.sizeof(EpilogueFields)]


def test_sanitizers(tmp_path: Path) -> None:
    """No undefined behaviour, and no byte outside the scores, results and tables."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no address sanitizer")
    made = compiled(
        tmp_path, "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-g"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.epilogues", str(made)],
        cwd=root,
        env={
            **os.environ,
            "LD_PRELOAD": str(Path(library).resolve()),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": str(root),
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"
