"""Features: what each number says, and what must not change it."""

import dataclasses

import numpy as np
import pytest

from hbtvm.cost_model import FEATURE_NAMES, features, nest
from hbtvm.cost_model.context import contexts
from hbtvm.cost_model.relation import THRESHOLDS
from hbtvm.schedules import loops
from hbtvm.schedules.loops import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Access, Loop, Statement


def random_nest(rng, n):
    """Two statements with random extents, kinds, strides and a gather."""

    def loops(depth):
        return tuple(Loop(2 ** rng.integers(0, 6, n), rng.integers(0, 4, n)) for _ in range(depth))

    def strides(depth):
        return tuple(int(s) for s in rng.choice([0, 1, 16, 700], depth))

    return (
        Statement(
            loops(5),
            {"compare": 1, "bit": rng.integers(1, 4, n)},
            (Access("x", 4, strides(5)), Access("table", 2, strides(5), gather=True, span=300)),
        ),
        Statement(loops(3), {"add": 2}, (Access("out", 8, strides(3), store=True),), lane_bytes=8),
    )


def part(value, row):
    """What a (nested) description says of one configuration."""
    if isinstance(value, np.ndarray):
        return value[row]
    if isinstance(value, dict):
        return {key: part(item, row) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(part(item, row) for item in value)
    if dataclasses.is_dataclass(value):
        return type(value)(**{f.name: part(getattr(value, f.name), row) for f in dataclasses.fields(value)})
    return value


def with_idle_loop(statement, at, kind):
    """The statement with a loop of extent 1 put in, which moves its accesses anyhow."""
    loops = (*statement.loops[:at], Loop(1, kind), *statement.loops[at:])
    accesses = tuple(
        dataclasses.replace(a, strides=(*a.strides[:at], 12345, *a.strides[at:])) for a in statement.accesses
    )
    return dataclasses.replace(statement, loops=loops, accesses=accesses)


def value(row, name):
    return row[FEATURE_NAMES.index(name)]


def test_the_loop_kinds_are_those_of_schedules():
    for name in ("SERIAL", "UNROLLED", "VECTORIZED", "PARALLEL"):
        assert getattr(nest, name) == getattr(loops, name)


def test_a_batch_equals_its_configurations_one_by_one():
    nest = random_nest(np.random.default_rng(0), 40)
    together = features(nest, 40)
    assert together.shape == (40, len(FEATURE_NAMES)) and together.dtype == np.float32
    assert np.isfinite(together).all()
    alone = np.concatenate([features(part(nest, row), 1) for row in range(40)])
    np.testing.assert_allclose(together, alone, rtol=1e-6)


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("kind", [SERIAL, UNROLLED, VECTORIZED, PARALLEL])
def test_a_loop_that_runs_once_changes_nothing(at, kind):
    first, second = random_nest(np.random.default_rng(1), 50)
    expected = features((first, second), 50)
    np.testing.assert_array_equal(features((with_idle_loop(first, at, kind), second), 50), expected)


def test_the_order_of_statements_changes_nothing():
    nest = random_nest(np.random.default_rng(2), 50)
    np.testing.assert_allclose(features(nest[::-1], 50), features(nest, 50), rtol=1e-6)


def test_nests_of_any_size_have_the_same_features():
    bare = Statement((), {}, (Access("out", 4, (), store=True),))
    assert features((bare,), 3).shape == features((), 3).shape == (3, len(FEATURE_NAMES))
    assert features((bare,), 0).shape == (0, len(FEATURE_NAMES))


def test_relations_are_the_papers_maxima():
    """AutoTVM, section 4, written down as it stands, for one pair of quantities."""
    nest = random_nest(np.random.default_rng(3), 20)
    table = features(nest, 20)
    for beta in THRESHOLDS["inner"]:
        expected = np.zeros(20)
        for context in contexts(nest, 20):
            for loop in range(len(context.extents)):
                size = np.log2(context.footprint[loop])
                counts = (context.extents[loop] > 1) & (np.log2(context.inner[loop]) < beta)
                expected = np.where(counts, np.maximum(expected, size), expected)
        column = table[:, FEATURE_NAMES.index(f"max_bytes|inner<2^{beta:g}")]
        np.testing.assert_allclose(column, expected, rtol=1e-6)


def tile(kind=VECTORIZED, step=1, **access):
    """64 tiles of 16 floats, each read 8 times."""
    loops = (Loop(64, PARALLEL), Loop(8, UNROLLED), Loop(16, kind))
    return Statement(loops, {"add": 1}, (Access("x", 4, (16 * step, 0, step), **access),))


def test_contexts_of_a_small_nest():
    (context,) = contexts((tile(),), 1)
    assert context.outer[:, 0].tolist() == [1, 64, 512, 8192]
    assert context.inner[:, 0].tolist() == [8192, 128, 16, 1]
    (access,) = context.accesses
    assert access.touched[:, 0].tolist() == [1024, 16, 16, 1]
    assert access.footprint[:, 0].tolist() == [4096, 64, 64, 64]


def test_a_step_over_cache_lines_touches_whole_lines():
    (context,) = contexts((tile(step=100),), 1)
    assert context.accesses[0].footprint[:, 0].tolist() == [1024 * 64, 16 * 64, 16 * 64, 64]


def test_a_gather_touches_no_more_than_it_can_reach():
    loops = (Loop(10), Loop(1000))
    (context,) = contexts((Statement(loops, {}, (Access("table", 4, (64, 0), gather=True, span=64),)),), 1)
    assert context.accesses[0].touched[:, 0].tolist() == [9 * 64 + 64, 64, 1]


def test_totals_of_a_small_nest():
    row = features((tile(),), 1)[0]
    assert value(row, "sum_iterations") == pytest.approx(np.log2(1 + 8192))
    assert value(row, "sum_trips") == pytest.approx(np.log2(1 + 64))
    assert value(row, "sum_ops_add") == pytest.approx(np.log2(1 + 8192))
    assert value(row, "sum_vector_ops") == pytest.approx(np.log2(1 + 512))
    assert value(row, "sum_bytes_x") == pytest.approx(np.log2(1 + 8192 * 4))
    assert value(row, "sum_footprint_x") == pytest.approx(np.log2(1 + 4096))
    assert value(row, "mean_vector_bytes") == pytest.approx(np.log2(1 + 64))
    assert value(row, "max_registers") == pytest.approx(np.log2(1 + 8))
    assert value(row, "mean_parallel") == pytest.approx(np.log2(1 + 64))
    # 4 KiB fit the smallest cache: each byte is loaded once.
    assert value(row, "sum_traffic_4096") == pytest.approx(np.log2(1 + 4096))
    assert value(row, "work_per_thread") == pytest.approx(np.log2(1 + 8))


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (tile(), "sum_vector_contiguous"),
        (tile(step=7), "sum_vector_strided"),
        (tile(step=0), "sum_vector_broadcast"),
        (tile(gather=True, span=9), "sum_vector_gather"),
        (tile(SERIAL), "sum_scalar_accesses"),
    ],
)
def test_how_an_access_is_loaded_is_told_apart(statement, name):
    row = features((statement,), 1)[0]
    loads = [f for f in FEATURE_NAMES if f.startswith("sum_vector_") and f != "sum_vector_ops"]
    positive = {f for f in [*loads, "sum_scalar_accesses"] if value(row, f) > 0}
    assert positive == {name}


def test_unknown_buffers_and_operations_are_counted_as_other():
    row = features((Statement((Loop(4),), {"sqrt": 1}, (Access("bias", 4, (1,)),)),), 1)[0]
    assert value(row, "sum_bytes_other") > 0 and value(row, "sum_ops_other") > 0


def test_strides_that_do_not_match_the_loops_are_refused():
    with pytest.raises(ValueError, match="'x' has 1 strides for 2 loops"):
        features((Statement((Loop(2), Loop(3)), {}, (Access("x", 4, (1,)),)),), 1)


def test_arrays_of_another_length_are_refused():
    with pytest.raises(ValueError, match="broadcast"):
        features((Statement((Loop(np.array([2, 3])),), {}, ()),), 3)
