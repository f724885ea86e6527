"""The model of kernels' bounds: disassembly, occupancy, memory, and machine code that is executed."""

from __future__ import annotations

import struct
import textwrap
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu.bounds import integers, latency, memory, pipes, sass
from benchmarks.gpu.bounds.bound import INTERPRETED_LANES, bound
from benchmarks.gpu.bounds.kernels import TARGET, own_kernel
from benchmarks.gpu.bounds.machine import Machine
from benchmarks.gpu.bounds.nvforest_nodes import LAYOUTS, nodes_of
from benchmarks.gpu.bounds.occupancy import Use, l1_bytes, resident_blocks, warps_per_multiprocessor
from benchmarks.gpu.bounds.report import PIPES, Line, goals, table
from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.errors import BuildError
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.cuda_kernels import NO_NVCC, usage
from tests.ensembles import random_ensemble

needs_tools = pytest.mark.skipif(
    NO_NVCC is not None or sass.nvdisasm() is None, reason=NO_NVCC or "there is no nvdisasm on this machine"
)

LOOP = """
    //--------------------- .text.count        --------------------------
    .section        .text.count,"ax",@progbits
    count:
    .text.count:
            /*0000*/                   S2R R0, SR_TID.X ;
            /*0010*/                   MOV R2, RZ ;
            /*0020*/                   LOP3.LUT R1, R0, 0x3, RZ, 0xc0, !PT ;
            /*0030*/                   ISETP.EQ.AND P0, PT, R1, RZ, PT ;
            /*0040*/                   BSSY B0, `(.L_x_2) ;
            /*0050*/               @P0 BRA `(.L_x_1) ;
    .L_x_0:
            /*0060*/                   IMAD R2, R1, R0.reuse, R2 ;
            /*0070*/                   IADD3 R1, R1, -0x1, RZ ;
            /*0080*/                   ISETP.NE.AND P0, PT, R1, RZ, PT ;
            /*0090*/               @P0 BRA `(.L_x_0) ;
    .L_x_1:
            /*00a0*/                   BSYNC B0 ;
    .L_x_2:
            /*00b0*/                   ULDC.64 UR4, c[0x0][0x210] ;
            /*00c0*/                   IMAD.WIDE.U32 R4, R0, 0x4, RZ ;
            /*00d0*/                   IADD3 R4, P0, R4, UR4, RZ ;
            /*00e0*/                   IADD3.X R5, R5, UR5, RZ, P0, !PT ;
            /*00f0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
            /*0100*/                   STG.E desc[UR4][R4.64], R2 ;
            /*0110*/                   EXIT ;
    .L_x_3:
            /*0120*/                   BRA `(.L_x_3);
"""


def test_disassembly_is_parsed() -> None:
    code = sass.parse(textwrap.dedent(LOOP))["count"]
    assert len(code.instructions) == 19 and code.labels[".L_x_2"] == 0xB0
    branch = code.instructions[9]
    assert (branch.address, branch.guard, branch.name, branch.operands) == (0x90, "P0", "BRA", ("0x60",))
    store = code.instructions[16]
    assert store.modifiers == ("E",) and store.operands == ("desc[UR4][R4.64]", "R2")


def test_inner_loops_are_counted_by_pipe() -> None:
    ((first, last, count),) = pipes.loops(sass.parse(textwrap.dedent(LOOP))["count"])
    assert (first, last) == (0x60, 0x90)
    assert count == {"imad": 1, "alu": 2, "control": 1}
    with pytest.raises(ValueError, match="no pipe is known for FROB"):
        pipes.pipe_of(sass.Instruction(0, "", "FROB.X", ()))


