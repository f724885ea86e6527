"""The commands on recursive models, from files to files; the package in Python is the oracle."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.vocabulary import Vocabulary
from tests import fake_cli
from tests.cli.recursive.conftest import TEXT, TREES, WORDS, run

pytestmark = pytest.mark.usefixtures("shared_workers")


def test_predictions_in_all_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, trees = hbtvm.load("classes.tar"), rec.trees(TREES, WORDS)
    given = "classes.tar trees.txt --vocabulary words.txt"
    labels = pd.read_csv(pd.io.common.StringIO(run(f"predict {given}", capsys)))
    assert labels["label"].tolist() == model.predict(trees).tolist()
    expected = model.predict_proba(trees)
    run(f"predict {given} --output proba -o out.csv --threads 2", capsys)
    frame = pd.read_csv(here / "out.csv")
    assert list(frame) == ["bad", "fine"]
    np.testing.assert_array_equal(frame.to_numpy(), expected)
    run(f"predict {given} --output proba -o out.npy", capsys)
    np.testing.assert_array_equal(np.load(here / "out.npy"), expected)
    run(f"predict {given} --output proba -o out.parquet --index", capsys)
    table = pd.read_parquet(here / "out.parquet")
    assert list(table) == ["structure", "node", "bad", "fine"]
    np.testing.assert_array_equal(table[["structure", "node"]], [[0, 4], [1, 2], [2, 0], [3, 4]])
    np.testing.assert_array_equal(table[["bad", "fine"]], expected)


def test_predictions_of_nodes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees = rec.trees(TREES, WORDS)
    expected = hbtvm.load("nodes.tar").predict(trees)
    run("predict nodes.tar trees.txt --vocabulary words.txt -o nodes.csv", capsys)
    frame = pd.read_csv(here / "nodes.csv", dtype={f"prediction_{i}": np.float32 for i in range(4)})
    assert list(frame) == ["structure", "node", *(f"prediction_{i}" for i in range(4))]
    own = np.repeat(np.arange(4), np.diff(trees.starts))
    np.testing.assert_array_equal(frame["structure"], own)
    np.testing.assert_array_equal(frame["node"], np.arange(len(own)) - trees.starts[own])
    np.testing.assert_array_equal(frame.filter(like="prediction"), expected)
    run("predict nodes.tar trees.txt --vocabulary words.txt -o nodes.npy", capsys)
    np.testing.assert_array_equal(np.load(here / "nodes.npy"), expected)


def test_large_files_go_in_parts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as of each line alone, as far as kernels of other batches agree."""
    lines = TEXT.splitlines()
    (here / "large.txt").write_text("\n".join(lines[i % 4] for i in range(9000)))
    run("predict roots.tar large.txt --vocabulary words.txt -o large.npy", capsys)
    found = np.load(here / "large.npy")
    expected = hbtvm.load("roots.tar").predict(rec.trees(TREES, WORDS))
    assert len(found) == 9000
    for i in range(4):
        np.testing.assert_allclose(found[i::4], np.broadcast_to(expected[i], (2250, 4)), atol=1e-6)
    run("predict nodes.tar large.txt --vocabulary words.txt -o large.csv", capsys)
    frame = pd.read_csv(here / "large.csv", usecols=["structure", "node"])
    assert frame["structure"].max() == 8999 and frame["node"].max() == 4 and len(frame) == 9000 * 14 // 4


