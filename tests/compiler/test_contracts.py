"""Workloads and targets are typed, and stand in logs as they always did."""

from __future__ import annotations

import json
import typing

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.logs.query import shipped
from hbtvm.logs.record import Record
from hbtvm.schedules.workload import Target, Workload
from hbtvm.strategies import make_forest, workload_of
from tests.ensembles import random_ensemble

KEY = (
    '{"categorical":0,"category_size":0,"category_words":1,"depth":5,"dtype":"float32","features":4,'
    '"fills_missing":false,"groups":1,"leaves":8,"negative_fraction_is_zero":false,"nodes":15,"numeric":4,'
    '"rank_bits":3,"rows":100,"threads":1,"trees":5,"value_dtype":"float64","width":1,"zeros_missing":false}'
)
"""What logs have had for this forest since the first release, to the byte."""


def test_a_workload_has_the_entries_that_are_documented() -> None:
    forest = make_forest(random_ensemble(np.random.default_rng(0)), "float32", "float64")
    workload = workload_of(forest, 100, 2)
    types = typing.get_type_hints(Workload)
    assert set(workload) == set(types)
    for name, kind in types.items():
        value = workload[name]  # type: ignore[literal-required]
        if typing.get_origin(kind) is typing.Literal:
            assert value in typing.get_args(kind)
        else:
            assert type(value) is kind, name
    record = Record(workload=workload, strategy="gemm", target={"kind": "llvm"}, config={}, times=(1.0,))
    assert record.workload_key == KEY


@pytest.mark.parametrize(
    "given", ["cpu", {"kind": "llvm", "mcpu": "haswell"}, {"kind": "cuda", "arch": "sm_90"}]
)
def test_a_target_has_entries_that_are_documented(given: str | dict[str, str]) -> None:
    types = typing.get_type_hints(Target)
    for name, value in resolve(given).items():
        assert type(value) is (typing.get_origin(types[name]) or types[name]), name


def test_records_that_ship_have_the_workloads_of_today() -> None:
    """Else none of them would be found any more."""
    records = shipped()
    assert records
    for record in records:
        assert record.workload.keys() == typing.get_type_hints(Workload).keys()
        assert record.target.keys() <= typing.get_type_hints(Target).keys()
        line = json.dumps(record.workload, sort_keys=True, separators=(",", ":"))
        assert record.workload_key == line
        assert json.loads(record.to_line())["workload"] == record.workload
