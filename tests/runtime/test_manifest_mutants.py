"""Manifests with right hashes and wrong values: refused when loaded, or as good as they were.

Values all over the manifests of real packages, one for each strategy, are changed to others, one at a time. A
child process loads what comes of that and predicts, so that a crash is noticed.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.codec import binding
from hbtvm.errors import PackageError
from hbtvm.runtime.package.archive import read_archive
from hbtvm.runtime.package.file import _package, read, to_bytes
from hbtvm.runtime.package.manifest import MANIFEST
from hbtvm.strategies import STRATEGIES
from tests.ensembles import random_ensemble
from tests.runtime_models import kernel, package, random_rows, trained

ROOT = Path(__file__).parents[2]
MODEL = "lgb_three_nan"

FREE = (
    ("hbtvm_version",), ("tvm_version",), ("tuning",), ("library",), ("model",), ("target", "mcpu"),
    ("target", "vector_bits"),
    ("forest", "trees"), ("forest", "nodes"), ("forest", "leaves"), ("forest", "depth"),
)  # fmt: skip
"""Told to people, no matter for predictions."""

MODELS_OWN = (
    ("forest", "base_score"), ("forest", "divisor"), ("forest", "compare_dtype"), ("input",), ("output",),
)  # fmt: skip
"""What the model is: another value in its range is another model."""

CHILD = """
import json, sys
import numpy as np
from hbtvm.errors import HbtvmError, PackageError
from hbtvm.runtime.package.archive import read_archive
from hbtvm.codec import binding
from hbtvm.runtime.package.manifest import read_manifest
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import _package, from_bytes

folder = sys.argv[1]
data = open(folder + "/model.tar", "rb").read()
rows = np.load(folder + "/rows.npy")
expected = np.load(folder + "/expected.npy")
members = read_archive(data, "manifest.json")
for name in ("manifest.json", "manifest.sha256"):
    members.pop(name)
for line in open(folder + "/mutants.jsonl"):
    seal, manifest = json.loads(line)
    if seal and isinstance(manifest.get("kernels"), list):
        for entry in manifest["kernels"]:
            if isinstance(entry, dict):
                entry["binding"] = binding(entry)
    try:
        manifest = read_manifest(json.dumps(manifest).encode())
        model = Model(_package(manifest, dict(members)), threads=2)
        model.warm_up()
    except PackageError:
        print("refused", flush=True)
        continue
    try:
        got = np.concatenate([model.predict(rows[:n], "raw") for n in (1, 3, len(rows))])
        # Another node in place of the raw scores' may have more columns.
        error = float(np.abs(got - expected).max()) if got.shape == expected.shape else "other columns"
    except HbtvmError as problem:
        error = f"{type(problem).__name__}: {problem}"
    except Exception as problem:
        error = f"crash {type(problem).__name__}: {problem}"
    print(json.dumps(error), flush=True)
"""


@functools.cache
def made(strategy: str) -> bytes:
    """A package of kernels for one row and for many."""
    graph = trained(MODEL)[1]
    if strategy == "oblivious":
        rng, outputs = np.random.default_rng(0), graph.anchor.n_outputs
        ensemble = random_ensemble(rng, trees=12, groups=outputs, missing="mixed", oblivious=True)
        graph = replace(graph, anchor=ensemble)
    kernels = [kernel(graph, rows, strategy=strategy, seconds=rows * 1e-6) for rows in (1, 64)]
    return to_bytes(package(graph, *kernels))


def paths(value: Any, so_far: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values within a manifest, hashes and lists of members apart."""
    if so_far:
        yield so_far
    if isinstance(value, dict):
        for name, inner in value.items():
            if (so_far, name) != ((), "members"):
                yield from paths(inner, (*so_far, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:8]):
            yield from paths(inner, (*so_far, number))


def others(value: Any) -> list[Any]:
    """Values to put in place of one."""
    wild: list[Any] = [None, True, -1, 0, 10**30, float("nan"), 0.5, "x\x1b[31m", [], {}]
    if type(value) is int:
        return [*wild, value + 1, value - 1, value * 2, str(value), float(value)]
    if isinstance(value, float):
        return [*wild, -value, float("inf"), str(value)]
    if isinstance(value, str):
        return [*wild, value + "x", "float64", "float32", "trees", "tree_tiles", "tiles"]
    if isinstance(value, list) and len(value) > 1:
        return [None, 3, [], value[::-1], value[:-1], [*value, value[0]]]
    if isinstance(value, dict) and len(value) > 1:
        swapped = dict(zip(value, list(value.values())[1:] + list(value.values())[:1], strict=True))
        return [None, 3, [], {}, swapped, {**value, "surprise": 1}]
    return wild


def mutants(
    manifest: dict[str, Any], every: int, first: int = 0
) -> list[tuple[tuple[Any, ...], Any, dict[str, Any]]]:
    """Manifests in each of which one value is changed; from the first on each `every`-th of all there are."""
    found = []
    for path in paths(manifest):
        inner: Any = manifest
        for step in path:
            inner = inner[step]
        for value in others(inner):
            if repr(value) == repr(inner):
                continue
            changed = copy.deepcopy(manifest)
            place: Any = changed
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            found.append((path, value, changed))
    return found[first::every]