def test_several_roots_need_their_numbers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "graphs.jsonl").write_text(
        '{"children": [[], [0], [0]], "inputs": {"word": [1, null, null]}}\n'
        '{"parents": [1, null], "inputs": {"word": [2, null]}}\n'
    )
    err = run("predict roots.tar graphs.jsonl -o never.csv", capsys, 2)
    assert "graphs.jsonl: line 1: it has 2 roots, and a row for each; --index tells" in err
    assert not (here / "never.csv").exists()
    out = run("predict roots.tar graphs.jsonl --index", capsys).splitlines()
    assert [line.split(",")[:2] for line in out[1:]] == [["0", "1"], ["0", "2"], ["1", "1"]]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("trees.txt", "trees.txt: line 1, node 0: 'not' is not a number; --vocabulary names a file of words"),
        ("trees.txt --unknown unk", "--unknown unk: without --vocabulary there are no words"),
        ("late.txt --vocabulary words.txt", "late.txt: line 5001, node 1: 'foo' is not in the vocabulary"),
        ("trees.txt --vocabulary none.txt", "none.txt: there is no such file, expected a file of words"),
        ("words.csv", "words.csv: structures with the suffix '.csv' can't be read"),
        ("empty.txt", "empty.txt: there are no structures to predict"),
        (
            "high.npz --labels drop",
            "high.npz: --labels needs text, .txt, .trees, .ptb, .mrg",
        ),
        ("trees.txt --drop id", "--drop needs columns, and structures have none"),
        ("cycle.npz", "cycle.npz: structure 5000, node 0: it depends on itself"),
        ("high.npz", "high.npz: structure 5000, node 0: 'word' is out of range"),
        ("trees.txt --output score", "--output score: this classifier has label, proba"),
    ],
)
def test_wrong_data(given: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "late.txt").write_text("(it works)\n" * 5000 + "(it foo)\n")
    (here / "words.csv").write_text("a\n")
    (here / "empty.txt").write_text("\n\n")
    child, word = np.full((5001, 1), -1), np.zeros(5001, int)
    np.savez(here / "high.npz", child=child, starts=np.arange(5002), word=np.where(child[:, 0] + 1, 0, word))
    word[5000], child[5000] = 6, 5000
    np.savez(here / "high.npz", child=np.full((5001, 1), -1), starts=np.arange(5002), word=word)
    np.savez(here / "cycle.npz", child=child, starts=np.arange(5002), word=np.zeros(5001, int))
    assert sentence in run(f"predict classes.tar {given} -o never.csv", capsys, 2)
    assert not (here / "never.csv").exists()


def test_structures_are_for_recursive_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sklearn.linear_model import LinearRegression

    hbtvm.compile(LinearRegression().fit([[0.0], [1]], [0, 1]), batch_sizes=(1,)).save("linear.tar")
    (here / "rows.csv").write_text("1\n")
    err = run("predict linear.tar rows.csv --vocabulary words.txt", capsys, 2)
    assert "--vocabulary: linear.tar is not a recursive model" in err
    with pytest.raises(InputError, match="sample holds structures, which only recursive models"):
        hbtvm.compile(LinearRegression().fit([[0.0], [1]], [0, 1]), sample=rec.trees([[1, 2]]))


