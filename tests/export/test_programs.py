"""Libraries in programs of C and C++: linked both ways, from several threads, with sanitizers."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.compiler.exporting.export import write_library
from hbtvm.runtime.model import Model
from tests.export.programs import PROGRAM
from tests.exported import compile_program, run_program

LIBRARIES = ("first", "second")


@pytest.fixture(scope="module")
def models() -> tuple[Model, Model]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 4)), columns=list("abcd"))
    y = np.array(["low", "middle", 'high "\\ é'])[(X["a"] > 0).astype(int) + (X["b"] > 0.5)]
    first = LGBMClassifier(n_estimators=60, verbose=-1).fit(X, y)
    second = make_pipeline(StandardScaler(), Ridge()).fit(X.to_numpy(), X["a"] * 2 - X["c"])
    one, other = (hbtvm.compile(model, batch_sizes=(64,), threads=2) for model in (first, second))
    return one, other


@pytest.fixture(scope="module")
def folder(models: tuple[Model, Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported") / "libraries"
    for name, model in zip(LIBRARIES, models, strict=True):
        hbtvm.export(model, made, name, force=True)
    return made


def linked(folder: Path, kind: str) -> list[str]:
    """Options that link both libraries."""
    if kind == "static":
        return [f"-I{folder}", *(str(folder / f"lib{name}.a") for name in LIBRARIES)]
    return [f"-I{folder}", f"-L{folder}", *(f"-l{name}" for name in LIBRARIES), f"-Wl,-rpath,{folder}"]


@pytest.fixture(scope="module")
def expected(models: tuple[Model, Model]) -> str:
    """What the program writes, computed in Python."""
    state, values = 1, []
    for _ in range(5000 * 4):
        state = (state * 1103515245 + 12345) & 0xFFFFFFFF
        values.append(((state >> 16) % 4096) / 1024 - 2)
    rows = np.array(values).reshape(5000, 4)
    first, second = models
    labels = np.searchsorted(first.classes_, first.predict(rows))
    total = 0.0
    for number, label, share in zip(
        second.predict(rows), labels, first.predict_proba(rows)[:, 0], strict=True
    ):
        total += float(number) + float(label) * float(share)
    return total.hex()


@pytest.mark.parametrize(
    ("compiler", "kind"),
    [("gcc", "static"), ("g++", "shared"), ("clang", "shared"), ("clang++", "static")],
)
def test_two_libraries_in_one_program(
    compiler: str, kind: str, folder: Path, expected: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / ("program.cpp" if "+" in compiler else "program.c")
    source.write_text(PROGRAM)
    options = [] if "+" in compiler else ["-D_GNU_SOURCE"]
    compile_program(compiler, [source], tmp_path / "program", *options, *linked(folder, kind))
    written = run_program(tmp_path / "program", "fork")
    assert float.fromhex(written) == float.fromhex(expected)


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(
    sanitizer: str, models: tuple[Model, Model], expected: str, tmp_path: Path
) -> None:
    """In the executor, and in what is generated; kernels are compiled by TVM."""
    options = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", "-O1"]
    for name, model in zip(LIBRARIES, models, strict=True):
        write_library(model.package, tmp_path, name, options)
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    program = tmp_path / "program"
    compile_program("gcc", [source], program, "-D_GNU_SOURCE", *options, *linked(tmp_path, "static"))
    # The sanitizer of threads does not follow threads that a forked child starts.
    arguments = ["fork"] if sanitizer != "thread" else []
    written = run_program(program, *arguments, **os.environ, ASAN_OPTIONS="detect_leaks=1")
    assert float.fromhex(written) == float.fromhex(expected)


def test_headers_stand_alone(folder: Path, tmp_path: Path) -> None:
    for compiler, name in itertools.product(("gcc", "g++"), LIBRARIES):
        source = tmp_path / ("only.cpp" if "+" in compiler else "only.c")
        source.write_text(f'#include "{name}.h"\n#include "{name}.h"\nint main(void) {{ return 0; }}\n')
        compile_program(compiler, [source], tmp_path / "only", f"-I{folder}")


@pytest.mark.parametrize("name", LIBRARIES)
def test_examples(name: str, folder: Path, models: tuple[Model, Model], tmp_path: Path) -> None:
    """As their first lines say."""
    alone = tmp_path / "alone"
    hbtvm.export(models[LIBRARIES.index(name)], alone, name)
    told = re.findall(r"^ \* With the .*?:  (cc .*)$", (alone / "example.c").read_text(), re.MULTILINE)
    assert len(told) == 2
    for command in told:
        subprocess.run(command, shell=True, cwd=alone, check=True)
        assert len(run_program(alone / "example").splitlines()) == 2


def test_only_versioned_functions_are_seen(folder: Path) -> None:
    for name in LIBRARIES:
        declared = set(re.findall(rf"\b{name}_\w+(?=\()", (folder / f"{name}.h").read_text()))
        listed = _output("nm", "-D", "--defined-only", str(folder / f"lib{name}.so"))
        seen = {line.split()[2] for line in listed if line.split()[1] != "A"}
        assert seen == {f"{one}@@{name}_1.0" for one in declared}
        listed = _output("nm", "-g", "--defined-only", str(folder / f"lib{name}.a"))
        assert {line.split()[2] for line in listed if len(line.split()) == 3} == declared


def test_nothing_but_the_c_library_is_needed(folder: Path) -> None:
    for name in LIBRARIES:
        path = str(folder / f"lib{name}.so")
        dynamic = "\n".join(_output("readelf", "-dW", path))
        assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == [f"lib{name}.so"]
        assert "TEXTREL" not in dynamic
        needed = {one.split(".")[0] for one in re.findall(r"NEEDED.*\[(.*)\]", dynamic)}
        assert needed <= {"libc", "libm", "libpthread", "ld-linux-x86-64"}
        # Nothing is loaded or opened.
        called = {line.split()[-1].split("@")[0] for line in _output("nm", "-D", "-u", path)}
        assert not called & {"dlopen", "dlsym", "open", "fopen", "open64", "mmap", "getenv"}
        stack = [line for line in _output("readelf", "-lW", path) if "GNU_STACK" in line]
        assert stack and "RWE" not in stack[0]


def _output(*command: str) -> Sequence[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
