"""Files that ``hbtvm predict`` reads and writes, without a model."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows import data_in
from hbtvm.cli.rows.data_in import Data
from hbtvm.cli.rows.data_out import writing
from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec

NAN = float("nan")
PLAIN = InputSpec(2)
NAMED = InputSpec(2, ("a", "b"))
COLORS = InputSpec(2, ("size", "color"), categories={1: ("red", "blue")})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str | bytes, spec: InputSpec = PLAIN, **options: Any) -> list[list[Any]]:
    """The rows of a CSV file."""
    Path("d.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return rows_of("d.csv", spec, **options)


def rows_of(path: str, spec: InputSpec = PLAIN, **options: Any) -> list[list[Any]]:
    with Data(Path(path), spec, **options) as data:
        return [row for block in data.blocks() for row in block.tolist()]


def refused(text: str | bytes, spec: InputSpec = PLAIN, **options: Any) -> str:
    """The error's text, without the file's name."""
    with pytest.raises((UsageError, InputError)) as caught:
        read(text, spec, **options)
    assert str(caught.value).startswith("d.csv: ")
    return str(caught.value).removeprefix("d.csv: ")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("1,2\n3,4", [[1, 2], [3, 4]]),
        ("1,2\r\n3,4\r\n\r\n", [[1, 2], [3, 4]]),
        ("a,b\n1,2\n", [[1, 2]]),
        ("\ufeffa,b\n1,2\n", [[1, 2]]),
        ('"1","2"\n', [[1, 2]]),
        (" 1, 2e3\n", [[1, 2000]]),
        ("-inf,1e999\n", [[-np.inf, np.inf]]),
        (",2\n3,\nNaN, \n", [[NAN, 2], [3, NAN], [NAN, NAN]]),
        ("True,false\n1,0.1\n", [[1, 0], [1, 0.1]]),
        ("a,b\n", []),
        ("0.1,0.30000000000000004\n", [[0.1, 0.30000000000000004]]),
    ],
)
def test_csv(text: str, rows: list[list[float]]) -> None:
    np.testing.assert_array_equal(np.reshape(read(text), (-1, 2)), np.reshape(rows, (-1, 2)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty, expected rows of 2 columns"),
        (
            "1,2\n3,x\n",
            "row 2, column 2: 'x' is not a number; if it stands for a missing value, say --na x",
        ),
        ("1,2\n3\n", "row 2 has 1 fields, expected 2"),
        ("1,2\n3,4,5\n", "row 2 has 3 fields, expected 2"),
        ("1,2\n\n3,4\n", "line 2 is empty"),
        ("1,2,3\n", "there are 3 columns, the model has 2 features"),
        ("1\n", "there are 1 columns, the model has 2 features"),
        ("1;2\n", "line 1 has no ','; if ';' separates its fields, say --delimiter ';'"),
        ("1\t2\n", "line 1 has no ','; if '\\t' separates its fields, say --delimiter tab"),
        (b"1,2\n\xff\xfe,4\n", "this is not UTF-8 text (invalid start byte)"),
        ('1,2\n"3,4\n', "line 2 is not CSV (unexpected end of data)"),
        ("a,2\n3,4\n", "line 1 may be names or data, it has 'a' and '2'; say --header yes or --header no"),
    ],
)
def test_csv_that_is_wrong(text: str | bytes, sentence: str) -> None:
    assert refused(text) == sentence


def test_the_header_can_be_told() -> None:
    assert read("a,2\n3,4\n", header="yes") == [[3, 4]]
    assert read("1,2\n3,4\n", header="yes") == [[3, 4]]
    assert refused("a,2\n3,4\n", header="no").startswith("row 1, column 1: 'a' is not a number")
    # Names that are numbers are known by the model's.
    assert read("0,1\n3,4\n", InputSpec(2, ("0", "1"))) == [[3, 4]]


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("a,c", "column 'b' of the model is missing; there are 'a', 'c'"),
        ("b,a", "columns are in another order than in training: column 1 is 'b', expected 'a'"),
        ("a,b,label", "column 'label' was not in the training data; to leave it out, say --drop label"),
        (
            "id,a,b,y",
            "column 'id' (and 1 more) was not in the training data; to leave it out, say --drop id,y",
        ),
        ("a,b,a", "column 'a' appears twice"),
    ],
)
def test_names_must_agree(header: str, sentence: str) -> None:
    values = ",".join("1" for _ in header.split(","))
    assert refused(f"{header}\n{values}\n", NAMED) == sentence


def test_columns_can_be_dropped() -> None:
    assert read("id,a,label,b\nx y,1,yes,2\n", NAMED, drop=("id", "label")) == [[1, 2]]
    assert read(",a,b\n0,1,2\n", NAMED, drop=("",)) == [[1, 2]]
    assert read("id,p,q\nx y,1,2\n", PLAIN, drop=("id",)) == [[1, 2]]
    assert refused("a,b\n1,2\n", NAMED, drop=("c",)) == "there is no column 'c' to drop; there are 'a', 'b'"
    assert refused("1,2\n", NAMED, drop=("c",)) == "there are no column names, so none can be dropped by name"


def test_names_that_lightgbm_made_or_changed() -> None:
    assert read("x,y\n1,2\n", InputSpec(2, ("Column_0", "Column_1"))) == [[1, 2]]
    assert read("the x,y\n1,2\n", InputSpec(2, ("the_x", "y"))) == [[1, 2]]


def test_categories_become_codes() -> None:
    text = "size,color\n1,blue\n,red\n2,\n3,green\n"
    np.testing.assert_array_equal(read(text, COLORS), [[1, 1], [NAN, 0], [2, NAN], [3, NAN]])
    assert read("1,red\n2,blue\n", COLORS) == [[1, 0], [2, 1]]
    strict = InputSpec(2, None, categories={1: ("red", "blue")}, unknown_category="error")
    assert refused("1,red\n3,green\n", strict) == (
        "row 2, column 2: the category 'green' was not in the training data; known are 'red', 'blue'"
    )


def test_categories_that_are_numbers() -> None:
    spec = InputSpec(2, categories={0: (10, 20), 1: (False, True)})
    np.testing.assert_array_equal(read("10.0,True\n20,0\n30,\n", spec), [[0, 1], [1, 0], [NAN, NAN]])
    kept = InputSpec(2, categories={0: (10, 20)}, numbers_are_categories=True)
    assert read("10,1\n20,2\n", kept) == [[10, 1], [20, 2]]


def test_categories_that_the_model_takes_as_they_are() -> None:
    spec = InputSpec(2, categories={1: ("red", "blue")}, numbers_are_categories=True)
    assert read("1,red\n2,\n", spec, header="no") == [[1, "red"], [2, None]]


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_in, "_CELLS", 4000)
    Path("d.csv").write_text("1.25,3.5\n" * 50_000)
    tracemalloc.start()
    with Data(Path("d.csv"), PLAIN) as data:
        rows = sum(len(block) for block in data.blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 50_000
    assert peak < 2_000_000  # all fields at once would take ten times that


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_in, "_CELLS", 20)
    array = np.asarray(np.arange(2000, dtype=">f4").reshape(-1, 2), order=order)
    np.save("d.npy", array)
    assert rows_of("d.npy") == array.tolist()
    np.save("d.npy", array[:0])
    assert rows_of("d.npy") == []


def test_npy_that_is_wrong() -> None:
    for array, sentence in (
        (np.zeros(3), r"the array's shape is \(3,\), expected \(rows, features\)"),
        (np.zeros((3, 4)), "there are 4 columns, the model has 2 features"),
        (np.array([["x", None]], object), r"this is not a .npy file of numbers \(Object arrays cannot be"),
    ):
        np.save("d.npy", array)
        with pytest.raises(UsageError, match=f"^d.npy: {sentence}"):
            rows_of("d.npy")
    Path("d.npy").write_bytes(b"")
    with pytest.raises(UsageError, match=r"this is not a [.]npy file"):
        rows_of("d.npy")
    np.savez("d.npz", a=np.zeros((1, 2)))
    Path("d.npz").rename("d.npy")
    with pytest.raises(UsageError, match=r"this is a [.]npz archive"):
        rows_of("d.npy")


def test_a_suffix_that_is_not_known() -> None:
    Path("d.xlsx").touch()
    with pytest.raises(UsageError, match=r"suffix '.xlsx' can't be read"):
        rows_of("d.xlsx")


def test_parquet() -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"id": ["x", "y"], "b": [1, None], "tags": [[1], [2, 3]], "a": [0.5, 1.5]})
    parquet.write_table(table, "d.parquet")
    spec = InputSpec(2, ("b", "a"))
    with Data(Path("d.parquet"), spec, drop=("id", "tags")) as data:
        [batch] = data.blocks()
    assert batch.to_pydict() == {"b": [1, None], "a": [0.5, 1.5]}
    with pytest.raises(UsageError, match=r"column 'id' \(and 1 more\) was not in the training data"):
        rows_of("d.parquet", spec)
    Path("d.parquet").write_text("no such thing, but long enough")
    with pytest.raises(UsageError, match=r"^d.parquet: this is not a readable Parquet file"):
        rows_of("d.parquet", spec)


def test_parquet_that_is_damaged_inside() -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": np.arange(9999.0), "b": np.arange(9999.0)}), "d.parquet")
    data = bytearray(Path("d.parquet").read_bytes())
    data[4:400] = bytes(396)
    Path("d.parquet").write_bytes(data)
    with pytest.raises(UsageError, match=r"^d.parquet: this is not a readable Parquet file"):
        rows_of("d.parquet", NAMED)


def write(path: str, names: Sequence[str], *blocks: Any) -> None:
    with writing(Path(path), names) as writer:
        for block in blocks:
            writer.write(np.asarray(block))


def test_csv_out_says_no_more_digits_than_it_knows() -> None:
    write("o.csv", ["p"], np.array([0.1, 1 / 3, NAN], np.float32))
    assert Path("o.csv").read_text() == "p\n0.1\n0.33333334\nnan\n"
    write("o.csv", ["p", "q"], [[0.1, 1 / 3]], np.zeros((0, 2)), [[2, 1e-300]])
    assert Path("o.csv").read_text() == "p,q\n0.1,0.3333333333333333\n2.0,1e-300\n"
    write("o.csv", ["label"], ["a,b", 'ü"'], [1])
    assert Path("o.csv").read_text("utf-8") == 'label\n"a,b"\n"ü"""\n1\n'


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "U3", "?"])
def test_npy_out(dtype: str) -> None:
    array = np.arange(12).reshape(6, 2).astype(dtype)
    for whole in (array, array[:, 0], array[:0]):
        write("o.npy", ["a", "b"], whole[:1], whole[1:1], whole[1:])
        found = np.load("o.npy", allow_pickle=False)
        assert found.dtype == whole.dtype
        np.testing.assert_array_equal(found, whole)