def test_predicting_needs_no_compiler(here: Path) -> None:
    command = [
        sys.executable, "-X", "importtime", "-m", "hbtvm", "predict", "classes.tar", "trees.txt",
        "--vocabulary", "words.txt",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "hbtvm.runtime.model" in modules
    assert not [one for one in modules if one.partition(".")[0] in ("tvm", "torch", "sklearn", "pandas")]
    assert len(done.stdout.splitlines()) == 5


def test_tuning_on_structures_of_one_s_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sst.txt").write_text("(3 (2 it) (4 works))\n(1 (1 not) (3 (2 very) (3 foo)))\n")
    words = "--labels drop --vocabulary words.txt --unknown unk"
    given = "tune roots.rec --trials 2 --threads 1 --batch-size 1,2 --log own.jsonl -o own.tar"
    out = run(f"{given} --sample sst.txt {words}", capsys)
    lines = out.splitlines()
    heads = ["strategy", "default", "kernel", "gain", "per", "structure", "call", "trials", "failed"]
    assert lines[0].split()[4:] == heads
    assert lines[1].startswith("1 structure ") and lines[2].startswith("2 structures ")
    assert "measured on  your 2 structures of 4 nodes in the mean" in out
    assert "hbtvm predict own.tar STRUCTURES.txt -o OUT.csv" in out
    records = [json.loads(line) for line in (here / "own.jsonl").read_text().splitlines()]
    assert {(one["workload"]["nodes"], one["workload"]["levels"]) for one in records} == {(4, 2), (4, 3)}
    # What was measured is found again for such structures, and not for others.
    given = "compile roots.rec --threads 1 --batch-size 1 --log own.jsonl -o again.tar"
    run(f"{given} --sample sst.txt {words}", capsys)
    assert hbtvm.load("again.tar").package.tuning["origins"] == ["log"]
    best = run("log best own.jsonl --strategy levels", capsys)
    assert " structures kernel per structure call strategy " in " ".join(best.split())
    assert "recursive, up to 2 children, " in best and "structures of about 4 nodes, 3 levels" in best
    run("report own.jsonl", capsys)
    page = (here / "own.html").read_text()
    assert "2 structures in a call" in page and "per structure</th>" in page and "row in a call" not in page
    err = run("report own.jsonl --package own.tar --model roots.rec", capsys, 2)
    assert "a recursive model has no library to compare with" in err


def test_packages_know_their_words(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bank.txt").write_text("(3 (2 it) (4 works))\n(1 (1 not) (3 (2 very) (3 foo)))\n")
    with_words = "--vocabulary words.txt --unknown unk --labels drop"
    run(f"compile classes.rec --batch-size 4 --threads 1 {with_words} -o known.tar", capsys)
    expected = run(f"predict classes.tar bank.txt {with_words} --output proba", capsys)
    assert run("predict known.tar bank.txt --output proba", capsys) == expected
    assert "6, 'unk' for others" in run("inspect known.tar", capsys)
    # Options say otherwise for one file.
    plain = run("predict known.tar trees.txt --labels none --output proba", capsys)
    assert plain == run("predict classes.tar trees.txt --vocabulary words.txt --output proba", capsys)
    (here / "turned.txt").write_text("\n".join(reversed(WORDS)))
    turned = "--vocabulary turned.txt --unknown unk --labels drop"
    assert run(f"predict known.tar bank.txt {turned}", capsys) == run(
        f"predict classes.tar bank.txt {turned}", capsys
    )
    assert "the model knows no such word" in run("predict known.tar bank.txt --unknown foo", capsys, 2)

    # The model's file knows them, too; and without, files and packages are as they were.
    model = rec.load(here / "classes.rec")
    assert model.vocabulary is None
    assert json.loads(zipfile.ZipFile(here / "classes.rec").read("model.json"))["format"] == 1
    words = Vocabulary(tuple(WORDS), 5, "drop")
    kept = rec.Model(
        model.cell, readout=model.readout, layers=model.layers, classes=model.classes, vocabulary=words
    )
    kept.save(here / "kept.rec")
    assert rec.load(here / "kept.rec").vocabulary == words
    np.testing.assert_array_equal(rec.trees([["it", "foo"]], words).inputs["word"], [4, 5, -1])
    assert json.loads(zipfile.ZipFile(here / "kept.rec").read("model.json"))["format"] == 1
    run("compile kept.rec --batch-size 4 --threads 1 -o kept.tar", capsys)
    assert run("predict kept.tar bank.txt --output proba", capsys) == expected
    assert "6, 'unk' for others" in run("inspect kept.rec", capsys)
    assert json.loads(run("inspect kept.rec --json", capsys))["vocabulary"]["unknown"] == "unk"
    for name, version in (("classes.tar", 1), ("kept.tar", 1)):
        with tarfile.open(here / name) as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest is not None
            assert json.load(manifest)["version"] == version


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"words": ["a", "a"], "unknown": None, "labels": "none"}, "is word 0 and again word 1"),
        ({"words": ["a", ""], "unknown": None, "labels": "none"}, "word 1 is"),
        ({"words": [], "unknown": None, "labels": "none"}, "no words"),
        ({"words": ["a"], "unknown": 1, "labels": "none"}, "which no word has"),
        ({"words": ["a"], "unknown": None, "labels": "some"}, "labels is"),
        ({"words": ["a"], "unknown": True, "labels": "none"}, "unknown is True"),
        ({"words": "ab", "unknown": None, "labels": "none"}, "expected a list"),
        ({"words": ["a"], "more": 1}, "more"),
    ],
)
def test_damaged_vocabularies(given: dict[str, object], sentence: str, here: Path) -> None:
    with zipfile.ZipFile(here / "classes.rec") as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    document = json.loads(members["model.json"])
    document |= {"vocabulary": given}
    members["model.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(here / "odd.rec", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ModelError, match=sentence):
        rec.load(here / "odd.rec")


def test_the_default_is_calls_of_few_structures(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless rows are given, the same numbers as of other models' default, too."""
    module = fake_cli.api()
    monkeypatch.setitem(sys.modules, "hbtvm.api", module)
    monkeypatch.setattr(hbtvm, "api", module, raising=False)
    fake_cli.CALLS.clear()
    for more in ("", " --batch-size 1,100,10000"):
        for command in ("compile", "tune"):
            out = run(f"{command} roots.rec -o few.tar{more}", capsys)
            assert "hbtvm predict few.tar STRUCTURES.txt" in out
    sizes = [options.get("batch_sizes") for _, _, options in fake_cli.CALLS]
    assert sizes == [None, None, (1, 100, 10_000), (1, 100, 10_000)]
    assert all(isinstance(model, rec.Model) for _, model, _ in fake_cli.CALLS)
    assert "sample" not in fake_cli.CALLS[0][2]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("compile roots.rec --sample trees.txt", "trees.txt: line 1, node 0: 'not' is not a number"),
        ("tune roots.rec --sample empty.txt", "empty.txt: there are no structures to measure on"),
        ("tune roots.rec --labels drop", "--labels drop: there is neither a --sample nor a --vocabulary"),
        ("compile roots.rec --vocabulary many.txt", "many.txt: there are 7 words; the model's 'word' has 6"),
        (
            "compile roots.rec --vocabulary words.txt --unknown foo",
            "--unknown foo: words.txt has no such word",
        ),
        ("compile roots.rec --children 2", "roots.rec: --children needs a .pt2 file"),
        ("inspect roots.tar --state h,c", "roots.tar: --state needs a .pt2 file"),
        ("compile roots.rec --dtype float64", "recursive models are computed in float32"),
        ("compile roots.rec --strategy gemm", "recursive models have the strategy levels only, not gemm"),
        ("compile damaged.rec", "damaged.rec: expected a .rec file, but it is not a zip archive"),
        ("compile weights.pt", "weights.pt: this is a pickle of torch.save"),
        ("compile other.zip", "other.zip: expected a model file: "),
        ("predict roots.rec trees.txt", "roots.rec: this seems to be a trained model, expected a package"),
    ],
)
def test_wrong_commands(given: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty.txt").write_text("")
    (here / "many.txt").write_text("\n".join([*WORDS, "more"]))
    (here / "damaged.rec").write_bytes(b"nothing of a model")
    for name, member in (("weights.pt", "archive/data.pkl"), ("other.zip", "readme")):
        with zipfile.ZipFile(here / name, "w") as archive:
            archive.writestr(member, b"")
    assert sentence in run(given, capsys, 2)


def test_inspecting_a_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("inspect classes.rec", capsys)
    for line in (
        "cell       small, up to 2 children",
        "states     h (4), c (4)",
        "readout    h (4) of each node without a parent",
        "layers     linear (2 x 4), softmax",
        "classes    bad, fine",
        "levels    yes",
    ):
        assert line in out, out
    told = json.loads(run("inspect classes.rec --json", capsys))
    model = rec.load("classes.rec")
    assert told["states"] == {"h": [4], "c": [4]} and told["classes"] == ["bad", "fine"]
    assert told["numbers"] == sum(one.size for one in model.cell.weights.values()) + 8
    assert told["strategies"] == {"levels": None}
    out = run("inspect classes.tar", capsys)
    assert "4 numbers of each root" in out and "kernels of the layers behind" in out
    assert "structures  strategy  threads  kernels  per structure  schedule" in out


def test_inspecting_what_no_kernel_computes(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cell: Cell) -> None:
        raise UnsupportedModel(f"the cell {cell.name} has roots, which no kernel computes yet")

    monkeypatch.setattr("hbtvm.strategies.recursive.levels.classes_of", refuse)
    lines = run("inspect roots.rec", capsys).splitlines()
    assert lines[-1].split()[:4] == ["levels", "no", "the", "cell"] and "no kernel computes" in lines[-1]
