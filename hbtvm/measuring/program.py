"""The program with which workers check and time candidates of an unpacked archive.

Its interface is `hbtvm.tuning.measuring.program.Program`; it builds nothing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm import codec
from hbtvm.measuring.checked import CheckedKernel
from hbtvm.measuring.device import DeviceCandidate
from hbtvm.runtime.native.executor import OneKernel
from hbtvm.runtime.native.library import load_kernels, load_library
from hbtvm.runtime.package.kernel import KernelEntry
from hbtvm.runtime.package.tables import table_from_bytes
from hbtvm.tuning.measuring.program import InvalidConfigError

PROGRAM = "hbtvm.measuring.program:ExportedProgram"


class ExportedProgram:
    """One candidate.

    `payload`: ``folder`` (see `hbtvm.measuring.archive.Trials.unpack`), ``candidate`` (its number) and
        ``device`` (the GPU's number).
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        self._folder, self._device = Path(payload["folder"]), int(payload.get("device", 0))
        self._description: dict[str, Any] = json.loads(
            (self._folder / f"{payload['candidate']}.json").read_text()
        )

    def build(self, config: Mapping[str, Any], library_path: str) -> str | None:
        """Raise an error: an archive's candidates are built."""
        raise InvalidConfigError("candidates of an archive are built already")

    def load(self, config: Mapping[str, Any], library_path: str) -> CheckedKernel:
        """Load the kernel and its tables."""
        description = self._description
        entry, data, count = self._entry(), description["data"], description["rows"]
        sample, expected = _rows(self._folder / data["rows"]), _array(self._folder / data["expected"])
        check = sample[: len(expected)], expected, data["tolerance"]
        if entry.launch is not None:
            device = DeviceCandidate(entry, self._device)
            rows = sample[: min(count, len(sample))]
            return CheckedKernel(
                device.run, rows, *check, clock=lambda X, number: device.seconds(X, number, count)
            )
        (function,) = load_kernels([entry.library])
        library = load_library((self._folder / description["executor"]).read_bytes())
        threads = 1 if entry.parallel == "none" else description["threads"]
        kernel = OneKernel(library, function, entry, threads)
        rows = _repeated(self._folder / data["rows"], count)
        return CheckedKernel(kernel.run, rows, *check, poison=kernel.executor.poison)

    def _entry(self) -> KernelEntry:
        """The candidate's kernel, checked as in a package."""
        kernel = self._description["kernel"]
        library = (self._folder / kernel["library"]).read_bytes()
        tables = {name: _array(self._folder / name) for name in kernel["tables"]}
        return codec.read(KernelEntry, kernel, {kernel["library"]: library, **tables})


def _array(path: Path) -> np.ndarray:
    return table_from_bytes(path.name, memoryview(path.read_bytes()))


@functools.lru_cache(maxsize=2)
def _rows(path: Path) -> np.ndarray:
    """The rows of a file, cached for the next candidate."""
    return _array(path)


@functools.lru_cache(maxsize=2)
def _repeated(path: Path, count: int) -> np.ndarray:
    """`count` rows: those of a file, repeated."""
    rows = _rows(path)
    if count <= len(rows):
        return np.ascontiguousarray(rows[:count])
    return np.concatenate([rows] * (-(-count // len(rows))))[:count]
