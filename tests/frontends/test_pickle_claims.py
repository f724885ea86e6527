"""Pickles that claim what the rest of them denies, or more than memory holds; and files changed at random."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import load_model, pickles, registry
from hbtvm.frontends.pickles import Record
from tests.frontends import fuzz
from tests.frontends.hostile import GREEDY, READER, filed, text
from tests.models import ZOO


def _read_alone(paths: list[Path]) -> dict[str, tuple[str, int]]:
    """What came of reading each file in a process of its own, and the bytes of memory that it took."""
    command = [sys.executable, "-c", READER, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {Path(path).stem: (told, taken) for path, told, taken in found}


def test_memory_stays_in_proportion_to_the_file(tmp_path: Path) -> None:
    paths = []
    for name, content in GREEDY.items():
        paths.append(tmp_path / f"{name}.pkl")
        paths[-1].write_bytes(content)
    found = _read_alone(paths)
    assert set(found) == set(GREEDY)
    for name, (told, taken) in found.items():
        assert told != "model" and told.isprintable(), name
        assert taken < 10 * len(GREEDY[name]) + 100_000_000, name
    assert "more than 4096 keys" in found["keys that collide"][0]
    assert "more than 4096 keys" in found["tuples that collide"][0]


def test_a_bomb_does_not_expand(tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte ends at its first byte, as zero is no operation."""
    packer = zlib.compressobj(1)
    content = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    path = filed(content, tmp_path)
    told, taken = _read_alone([path])[path.stem]
    assert "damaged or none" in told and taken < 50_000_000


def _with(model: Any, change: Callable[[dict[str, Any]], None]) -> Record:
    record = pickles.from_live(model)
    assert isinstance(record, Record)
    change(record.state)
    return record


CLAIMS: dict[str, tuple[str, str, Any]] = {
    "outputs of a tree": ("sk_tree_pair", "n_outputs_", 10**9),
    "outputs of a forest": ("sk_forest_real_nan", "n_outputs_", 10**9),
    "outputs of labels": ("sk_forest_pair_labels", "n_outputs_", 10**9),
    "trees of an iteration": ("sk_hist_three", "n_trees_per_iteration_", 10**9),
    "columns of bins": ("sk_hist_three", "n_features_in_", 10**9),
    "more than 32 bits": ("sk_tree_two", "n_features_in_", 10**12),
    "classes of XGBoost": ("xgb_three", "n_classes_", 10**9),
    "a fraction": ("sk_tree_two", "n_features_in_", 1.5),
    "a string": ("sk_tree_two", "n_features_in_", "4"),
    "no number at all": ("sk_isolation_nan", "offset_", float("nan")),
    "labels that are objects": ("sk_tree_two", "classes_", [object]),
    "no labels": ("sk_boost_three", "classes_", []),
    "a label too many": ("lgb_two", "_classes", ["a", "b", "c"]),
    "best of LightGBM": ("lgb_three_nan", "_Booster", 5),
    "no trees": ("sk_forest_two", "estimators_", []),
    "other trees": ("sk_forest_two", "estimators_", [1, 2]),
    "no list": ("sk_boost_two", "estimators_", 7),
    "no start": ("sk_boost_two", "init_", None),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_that_the_rest_denies_are_refused(name: str) -> None:
    model, attribute, value = CLAIMS[name]
    record = _with(ZOO[model](), lambda state: state.__setitem__(attribute, value))
    tracemalloc.start()
    with pytest.raises(ModelError, match=r"\w"):
        registry.read(record)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2_000_000


def test_a_billion_columns_cost_nothing() -> None:
    record = _with(ZOO["sk_tree_two"](), lambda state: state.__setitem__("n_features_in_", 10**9))
    tracemalloc.start()
    with contextlib.suppress(ModelError):
        registry.read(record)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize(
    ("model", "attribute"),
    [
        ("sk_forest_three_nan", "estimators_"),
        ("sk_isolation_nan", "estimators_"),
        ("sk_hist_three_cat", "_predictors"),
    ],
)
def test_one_tree_is_no_forest_of_a_million(model: str, attribute: str) -> None:
    """A list of the same tree takes two bytes of the file for each, but would take kilobytes here."""
    record = pickles.from_live(ZOO[model]())
    first = record.sequence(attribute)[0]
    record.attributes[attribute] = [first] * 100_000
    if "estimators_features_" in record:
        record.attributes["estimators_features_"] = [record.sequence("estimators_features_")[0]] * 100_000
    with pytest.raises(ModelError, match="share their arrays too often"):
        registry.read(record)
    record.attributes[attribute] = [first] * 3
    if "estimators_features_" in record:
        del record.attributes["estimators_features_"][3:]
    assert registry.read(record).anchor.n_trees >= 3


def test_forged_tree_links_are_refused() -> None:
    """scikit-learn's own tree would follow them out of its memory."""
    for child in (10_000, -7, 0):
        record = pickles.from_live(ZOO["sk_isolation_nan"]())
        tree = record.records("estimators_")[0].record("tree_")
        nodes = tree.array("nodes", "V").copy()
        nodes["left_child"][0] = child
        tree.attributes["nodes"] = nodes
        with pytest.raises(ModelError, match="tree 0"):
            registry.read(record)


def test_fuzzing_finds_no_fault() -> None:
    """A thousand here; ``python -m tests.frontends.fuzz`` does ten thousand."""
    found = fuzz.run(1000)
    assert not found.faults, found.faults
    assert sum(found.outcomes.values()) == 1000
    assert found.outcomes["model"] > 20 and found.outcomes["ModelError"] > 100


def test_the_fuzzer_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
    assert list(fuzz._lines(crash)) == ["the process ended with -11"]
    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    assert list(fuzz._lines([sys.executable, "-c", "import time; time.sleep(60)"])) == ["hung in native code"]


def test_a_supported_name_of_another_library_is_none(tmp_path: Path) -> None:
    content = b"\x80\x04" + text("evil.tree") + text("DecisionTreeClassifier") + b"\x93)\x81."
    with pytest.raises(UnsupportedModel, match="from module 'evil'"):
        load_model(filed(content, tmp_path))
