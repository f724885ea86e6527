"""What several files of tests use."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests import emulated


@pytest.fixture
def machine() -> Iterator[emulated.Machine]:
    """A machine with two GPUs, emulated."""
    with emulated.machine() as found:
        yield found


@pytest.fixture
def cupy(machine: emulated.Machine, monkeypatch: pytest.MonkeyPatch) -> type[emulated.Cupy]:
    """CuPy on that machine."""
    monkeypatch.setitem(sys.modules, "cupy", emulated.Cupy)  # type: ignore[arg-type]
    monkeypatch.setattr(emulated.Cupy.cuda, "stream", 0)
    emulated.Cupy.forget()
    return emulated.Cupy
