"""Damaged and lying model files: a clear refusal, no crash, and no memory for what a file only claims."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbtvm.errors import ModelError
from hbtvm.frontends.build import MOST_FEATURES
from hbtvm.frontends.lightgbm.model import from_text
from hbtvm.frontends.xgboost.model import from_document, from_json
from hbtvm.words.printable import shown

ROOT = Path(__file__).parent.parent.parent
FILES = ROOT / "tests" / "data" / "files"
TEXT = (FILES / "lightgbm-3.3.5-regression.txt").read_text()
DOCUMENT = (FILES / "xgboost-2.1.4-softprob.json").read_bytes()


@pytest.mark.parametrize("name", ["json", "ubjson", "text", "cbm", "catboost"])
def test_mutants_are_read_or_refused(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.mutants", name, "500", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-2_000:]
    assert "ModelError" in done.stdout and "'read'" in done.stdout


def refused(read: Callable[[Any], Any], content: Any) -> str:
    """The refusal, made in next to no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as caught:
            read(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e6, f"{peak:,} bytes"
    text = str(caught.value)
    assert text.isprintable() and len(text) < 1_000
    return text


@pytest.mark.parametrize("key", ["num_class", "num_tree_per_iteration", "max_feature_idx"])
@pytest.mark.parametrize("claim", ["1000000000", "2147483647", "99999999999999", "9" * 5000])
def test_texts_that_claim_much(key: str, claim: str) -> None:
    lines = [f"{key}={claim}" if line.startswith(f"{key}=") else line for line in TEXT.split("\n")]
    if key == "num_class":  # what LightGBM goes by, and we do, is the number of trees of an iteration
        lines = [line for line in lines if not line.startswith("num_tree_per_iteration=")]
    text = "\n".join(lines)
    assert "damaged" in refused(from_text, text) or "features" in refused(from_text, text)
    without = text[: text.index("Tree=0")] + "end of trees\n"
    refused(from_text, without)


@pytest.mark.parametrize("key", ["num_leaves", "num_cat"])
def test_trees_that_claim_much(key: str) -> None:
    lines = TEXT.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key}="))
    if key == "num_cat":
        at = next(i for i, line in enumerate(lines) if line.startswith("num_cat=") and line != "num_cat=0")
    lines[at] = f"{key}=1000000000"
    assert "expected" in refused(from_text, "\n".join(lines))


def document(**changes: Any) -> Any:
    """The sample with some parameters changed."""
    found = json.loads(DOCUMENT)
    found["learner"]["learner_model_param"].update(changes)
    return found


@pytest.mark.parametrize("claim", ["1000000000", "9223372036854775807", "9" * 400])
@pytest.mark.parametrize("key", ["num_feature", "num_class", "num_target"])
def test_documents_that_claim_much(key: str, claim: str) -> None:
    refused(from_document, document(**{key: claim}))


def test_softmax_of_a_single_score() -> None:
    claims = document(num_class="1")
    model = claims["learner"]["gradient_booster"]["model"]
    model["tree_info"] = [0] * len(model["tree_info"])
    assert "softmax of 1 score" in refused(from_document, claims)
    text = (FILES / "lightgbm-3.3.5-multiclass.txt").read_text()
    lines = text.replace("num_tree_per_iteration=3", "num_tree_per_iteration=1")
    assert "multiclass, with 1 score" in refused(from_text, lines)


def test_wide_leaves_that_are_not_there() -> None:
    claims = document(num_class="1000000000", num_target="1000000000")
    model = claims["learner"]["gradient_booster"]["model"]
    for tree in model["trees"]:
        tree["tree_param"]["size_leaf_vector"] = "1000000000"
    refused(from_document, claims)
    for tree in model["trees"]:
        tree["leaf_weights"] = []
    refused(from_document, claims)
    for tree in model["trees"]:
        tree["tree_param"]["size_leaf_vector"] = "2"
        tree["leaf_weights"] = [0.5] * (2 * len(tree["left_children"]))
        tree["right_children"] = [
            0 if left < 0 else right
            for left, right in zip(tree["left_children"], tree["right_children"], strict=True)
        ]
    assert "2 values for 1000000000 scores" in refused(from_document, claims)


def test_many_large_category_sets() -> None:
    found = json.loads((FILES.parent / "xgboost_2_1_categories.json").read_bytes())
    trees = found["learner"]["gradient_booster"]["model"]["trees"]
    tree = next(tree for tree in trees if tree["categories_nodes"])
    overlapping = json.loads(json.dumps(found))
    sizes = next(
        t for t in overlapping["learner"]["gradient_booster"]["model"]["trees"] if t["categories_nodes"]
    )
    sizes["categories_segments"] = [0] * len(tree["categories_nodes"])
    sizes["categories_sizes"] = [len(tree["categories"])] * len(tree["categories_nodes"])
    if len(tree["categories_nodes"]) > 1:
        assert "overlap" in refused(from_document, overlapping)
    # One category for each node, the largest there may be: 16 MiB for each of a hundred trees.
    only = {
        **tree,
        "categories": [(1 << 24) - 1],
        "categories_nodes": [tree["categories_nodes"][0]],
        "categories_segments": [0],
        "categories_sizes": [1],
    }
    found["learner"]["gradient_booster"]["model"]["trees"] = [only] * 100
    found["learner"]["gradient_booster"]["model"]["tree_info"] = [0] * 100
    with pytest.raises(ModelError, match="categorical splits list more than"):
        from_document(found)


def test_models_with_as_many_features_as_are_supported() -> None:
    assert from_document(document(num_feature=str(MOST_FEATURES))).input.n_features == MOST_FEATURES
    with pytest.raises(ModelError, match=r"16,777,217 features; at most 16,777,216 are supported"):
        from_document(document(num_feature=str(MOST_FEATURES + 1)))


ESCAPES = "\x1b[2J\x1b[31mdone\x07\r\n\u202egnp.exe\x9b" + "A" * 5_000


def test_what_files_say_moves_no_cursor() -> None:
    found = json.loads(DOCUMENT)
    found["learner"]["objective"]["name"] = ESCAPES
    assert r"\x1b[2J\x1b[31mdone\x07\r\n\u202egnp" in refused(from_document, found)
    found["learner"]["gradient_booster"]["name"] = ESCAPES
    assert r"\x1b" in refused(from_document, found)
    refused(from_document, document(base_score=ESCAPES))
    refused(from_document, document(num_feature=ESCAPES))
    line = ESCAPES.replace("\n", "")
    for key in ("objective", "num_tree_per_iteration", "max_feature_idx"):
        lines = [f"{key}={line}" if one.startswith(f"{key}=") else one for one in TEXT.split("\n")]
        refused(from_text, "\n".join(lines))
    lines = [f"leaf_value={line}" if one.startswith("leaf_value=") else one for one in TEXT.split("\n")]
    refused(from_text, "\n".join(lines))
    lines = [f"threshold={line} 1 1 1" if one.startswith("threshold=") else one for one in TEXT.split("\n")]
    refused(from_text, "\n".join(lines))
    refused(from_json, ESCAPES)


def test_shown() -> None:
    assert shown("plain été 木") == "plain été 木"
    assert shown("a\x1b[31m\nb\u2028\ud800") == r"a\x1b[31m\nb\u2028\ud800"
    assert shown(12) == "12"
    assert shown("x" * 81) == "x" * 79 + "…"
    assert len(shown("\x00" * 10**8)) == 80
