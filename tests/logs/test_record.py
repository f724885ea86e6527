"""Records: what they accept, how they are written, and which machines they count as equal."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from hbtvm.logs import Log, Record, RecordError, canonical, target_key

SAMPLE = Path(__file__).parents[1] / "data" / "log_v1.jsonl"


def record(**changes):
    fields = {
        "workload": {"trees": 500, "batch": 10240},
        "strategy": "bitvector",
        "target": {"kind": "llvm", "features": ["avx2"], "cores": 2},
        "config": {"tile": 64, "unroll": True, "layout": "rows"},
        "times": [0.3, 0.1, 0.2],
        "date": "2025-01-31T12:00:00.000Z",
    }
    return Record(**{**fields, **changes})


def test_logs_of_version_1_load_for_ever():
    result = Log(SAMPLE).read()
    assert result.skipped == 0
    first, failed, foreign = result.records
    assert first.cost == 0.0062 and first.session == "first" and first.config["unroll"] is True
    assert failed.cost == math.inf and failed.error == {
        "kind": "wrong output",
        "message": "3 of 640 rows differ",
    }
    assert first.task == failed.task
    assert foreign.extra == {"energy_joules": 1.5} and foreign.build_seconds == 0.0
    assert foreign.workload_key == first.workload_key


@pytest.mark.parametrize("line", SAMPLE.read_text().splitlines())
def test_reading_and_writing_again_loses_nothing(line):
    once = Record.from_line(line)
    again = Record.from_line(once.to_line())
    assert again == once and again.to_line() == once.to_line()
    assert json.loads(line).items() <= json.loads(once.to_line()).items()


def test_a_record_is_one_line_whatever_it_holds():
    odd = record(times=[], error={"kind": "crash", "message": "a\nb\u2028 line\r\nline \x00"})
    assert len(odd.to_line().splitlines()) == 1
    assert Record.from_line(odd.to_line()) == odd


def test_cost_is_the_median():
    assert record().cost == 0.2
    assert record(times=[0.1, 0.2]).cost == pytest.approx(0.15)


def test_equal_mappings_have_equal_keys():
    assert (
        record(workload={"b": 1, "a": [2]}).workload_key == record(workload={"a": [2], "b": 1}).workload_key
    )
    with pytest.raises(RecordError, match="not JSON"):
        canonical({"a": math.nan})
    with pytest.raises(RecordError, match="not JSON"):
        record(workload={"a": np.int64(1)}).to_line()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version is 2"),
        ({"version": True}, "version is True"),
        ({"workload": "trees"}, "workload must be an object"),
        ({"strategy": ""}, "strategy is empty"),
        ({"strategy": 3}, "strategy must be a string"),
        ({"config": {"tile": 1.5}}, r"config\['tile'\] must be an int, str or bool, not 1.5"),
        ({"config": {"tile": np.int64(3)}}, "config holds something that is not JSON"),
        ({"times": []}, "needs times or an error"),
        ({"times": [0.1, 0]}, "positive seconds"),
        ({"times": [math.nan]}, "positive seconds"),
        ({"times": [math.inf]}, "positive seconds"),
        ({"times": [True]}, "positive seconds"),
        ({"times": 0.1}, "times must be a list"),
        ({"error": {"kind": "a", "message": "b"}}, "not both"),
        ({"times": [], "error": "failed"}, "kind and message"),
        ({"times": [], "error": {"kind": "a", "message": None}}, "must be strings"),
        ({"build_seconds": -1}, "build_seconds must be seconds"),
        ({"date": "yesterday"}, "date must be like"),
        ({"date": "2025-01-31T12:00:00+02:00"}, "date must be like"),
        ({"session": 3}, "session must be a string"),
    ],
)
def test_what_breaks_the_schema_is_refused(changes, message):
    with pytest.raises(RecordError, match=message):
        record(**changes)


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "3", "null", '"text"', "[" * 100000, "9" * 10000, b"\xff\xfe{}", b"\x00" * 50, "{}"],
    ids=lambda line: repr(line[:8]),
)
def test_other_lines_are_refused_with_the_same_error(line):
    with pytest.raises(RecordError):
        Record.from_line(line)


def test_a_missing_field_is_named():
    fields = json.loads(record().to_line())
    del fields["strategy"], fields["config"]
    with pytest.raises(RecordError, match="missing config, strategy"):
        Record.from_line(json.dumps(fields))


def test_a_record_is_dated_and_cannot_be_changed():
    fresh = Record(workload={}, strategy="s", target={}, config={}, times=[1.0])
    assert Record.from_line(fresh.to_line()) == fresh
    with pytest.raises(dataclasses.FrozenInstanceError):
        fresh.strategy = "t"


HOST = {"kind": "llvm", "arch": "x86_64", "cores": 2, "features": ["avx2", "fma", "avx512f"]}


@pytest.mark.parametrize(
    "same",
    [
        {**HOST, "mcpu": "rocketlake", "tag": "mine", "keys": ["cpu"], "mtriple": "x86_64-linux-gnu"},
        {**HOST, "features": ["fma", "avx512f", "aes", "avx2", "avx2"]},
        {
            "kind": "LLVM",
            "arch": "amd64",
            "num-cores": 2,
            "mattr": ["+avx512f", "+avx2", "+fma", "-avx512vnni"],
        },
        {**HOST, "features": "+avx2,+fma,+avx512f"},
        {**HOST, "host": {"kind": "llvm"}},
    ],
    ids=str,
)
def test_harmless_changes_keep_a_targets_key(same):
    assert target_key(same) == target_key(HOST)


@pytest.mark.parametrize(
    "other",
    [
        {**HOST, "cores": 4},
        {**HOST, "features": ["avx2", "fma"]},
        {**HOST, "arch": "arm64"},
        {**HOST, "kind": "c"},
    ],
    ids=str,
)
def test_what_a_schedule_can_notice_changes_a_targets_key(other):
    assert target_key(other) != target_key(HOST)


def test_a_gpu_of_which_only_the_architecture_is_known_is_the_usual_one():
    gpu = {"kind": "cuda", "arch": "sm_90"}
    assert target_key(gpu) == target_key({**gpu, "cores": 132}) == target_key({**gpu, "num-cores": "132"})
    assert target_key(gpu) != target_key({**gpu, "cores": 114})
    assert target_key({**gpu, "arch": "sm_90a"}) == target_key({**gpu, "arch": "sm_90a", "cores": 132})
    assert '"cores"' not in target_key({**gpu, "arch": "sm_72"})
    assert '"cores"' not in target_key({"kind": "llvm", "arch": "sm_90"})


@pytest.mark.parametrize("strange", [{}, {"features": 3, "cores": "many"}, {"features": [None], "arch": 7}])
def test_a_strange_target_still_has_a_key(strange):
    assert target_key(strange) == target_key(dict(strange))
