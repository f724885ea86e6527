"""A kernel's signature is what its tensor expressions take, and what its tables are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.runtime.package.contents import check_contents
from hbtvm.runtime.package.signature import Signature
from hbtvm.schedules.cpu.steps import WIDE
from hbtvm.strategies import make_forest, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests.ensembles import random_ensemble

TARGETS = {
    "cpu": resolve({"kind": "llvm", "mcpu": "x86-64-v4"}),
    "cuda": resolve({"kind": "cuda", "arch": "sm_90"}),
    "arm": resolve({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}),
}
NAMES = [
    (kind, name)
    for kind, target in TARGETS.items()
    for name in strategies_on(target)
    if kind != "arm" or name not in strategies_on(TARGETS["cpu"])
]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed": {"missing": "mixed", "categories": True, "compare_dtype": "float64"},
    "zeros_missing_groups": {"missing": "zero", "groups": 3, "trees": 7},
    "vector_leaves": {"missing": "as_zero", "width": 3},
    "full_word": {"max_leaves": 32},
    "second_word": {"max_leaves": 33},
    "last_word": {"max_leaves": 64, "chain": True, "trees": 3},
    "single_leaves": {"max_leaves": 1},
    "deep": {"max_leaves": 300, "trees": 3},
    "wide": {"features": WIDE + 5, "trees": 40},
}
DTYPES: list[tuple[DType, DType]] = [("float32", "float32"), ("float32", "float64"), ("float64", "float32")]


def made(kind: str, name: str, case: str) -> Any:
    """Forests, workloads and configurations: the default one and some drawn ones."""
    rng = np.random.default_rng(5)
    ensemble = random_ensemble(rng, **CASES[case])
    strategy, target = strategies_on(TARGETS[kind])[name], TARGETS[kind]
    for dtype, value_dtype in DTYPES:
        forest = make_forest(ensemble, dtype, value_dtype)
        for rows in (1, 1000):
            workload = workload_of(forest, rows)
            if strategy.refuse(workload) is None:
                space = strategy.space(workload, target)
                drawn = space.sample(rng, 4)
                for config in [strategy.default(workload, target), *drawn]:
                    if space.contains(config):
                        yield strategy, forest, workload, config


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_it_is_what_the_expressions_take(kind: str, name: str, case: str) -> None:
    for strategy, _, workload, config in made(kind, name, case):
        signature = strategy.signature(workload, config)
        parameters = list(strategy.function(workload, config).params)
        assert len(parameters) == len(signature.arguments)
        for argument, given in zip(signature.arguments, parameters, strict=True):
            shape = tuple(int(one) if hasattr(one, "value") else str(one.name) for one in given.shape)
            assert (argument.name, argument.dtype, argument.shape) == (given.name, given.dtype, shape), config
            if kind == "cpu":
                assert argument.alignment == given.data_alignment


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_it_is_what_the_tables_are(kind: str, name: str, case: str) -> None:
    for strategy, forest, workload, config in made(kind, name, case):
        entry = entry_of(forest, strategy, workload, config)
        named = entry.signature.check_tables(entry.tables)
        check_contents(entry.signature, entry.tables)
        assert codec.read(Signature, codec.write(entry.signature)) == entry.signature
        tables = {**strategy.shared(forest), **strategy.tables(forest, config)}
        assert list(tables) == [argument.name for argument in entry.signature.tables]
        for argument, table in zip(entry.signature.tables, entry.tables, strict=True):
            assert argument.nbytes(**named) == table.nbytes


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_contents_that_lead_astray_are_noticed(kind: str, name: str) -> None:
    """Whatever a number that leads somewhere is changed to, it leads beyond the table, or is noticed."""
    rng = np.random.default_rng(9)
    for case in ("plain", "mixed", "vector_leaves"):
        for strategy, forest, workload, config in made(kind, name, case):
            entry = entry_of(forest, strategy, workload, config)
            for number, argument in enumerate(entry.signature.tables):
                if argument.contents is None or argument.contents.kind == "sorted":
                    continue
                for value in (2**30, -(2**30)):
                    table = entry.tables[number].copy()
                    if argument.contents.kind == "mask":
                        table[...] = 1 if value > 0 else 0
                    elif argument.contents.kind == "path":
                        table[table == -1] = 1
                    elif argument.contents.kind == "interval":
                        part = rng.integers(2)  # the column, or the leaf
                        axis = -2 if config["axis"] == "trees" else -1
                        np.moveaxis(table, axis, 0)[3 * part] = 100 if value > 0 else -1
                    elif argument.contents.kind == "node_word" and workload["dtype"] == "float64":
                        table[...] = value
                    elif argument.contents.kind in ("walk", "flagged_walk"):
                        words = table.view(f"int{8 * table.itemsize}")
                        words[:, -1] = value if table.itemsize == 4 else value << 30
                    else:
                        # A ranked word of small lower bits is one of another rank.
                        low = value < 0 or argument.contents.kind == "ranked_word"
                        spoiled = value if table.itemsize > 2 and not low else (-1 if low else 100)
                        shift = 32 if argument.contents.kind == "node_word" else 0
                        table.reshape(-1)[rng.integers(table.size)] = spoiled << shift
                    tables = (*entry.tables[:number], table, *entry.tables[number + 1 :])
                    if argument.contents.kind == "path" and not (entry.tables[number] == -1).any():
                        continue
                    with pytest.raises(ValueError, match=argument.name):
                        check_contents(entry.signature, tables)
