"""Kernels for aarch64, compiled by the cross compiler and run by QEMU."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

from hbtvm.compiler.building.compilers import c_compiler, machine_options
from hbtvm.compiler.building.cpu import build_kernel
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import BuildError
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies import Operand, strategies_on, workload_of

ARM = resolve({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"})

ROOT = "/usr/aarch64-linux-gnu"
"""Where Debian keeps the C library of that architecture."""

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""DLPack's numbers of types, by numpy's letters."""


def emulator() -> list[str]:
    """Return the command that runs programs for aarch64; skip the test where there is none."""
    found = shutil.which("qemu-aarch64")
    if found is None:
        pytest.skip("qemu-aarch64 is missing; on Debian: apt-get install qemu-user")
    return [found, "-L", ROOT]


@functools.cache
def driver() -> Path:
    """Return the program that calls kernels; skip the test where it cannot be compiled."""
    try:
        compiler = c_compiler(ARM)
    except BuildError as error:
        pytest.skip(str(error))
    made = Path(tempfile.mkdtemp(prefix="hbtvm-driver-"), "driver")
    headers = Path(tvm_ffi.__file__).parent / "include"
    source = Path(__file__).with_name("kernel_driver.c")
    warnings = ("-Wall", "-Wextra", "-Werror")
    options = ("-std=c11", "-O1", "-rdynamic", *warnings, *machine_options(ARM), f"-isystem{headers}")
    subprocess.run([compiler, *options, str(source), "-o", str(made), "-ldl"], check=True)
    return made


def call(library: Path, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """Return the last argument after a kernel was called."""
    program, command = driver(), emulator()
    data = bytearray(struct.pack("<q", len(arguments)))
    for one in arguments:
        bits = 8 * one.dtype.itemsize
        head = (_CODES[one.dtype.kind], bits, one.ndim, *one.shape, one.nbytes)
        data += struct.pack(f"<{len(head)}q", *head) + one.tobytes() + bytes(-one.nbytes % 8)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "arguments"), Path(folder, "scores")
        given.write_bytes(data)
        subprocess.run([*command, str(program), str(library), str(given), str(made)], check=True)
        return np.frombuffer(made.read_bytes(), arguments[-1].dtype).reshape(arguments[-1].shape)


def run(
    operand: Operand, name: str, config: Config, X: np.ndarray, rows: int, target: Target = ARM
) -> np.ndarray:
    """Return the sums, float64 (n, O), of a kernel built for calls of `rows` rows."""
    driver(), emulator()
    strategy, workload = strategies_on(target, operand.family)[name], workload_of(operand, rows)
    entry = entry_of(operand, strategy, workload, config)
    own = entry.signature
    tiles = -(-len(X) // own.row_tile)
    padded = np.zeros(own.rows.sizes(tiles=tiles), own.dtype)
    padded.reshape(-1, own.n_features)[: len(X)] = X
    scores = np.full(own.scores.sizes(tiles=tiles), np.nan, own.scores.dtype)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "kernel.so")
        build_kernel(strategy, workload, config, target, str(library))
        made = call(library, [padded, *map(np.ascontiguousarray, entry.tables), scores])
    if own.by_row:
        return made.reshape(-1, own.outputs)[: len(X)].astype(np.float64)
    by_tile = made.reshape(tiles, own.outputs, own.row_tile).transpose(0, 2, 1)
    return by_tile.reshape(-1, own.outputs)[: len(X)]