def test_machine_code_is_executed_and_warps_that_part_meet_again() -> None:
    code, room = sass.parse(textwrap.dedent(LOOP))["count"], memory.Global()
    address = room.add(np.zeros(128, np.uint32))
    machine = Machine(
        code, [(0, 0)], (100, 1), (1, 1), 0, struct.pack("<Q", address), room, memory.Cache(1 << 17)
    )
    counts = machine.run()
    tid = np.arange(128)
    times = tid % 4
    want = np.where(tid < 100, tid * times * (times + 1) // 2, 0)
    np.testing.assert_array_equal(room.array(address, np.uint32), want)
    # Four warps go around three times each, and pass everything else once: the sums are issued 12 times.
    assert counts.instructions["imad"] == 4 * (3 + 1)
    assert counts.instructions["control"] == 4 * (1 + 1 + 3 + 1 + 1 + 1)
    assert counts.lsu == 4 and counts.stored == 100 * 4 // 32 + 1
    assert counts.latency > 20


def test_a_product_of_64_bits_takes_a_carry() -> None:
    text = LOOP.replace("MOV R2, RZ ;", "IADD3 R2, P3, R0, -0x1, RZ ;").replace(
        "IMAD.WIDE.U32 R4, R0, 0x4, RZ ;", "IMAD.WIDE.U32.X R2, R0, 0x5, RZ, P3 ;"
    )
    store = "IADD3 R4, P0, R4, UR4, RZ ;", "IMAD.WIDE.U32 R4, R0, 0x4, UR4 ;"
    code = sass.parse(
        textwrap.dedent(text.replace(*store).replace("IADD3.X R5, R5, UR5, RZ, P0, !PT", "NOP"))
    )
    room = memory.Global()
    address = room.add(np.zeros(32, np.uint32))
    given = struct.pack("<Q", address)
    Machine(code["count"], [(0, 0)], (32, 1), (1, 1), 0, given, room, memory.Cache(1 << 17)).run()
    tid = np.arange(32)
    np.testing.assert_array_equal(room.array(address, np.uint32), 5 * tid + (tid > 0))


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 32, 0, 8),  # threads
        (256, 64, 0, 4),
        (128, 96, 0, 5),
        (1024, 64, 0, 1),
        (1024, 32, 0, 2),
        (32, 16, 0, 32),  # blocks
        (256, 255, 0, 1),
        (128, 32, 28_672, 7),  # 8 without the kilobyte that is reserved for each
        (256, 32, 227 * 1024, 1),
        (256, 32, 228 * 1024, 0),
    ],
)
def test_occupancy_is_that_of_the_published_calculator(
    threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert resident_blocks(Use(threads, registers, shared)) == blocks


def test_what_blocks_leave_to_l1_and_warps_of_small_grids() -> None:
    use = Use(128, 32, 28_672)
    assert l1_bytes(use, 7) == (256 - 228) * 1024 and l1_bytes(use, 1) == (256 - 32) * 1024
    assert l1_bytes(Use(128, 32, 0), 16) == 256 * 1024
    asked = replace(use, carveout=132 * 1024)
    assert resident_blocks(asked) == 4 and l1_bytes(asked, 4) == (256 - 132) * 1024
    # One that holds no block is not granted.
    assert resident_blocks(replace(use, carveout=8 * 1024)) == 1
    assert l1_bytes(replace(use, carveout=8 * 1024), 1) == (256 - 32) * 1024
    assert warps_per_multiprocessor(use, 66, 132) == 2.0
    assert warps_per_multiprocessor(use, 10_000, 132) == 28.0


def test_conflicts_of_banks() -> None:
    lane, on = np.arange(32)[None], np.ones((1, 32), bool)
    assert memory.conflicts(lane * 4, on, 4).tolist() == [1]
    assert memory.conflicts(lane * 0, on, 4).tolist() == [1]  # the same word is given to all
    assert memory.conflicts(lane * 8, on, 4).tolist() == [2]
    assert memory.conflicts(lane * 128, on, 4).tolist() == [32]
    assert memory.conflicts(lane * 132, on, 4).tolist() == [1]
    assert memory.conflicts(lane * 1, on, 1).tolist() == [1]
    assert memory.conflicts(lane * 8, on, 8).tolist() == [2]
    assert memory.conflicts(lane * 16, on, 16).tolist() == [4]
    assert memory.conflicts(lane * 128, lane < 5, 4).tolist() == [5]
    assert memory.conflicts(lane * 128, lane < 0, 4).tolist() == [0]


def test_lines_and_sectors_of_a_warp() -> None:
    lane, on = np.arange(32)[None], np.ones((1, 32), bool)
    assert memory.lines(lane * 4, on).tolist() == [1]
    assert memory.lines(lane * 4 + 4, on).tolist() == [2]
    assert memory.lines(lane * 112, on).tolist() == [28]
    assert memory.lines(lane * 4, on, memory.SECTOR).tolist() == [4]
    assert memory.lines(lane * 112, lane < 3).tolist() == [2]


def test_the_cache_replaces_what_was_not_used_for_longest() -> None:
    cache = memory.Cache(3 * memory.SECTOR)
    assert not cache.read([1, 2, 3]) and cache.read([1, 2])
    assert not cache.read([4]) and cache.read([1, 2, 4])
    assert not cache.read([3]) and (cache.hits, cache.misses) == (5, 5)


def test_every_table_of_three_bits() -> None:
    a, b, c = np.uint32([0xF0]), np.uint32([0xCC]), np.uint32([0xAA])
    for number in range(256):
        assert integers.lookup(number, a, b, c)[0] & 0xFF == number


@needs_tools
@pytest.mark.parametrize("name", ["bitvector", "gemm", "perfect_tree_traversal", "tree_traversal"])
@pytest.mark.parametrize("rows", [100, 100_000])
def test_interpreted_kernels_give_the_models_scores(name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    ensemble = random_ensemble(rng, trees=30, max_leaves=15, features=9, missing="left")
    forest = make_forest(ensemble, "float32", "float32")
    X = rng.normal(size=(2048, 9)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    sums = (margins(ensemble, X) - ensemble.base_score) * ensemble.divisor
    seen = []

    def check(scores: np.ndarray) -> None:
        seen.append(len(scores))
        count = min(len(scores), rows)
        np.testing.assert_allclose(scores[:count], sums[:count], rtol=1e-5, atol=1e-5)

    strategy = strategies_on(TARGET)[name]
    config = strategy.default(workload_of(forest, rows), TARGET)
    kernel = own_kernel(strategy, forest, config, X, rows)
    found = bound(kernel, 30, rows, check)
    assert seen and seen[0] > 0
    assert kernel.spilled == 0 and found.resident > 0
    assert found.total == found.seconds[found.limit] > 0
    assert "| bitvector" in table([Line.of("leaves", "bitvector", rows, found)])
    # Each tree takes a load, a test and an addition of each warp at least.
    assert sum(found.counts.instructions.values()) > 3 * 30 * seen[0] // 32


COPY = """
    //--------------------- .text.copy         --------------------------
    .section        .text.copy,"ax",@progbits
    copy:
    .text.copy:
            /*0000*/                   S2R R0, SR_TID.X ;
            /*0010*/                   IMAD.SHL.U32 R6, R0, 0x10, RZ ;
            /*0020*/                   ULDC.64 UR4, c[0x0][0x210] ;
            /*0030*/                   IMAD.WIDE.U32 R2, R0, 0x10, RZ ;
            /*0040*/                   IADD3 R2, P0, R2, UR4, RZ ;
            /*0050*/                   IADD3.X R3, R3, UR5, RZ, P0, !PT ;
            /*0060*/                   LDGSTS.E.BYPASS.128 [R6], desc[UR4][R2.64] ;
            /*0070*/                   LDGDEPBAR ;
            /*0080*/                   DEPBAR.LE SB0, 0x0 ;
            /*0090*/                   EXIT ;
"""


@pytest.mark.parametrize("waits", [True, False])
def test_asynchronous_copies_bypass_l1_and_take_time_only_where_warps_wait(waits: bool) -> None:
    text = COPY if waits else COPY.replace("DEPBAR.LE SB0, 0x0", "NOP")
    code, room = sass.parse(textwrap.dedent(text))["copy"], memory.Global()
    words = np.arange(256, dtype=np.uint32)
    address, cache = room.add(words), memory.Cache(1 << 17)
    for _ in range(2):
        machine = Machine(code, [(0, 0)], (64, 1), (1, 1), 1024, struct.pack("<Q", address), room, cache)
        counts = machine.run()
        np.testing.assert_array_equal(machine.shared[:1024].view(np.uint32), words)
        assert (counts.latency > latency.L2) == waits
    assert cache.misses == 2 * 1024 // memory.SECTOR
    # Of each warp: four lines, and four rounds of shared memory's banks.
    assert counts.lsu == 2 * (4 + 4) and counts.shared == 2 * 4


def same_sums(ensemble: TreeEnsemble, X: np.ndarray) -> Callable[[np.ndarray], None]:
    """Return what checks the scores of rows that repeat `X`."""
    sums = (margins(ensemble, X) - ensemble.base_score) * ensemble.divisor

    def check(scores: np.ndarray) -> None:
        np.testing.assert_allclose(scores, np.resize(sums, scores.shape), rtol=1e-5, atol=1e-5)

    return check


@needs_tools
@pytest.mark.parametrize("name", ["bitvector", "ranked_traversal"])
def test_all_blocks_of_few_rows_are_interpreted(name: str) -> None:
    rng, rows = np.random.default_rng(6), 3
    ensemble = random_ensemble(rng, trees=500, max_leaves=4, features=9, missing="left")
    forest = make_forest(ensemble, "float32", "float32")
    X = rng.normal(size=(rows, 9)).astype(np.float32)
    strategy, workload = strategies_on(TARGET)[name], workload_of(forest, rows)
    drawn = strategy.space(workload, TARGET).sample(rng, 1000)
    config = max(drawn, key=lambda config: int(config["tree_blocks"]))
    assert int(config["tree_blocks"]) * 32 > INTERPRETED_LANES  # a block has a warp or more
    kernel, seen = own_kernel(strategy, forest, config, X, rows), []
    check = same_sums(ensemble, X)

    def looked(scores: np.ndarray) -> None:
        seen.append(len(scores))
        check(scores[:rows])

    found = bound(kernel, 500, rows, looked)
    assert kernel.grid[1] > 1 and seen[0] >= rows and found.total > 0


@needs_tools
def test_prefetching_kernels_are_interpreted() -> None:
    rng = np.random.default_rng(5)
    ensemble = random_ensemble(rng, trees=45, max_leaves=15, features=9, missing="left")
    forest = replace(make_forest(ensemble, "float32", "float32"), on_gpu=True)
    X = rng.normal(size=(1024, 9)).astype(np.float32)
    strategy = strategies_on(TARGET)["ranked_traversal"]
    config = {
        **strategy.default(workload_of(forest, 100_000), TARGET),
        "tables": "prefetch",
        "row_tile": 128,
        "row_threads": 128,
        "tree_tile": 2,
        "tree_threads": 1,
    }
    kernel = own_kernel(strategy, forest, config, X, 100_000)
    assert any(one.name == "LDGSTS" for one in kernel.code.instructions)
    assert bound(kernel, 45, 100_000, same_sums(ensemble, X)).total > 0


@needs_tools
def test_comparisons_that_make_numbers_are_interpreted() -> None:
    """Threads that rank columns count with them, and missing values, which may go either way."""
    rng = np.random.default_rng(3)
    ensemble = random_ensemble(rng, trees=80, max_leaves=15, features=140, missing="mixed")
    forest = replace(make_forest(ensemble, "float32", "float32"), on_gpu=True)
    X = rng.normal(size=(256, 140)).round(1).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    strategy = strategies_on(TARGET)["ranked_traversal"]
    config = strategy.default(workload_of(forest, 100_000), TARGET)
    assert config["ranked"] == "columns"
    kernel = own_kernel(strategy, forest, config, X, 100_000)
    assert any(one.name == "FSET" for one in kernel.code.instructions)
    assert bound(kernel, 80, 100_000, same_sums(ensemble, X)).total > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [1, 3])
def test_nodes_as_nvforest_reads_them(layout: str, width: int) -> None:
    rng = np.random.default_rng(width)
    ensemble = random_ensemble(rng, trees=9, max_leaves=40, features=5, missing="mixed", width=width)
    made = nodes_of(ensemble, layout)
    assert not made.large and (made.vectors is None) == (width == 1)
    node = made.data.view(np.dtype([("value", np.float32), ("distance", np.uint16), ("metadata", np.uint16)]))
    X = rng.normal(size=(50, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = np.nan
    sums = np.zeros((50, width))
    for root in made.roots:
        for row in range(50):
            at = int(root)
            while node["distance"][at]:
                x, flags = X[row, node["metadata"][at] & 0x1FFF], int(node["metadata"][at])
                far = bool(flags & 0x4000) if np.isnan(x) else x < node["value"][at]
                distance = int(node["distance"][at])
                if layout == "depth_first":
                    at += distance if far else 1
                else:
                    at += distance - (not far)
            assert node["metadata"][at] == 0x8000
            leaf = node["value"][at : at + 1]
            sums[row] += leaf if made.vectors is None else made.vectors[leaf.view(np.uint32)[0]]
    want = (margins(ensemble, X) - ensemble.base_score) * ensemble.divisor
    np.testing.assert_allclose(sums, want, rtol=1e-5, atol=1e-5)


def test_what_nvforest_does_not_hold_is_refused() -> None:
    ensemble = random_ensemble(np.random.default_rng(0), trees=6, groups=3)
    with pytest.raises(BuildError, match="only numeric trees"):
        nodes_of(ensemble, "depth_first")


def test_goals_compare_the_best_with_the_best() -> None:
    def line(kernel: str, milliseconds: float, rows: int = 1_000_000) -> Line:
        return Line("deep", kernel, rows, {"dram": 0.1, "l1": milliseconds}, dict.fromkeys(PIPES, 1.0), 48.0)

    lines = [line("tree_traversal", 4.0), line("gemm", 9.0), line("nvForest a", 8.0), line("nvForest b", 6.0)]
    told = goals([*lines, Line("deep", "bitvector", 1_000_000, why="no room")])
    assert "| tree_traversal" in told and "1.50" in told and "48 : 48" in told
    text = table([*lines, Line("deep", "bitvector", 1_000_000, why="no room")])
    assert "nvForest b" in text and "nvForest a" not in text
    assert "Left out: deep, bitvector, 1,000,000 rows: no room." in text
    assert Line(**lines[0].to_json()) == lines[0]


SHAPES = {
    "31 leaves": {"trees": 200, "max_leaves": 31, "features": 28},
    "2,000 features": {"trees": 100, "max_leaves": 31, "features": 2000},
    "deep": {"trees": 20, "max_leaves": 2000, "features": 28},
}


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
@pytest.mark.parametrize("shape", SHAPES)
def test_default_kernels_do_not_spill(shape: str) -> None:
    ensemble = random_ensemble(np.random.default_rng(0), **SHAPES[shape])
    forest = replace(make_forest(ensemble, "float32", "float32"), on_gpu=True)
    for rows in (100_000 if shape == "31 leaves" else 10_000, 1_000_000):
        workload = workload_of(forest, rows)
        for strategy in strategies_on(TARGET).values():
            if strategy.refuse(workload) is None:
                source = cuda_source(strategy.module(workload, strategy.default(workload, TARGET)), TARGET)
                used = usage(machine_code(source, TARGET, "-Xptxas=-v")[1])
                assert used["spills"] == used["stack"] == 0, (strategy.name, rows)