def test_npy_out_has_no_place_for_objects() -> None:
    with pytest.raises(UsageError, match="labels of several types have no place"):
        write("o.npy", ["a"], np.array(["a", 1], object))
    assert list(Path().iterdir()) == []


def test_parquet_out() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write("o.parquet", ["a", "b"], np.eye(2, dtype=np.float32), np.ones((1, 2), np.float32))
    assert parquet.read_table("o.parquet").to_pydict() == {"a": [1, 0, 1], "b": [0, 1, 1]}
    write("o.parquet", ["label"], np.array(["x", "yy"], object))
    assert parquet.read_table("o.parquet").to_pydict() == {"label": ["x", "yy"]}


@pytest.mark.parametrize("path", ["o.csv", "o.npy", "o.parquet"])
def test_whole_or_not_at_all(path: str) -> None:
    Path(path).write_text("the old one")
    with pytest.raises(ZeroDivisionError), writing(Path(path), ["a"]) as writer:
        writer.write(np.zeros(100_000))
        raise ZeroDivisionError
    assert Path(path).read_text() == "the old one"
    assert [str(file) for file in Path().iterdir()] == [path]


def test_the_file_is_as_readable_as_others_and_a_link_stays() -> None:
    Path("real.csv").touch()
    Path("o.csv").symlink_to("real.csv")
    write("o.csv", ["a"], [1.0])
    assert Path("o.csv").is_symlink()
    assert Path("real.csv").read_text() == "a\n1.0\n"
    Path("usual").touch()
    assert Path("real.csv").stat().st_mode == Path("usual").stat().st_mode
