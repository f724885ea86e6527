"""Trees at the end of random pipelines: new rows, with unknown and missing values, reach the same leaves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hbtvm.frontends.files import from_object
from hbtvm.graph.compose import compose
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.feeds import feed_matrix
from tests.folded_trees import TREES, assert_same_leaves, marked, reached
from tests.frontends.transformers.oracle import raw_of, table_of
from tests.frontends.transformers.test_random_pipelines import frame_of, pipeline_of

pytestmark = pytest.mark.filterwarnings("ignore")

SEEDS = range(48)


def checked(seed: int) -> bool:
    """Compare the leaves of one pipeline; False if the library refuses the combination."""
    pipeline, kinds, dtype = pipeline_of(seed)
    known, new = frame_of(seed, kinds, False, dtype), frame_of(seed + 1000, kinds, True, dtype)
    trees = random.Random(seed).choice(sorted(TREES))
    model: Any = TREES[trees]()
    y = np.random.default_rng(seed).integers(0, 5, len(known))
    try:
        model.fit(pipeline.fit(known, y).transform(known), y)
        behind = pipeline.transform(new)
        model.predict(behind)
    except (ValueError, TypeError):
        return False
    last = from_object(model)
    assert isinstance(last.anchor, TreeEnsemble)
    last = type(last)(last.library, last.model, last.input, marked(last.anchor), last.output)
    inputs = InputSpec(len(known.columns), tuple(known.columns))
    graph = compose(inputs, table_of(pipeline, len(known.columns), list(known.columns)), last, ())
    raw = raw_of(new)
    single = {column.dtype.name for column in raw if column.dtype.kind == "f"} == {"float32"}
    anchor = graph.single if single and graph.single is not None else graph.anchor
    assert isinstance(anchor, TreeEnsemble)
    matrix = feed_matrix(graph.feeds, raw, anchor.compare_dtype)
    assert_same_leaves(model, reached(anchor, matrix), behind)
    if anchor is graph.anchor and graph.scaled is not None:
        computed = graph.scaled.prologue.reference(matrix)
        assert_same_leaves(model, reached(graph.scaled.ensemble, computed), behind)
    return True


@pytest.mark.parametrize("start", range(0, len(SEEDS), 8))
def test_leaves_of_random_pipelines(start: int) -> None:
    assert sum(map(checked, SEEDS[start : start + 8])) >= 3
