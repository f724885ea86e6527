"""Commands and workers start TVM without torch, which stays there for all else."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from hbtvm.tuning.measuring.start import start_without_torch
if {hide}:
    start_without_torch()
    start_without_torch()
import hbtvm.api
print("torch" in sys.modules, len([one for one in sys.meta_path if type(one).__name__ == "_Hidden"]))
import torch
print(float(torch.linalg.det(2 * torch.eye(3))))
"""


@pytest.mark.parametrize("hide", [True, False])
def test_torch_is_imported_by_those_who_ask_for_it(hide: bool) -> None:
    pytest.importorskip("torch")
    run = [sys.executable, "-c", CODE.format(hide=hide)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    # Without this, TVM imports torch: if it no longer does, `start_without_torch` can go.
    assert done.stdout.splitlines() == [f"{not hide} {int(hide)}", "8.0"], done.stderr
