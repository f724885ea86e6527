"""Counters of categories in front of kernels on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hbtvm
from hbtvm.runtime.model import Model
from tests import emulated
from tests.data.catboost.make import frame
from tests.emulated import SM90, Machine

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))

FILES = Path(__file__).parents[1] / "data" / "catboost"


def test_the_package_has_their_code(machine: Machine) -> None:
    package = hbtvm.compile(FILES / "1.2.10-counters.cbm", target=SM90, batch_sizes=64).package
    X, answers = frame(), np.load(FILES / "1.2.10-counters.npy")
    # An executor for another machine is no obstacle.
    for executor, in_c in ((package.executor, True), (b"\x7fELF of another machine", False), (b"", False)):
        model = Model(replace(package, executor=executor))
        np.testing.assert_allclose(model.predict(X), answers, rtol=1e-5)
        np.testing.assert_allclose(model.predict(X.iloc[3:4]), answers[3:4], rtol=1e-5)
        pipeline = model._kernels.pipeline
        assert pipeline is not None
        kernels = [operation.kernel for operation in pipeline.counters._operations]
        assert [kernel is not None for kernel in kernels] == [in_c]


def test_other_packages_have_no_executor(machine: Machine) -> None:
    assert not emulated.package("lgb_two").executor
