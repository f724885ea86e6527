"""Features: what each number says, and what must not change it."""

import dataclasses

import numpy as np
import pytest

from hbtvm.cost_model import FEATURE_NAMES, features
from hbtvm.cost_model.encoding.context import contexts
from hbtvm.cost_model.encoding.nest import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Access, Loop, Statement
from hbtvm.cost_model.encoding.relation import THRESHOLDS


def random_nest(rng):
    """Two statements with random extents, kinds, strides and a gather."""

    def loops(depth):
        return tuple(Loop(int(2 ** rng.integers(0, 6)), int(rng.integers(0, 4))) for _ in range(depth))

    def strides(depth):
        return tuple(int(s) for s in rng.choice([0, 1, 16, 700], depth))

    return (
        Statement(
            loops(5),
            {"compare": 1, "bit": int(rng.integers(1, 4))},
            (Access("x", 4, strides(5)), Access("table", 2, strides(5), gather=True, span=300)),
        ),
        Statement(loops(3), {"add": 2}, (Access("out", 8, strides(3), store=True),), lane_bytes=8),
    )


def random_nests(seed, n):
    rng = np.random.default_rng(seed)
    return [random_nest(rng) for _ in range(n)]


def with_idle_loop(statement, at, kind):
    """The statement with a loop of extent 1 put in, which moves its accesses anyhow."""
    loops = (*statement.loops[:at], Loop(1, kind), *statement.loops[at:])
    accesses = tuple(
        dataclasses.replace(a, strides=(*a.strides[:at], 12345, *a.strides[at:])) for a in statement.accesses
    )
    return dataclasses.replace(statement, loops=loops, accesses=accesses)


def value(row, name):
    return row[FEATURE_NAMES.index(name)]


def test_a_batch_equals_its_programs_one_by_one():
    nests = random_nests(0, 40)
    together = features(nests)
    assert together.shape == (40, len(FEATURE_NAMES)) and together.dtype == np.float32
    assert np.isfinite(together).all()
    alone = np.concatenate([features([nest]) for nest in nests])
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_programs_of_any_form_make_one_batch():
    nests = [nest[k % 3 % 2 :] * (1 + k % 2) for k, nest in enumerate(random_nests(4, 12))]
    alone = np.concatenate([features([nest]) for nest in nests])
    np.testing.assert_allclose(features(nests), alone, rtol=1e-6)


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("kind", [SERIAL, UNROLLED, VECTORIZED, PARALLEL])
def test_a_loop_that_runs_once_changes_nothing(at, kind):
    nests = random_nests(1, 50)
    changed = [(with_idle_loop(first, at, kind), second) for first, second in nests]
    np.testing.assert_array_equal(features(changed), features(nests))


def test_the_order_of_statements_changes_nothing():
    nests = random_nests(2, 50)
    np.testing.assert_allclose(features([nest[::-1] for nest in nests]), features(nests), rtol=1e-6)


def test_nests_of_any_size_have_the_same_features():
    bare = Statement((), {}, (Access("out", 4, (), store=True),))
    assert features([(bare,)] * 3).shape == features([()] * 3).shape == (3, len(FEATURE_NAMES))
    assert features([]).shape == (0, len(FEATURE_NAMES))


def test_relations_are_the_papers_maxima():
    """AutoTVM, section 4, written down as it stands, for one pair of quantities."""
    nests = random_nests(3, 20)
    table, context = features(nests), contexts(nests)
    for beta in THRESHOLDS["inner"]:
        expected = np.zeros(20)
        for statement, program in enumerate(context.program):
            for loop in range(len(context.extents)):
                size = np.log2(context.footprint[loop, statement])
                below = np.log2(context.inner[loop, statement]) < beta
                if context.extents[loop, statement] > 1 and below:
                    expected[program] = max(expected[program], size)
        column = table[:, FEATURE_NAMES.index(f"max_bytes|inner<2^{beta:g}")]
        np.testing.assert_allclose(column, expected, rtol=1e-6)


def tile(kind=VECTORIZED, step=1, **access):
    """64 tiles of 16 floats, each read 8 times."""
    loops = (Loop(64, PARALLEL), Loop(8, UNROLLED), Loop(16, kind))
    return Statement(loops, {"add": 1}, (Access("x", 4, (16 * step, 0, step), **access),))


def test_contexts_of_a_small_nest():
    context = contexts([(tile(),)])
    assert context.outer[:, 0].tolist() == [1, 64, 512, 8192]
    assert context.inner[:, 0].tolist() == [8192, 128, 16, 1]
    assert context.accesses.touched[:, 0].tolist() == [1024, 16, 16, 1]
    assert context.accesses.footprint[:, 0].tolist() == [4096, 64, 64, 64]


def test_a_step_over_cache_lines_touches_whole_lines():
    context = contexts([(tile(step=100),)])
    assert context.accesses.footprint[:, 0].tolist() == [1024 * 64, 16 * 64, 16 * 64, 64]


def test_a_gather_touches_no_more_than_it_can_reach():
    loops = (Loop(10), Loop(1000))
    access = Access("table", 4, (64, 0), gather=True, span=64)
    context = contexts([(Statement(loops, {}, (access,)),)])
    assert context.accesses.touched[:, 0].tolist() == [9 * 64 + 64, 64, 1]


def test_totals_of_a_small_nest():
    row = features([(tile(),)])[0]
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
    row = features([(statement,)])[0]
    loads = [f for f in FEATURE_NAMES if f.startswith("sum_vector_") and f != "sum_vector_ops"]
    positive = {f for f in [*loads, "sum_scalar_accesses"] if value(row, f) > 0}
    assert positive == {name}


def test_unknown_buffers_and_operations_are_counted_as_other():
    row = features([(Statement((Loop(4),), {"sqrt": 1}, (Access("bias", 4, (1,)),)),)])[0]
    assert value(row, "sum_bytes_other") > 0 and value(row, "sum_ops_other") > 0


def test_strides_that_do_not_match_the_loops_are_refused():
    with pytest.raises(ValueError, match="'x' has 1 strides for 2 loops"):
        features([(Statement((Loop(2), Loop(3)), {}, (Access("x", 4, (1,)),)),)])