def outcomes(tmp_path: Path, data: bytes, changed: list[tuple[bool, dict[str, Any]]]) -> list[Any]:
    """What becomes of each manifest: ``"refused"``, a problem, or the largest difference.

    The first of each pair tells whether the entries' own hashes are made right again, so that what notices a
    wrong value is its meaning alone.
    """
    from hbtvm.runtime.model import Model
    from hbtvm.runtime.package.file import from_bytes

    model = Model(from_bytes(data), threads=2)
    rows = random_rows(200)
    rows[5, 1] = np.nan
    (tmp_path / "model.tar").write_bytes(data)
    np.save(tmp_path / "rows.npy", rows)
    expected = np.concatenate([model.predict(rows[:n], "raw") for n in (1, 3, len(rows))])
    np.save(tmp_path / "expected.npy", expected)
    (tmp_path / "mutants.jsonl").write_text("".join(json.dumps(one) + "\n" for one in changed))
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    at = changed[len(lines)] if len(lines) < len(changed) else None
    assert done.returncode == 0, f"{done.returncode} at {str(at)[:2000]}: {done.stderr[-2000:]}"
    return [line if line == "refused" else json.loads(line) for line in lines]


def starts(path: tuple[Any, ...], beginnings: tuple[tuple[str, ...], ...]) -> bool:
    return any(path[: len(one)] == one for one in beginnings)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_wrong_values_are_refused_or_harmless(tmp_path: Path, strategy: str) -> None:
    data = made(strategy)
    manifest = json.loads(bytes(read_archive(data, MANIFEST)[MANIFEST]))
    assert all(entry["binding"] == binding(entry) for entry in manifest["kernels"])
    tried: list[tuple[bool, tuple[Any, ...], Any, dict[str, Any]]] = []
    for seal, every in ((True, 10), (False, 41)):
        first = list(STRATEGIES).index(strategy) * every // len(STRATEGIES)
        tried += [(seal, *one) for one in mutants(manifest, every, first)]
    for seal in (True, False):
        tried += [(seal, ("tables",), None, one) for one in shuffled(manifest)]
    found = outcomes(tmp_path, data, [(seal, one) for seal, _, _, one in tried])
    assert found.count("refused") > 0.6 * len(tried)
    for (seal, path, value, _), outcome in zip(tried, found, strict=True):
        told = f"{path}: {value!r} ({outcome})"
        if outcome == "refused":
            assert not starts(path, FREE) or len(path) < 3, told
        elif path == ("tables",):
            assert seal and outcome == 0.0, told
        elif path[0] == "kernels" and not seal and len(path) > 1:
            raise AssertionError(told)
        elif starts(path, MODELS_OWN) or path[0] == "forest":
            assert not str(outcome).startswith("crash"), told
        elif path[2:] and path[2] == "missing":
            assert seal, told  # nothing but the hash tells whether rows may have missing values
        elif path[0] == "kernels":
            # Other kernels or threads for a call: sums in another order.
            assert isinstance(outcome, float) and outcome < 1e-5, told
        else:
            assert outcome == 0.0, told


def shuffled(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Manifests in each of which two tables of a kernel have changed places."""
    for number, entry in enumerate(manifest["kernels"]):
        for one, other in itertools.combinations(range(len(entry["tables"])), 2):
            swapped = copy.deepcopy(manifest)
            tables = swapped["kernels"][number]["tables"]
            tables[one], tables[other] = tables[other], tables[one]
            yield swapped


def test_a_gpus_manifest_is_checked_without_a_gpu() -> None:
    """A wrong number in what one of its kernels takes, of which no code can be asked here."""
    package = read(ROOT / "tests" / "data" / "package_v1_gpu.tar")
    members = read_archive(to_bytes(package), MANIFEST)
    manifest = json.loads(bytes(members.pop(MANIFEST)))
    members.pop("manifest.sha256")
    assert _package(manifest, members).kernels[0].launch is not None
    changes: list[tuple[tuple[Any, ...], Any]] = [
        (("signature", "parts"), 2), (("signature", "groups"), 7),
        (("signature", "arguments", 0, "shape", 1), 2),
        (("signature", "arguments", -1, "shape", 1), 3), (("signature", "arguments", 0, "shape", 2), 4),
        (("signature", "arguments", 0, "dtype"), "int32"), (("launch", "block"), [True, 1, 1]),
        (("launch", "block"), [4096, 1, 1]), (("launch", "shared"), -1), (("launch", "grid"), [[0, 7], 1, 1]),
        (("launch", "arguments"), [99]), (("launch", "function"), 3), (("launch",), None),
        (("launch", "carveout"), -1), (("launch", "carved"), 1),
    ]  # fmt: skip
    for path, value in changes:
        changed = copy.deepcopy(manifest)
        entry = place = changed["kernels"][0]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        entry["binding"] = binding(entry)
        with pytest.raises(PackageError, match="is damaged"):
            _package(changed, members)
