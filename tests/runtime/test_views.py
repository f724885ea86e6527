"""Views: packages that hold the leaves and the scores of each tree beside predictions."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import Ridge

import hbtvm
from hbtvm import recursive as rec
from hbtvm.cli.main import main
from hbtvm.errors import InputError, InputTypeError, PackageError
from hbtvm.frontends import from_object
from hbtvm.graph.views import views_of
from hbtvm.recursive import known
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.trials import export

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 5)).astype(np.float32)
TARGETS = np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.5, 0.5])
ROWS = RANDOM.normal(size=(50, 5)).astype(np.float32)


def compiled(graph: Any, **options: Any) -> Model:
    return hbtvm.compile(graph, batch_sizes=64, threads=1, **options)


@cache
def boosting() -> tuple[GradientBoostingClassifier, Model]:
    model = GradientBoostingClassifier(n_estimators=6, max_depth=3, random_state=0).fit(X, TARGETS)
    return model, compiled(model, explain=True)


@cache
def forest() -> tuple[RandomForestClassifier, Model]:
    model = RandomForestClassifier(7, max_depth=4, random_state=0).fit(X, TARGETS > 0)
    return model, compiled(model, explain=True)


def test_leaves_are_the_librarys(tmp_path: Path) -> None:
    for library, model in (boosting(), forest()):
        model.save(tmp_path / "model.tar")
        for each in (model, hbtvm.load(tmp_path / "model.tar"), pickle.loads(pickle.dumps(model))):
            for rows in (ROWS, ROWS[:1], ROWS.astype(np.float64)):
                leaves = each.apply(rows)
                assert leaves.dtype == np.int64
                np.testing.assert_array_equal(leaves, library.apply(rows))


def test_scores_of_each_tree() -> None:
    library, model = forest()
    expected = np.stack([tree.predict_proba(ROWS) for tree in library.estimators_], axis=1)
    scores = model.predict_per_tree(ROWS)
    assert (scores.dtype, scores.shape) == (np.float64, (50, 7, 2))
    np.testing.assert_allclose(scores, expected, rtol=1e-15)
    np.testing.assert_allclose(scores.mean(axis=1), library.predict_proba(ROWS), rtol=1e-12)


def test_stages() -> None:
    library, model = boosting()
    assert model.predict_per_tree(ROWS).shape == (50, 6, 3)
    for output, expected in (
        (None, library.staged_predict(ROWS)),
        ("proba", library.staged_predict_proba(ROWS)),
        ("decision", library.staged_decision_function(ROWS)),
    ):
        for got, want in zip(model.staged_predict(ROWS, output), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)
    raw = [model.predict_iterations(ROWS, part, "decision") for part in ((0, 4), (4, 6), (0, 6))]
    base = model.package.forest["base_score"]
    np.testing.assert_allclose(raw[0] + raw[1] - base, raw[2], rtol=1e-12)
    np.testing.assert_allclose(raw[2], library.decision_function(ROWS), rtol=1e-12)
    for wrong in ((0, 7), (3, 3), (-1, 2)):
        with pytest.raises(InputError, match=r"expected a range within \(0, 6\)"):
            model.predict_iterations(ROWS, wrong)


def test_averages_are_of_the_trees_that_count() -> None:
    library, model = forest()
    first = np.mean([tree.predict_proba(ROWS) for tree in library.estimators_[:3]], axis=0)
    np.testing.assert_allclose(model.predict_iterations(ROWS, (0, 3), "proba"), first, rtol=1e-12)
    np.testing.assert_array_equal(list(model.staged_predict(ROWS))[-1], library.predict(ROWS))


def test_packages_without_views_are_unchanged() -> None:
    _, model = boosting()
    plain = compiled(boosting()[0])
    bare = replace(model.package, views={}, no_views={})
    same = replace(plain.package, tuning=bare.tuning)
    assert to_bytes(bare) == to_bytes(same)
    assert b"views" not in to_bytes(bare)
    assert to_bytes(from_bytes(to_bytes(model.package))) == to_bytes(model.package)
    for call in (plain.apply, plain.predict_per_tree):
        with pytest.raises(InputError, match=r"compile the model with explain=True \(hbtvm compile --exp"):
            call(ROWS)


def test_models_without_views() -> None:
    library = GradientBoostingRegressor(n_estimators=3, random_state=0).fit(X, X[:, 0])
    graph = from_object(library)
    unnumbered = replace(graph, anchor=replace(graph.anchor, leaf_id=None))
    model = compiled(unnumbered, explain=True)
    np.testing.assert_allclose(list(model.staged_predict(ROWS)), list(library.staged_predict(ROWS)))
    with pytest.raises(InputError, match=r"has no leaf indices: hbtvm does not read the numbers of leaves"):
        from_model = Model.from_package(from_bytes(to_bytes(model.package)))
        from_model.apply(ROWS)
    linear = compiled(Ridge().fit(X, X[:, 0]), explain=True)
    assert list(linear.views) == ["reasons"]
    for call, what in ((linear.apply, "leaf indices"), (linear.predict_per_tree, "scores of each tree")):
        with pytest.raises(InputError, match=f"Ridge has no {what}: it is not an ensemble of trees"):
            call(ROWS)


def test_large_leaf_numbers() -> None:
    graph = from_object(GradientBoostingRegressor(n_estimators=2).fit(X, X[:, 0]))
    large = graph.anchor.leaf_id + (1 << 30) + 1
    view = views_of(replace(graph, anchor=replace(graph.anchor, leaf_id=large)))["leaves"]
    assert view.anchor.precise
    expected = views_of(graph)["leaves"]
    assert not expected.anchor.precise
    both = [compiled(each).predict(ROWS) for each in (view, expected)]
    np.testing.assert_array_equal(both[0], both[1] + (1 << 30) + 1)


def test_options() -> None:
    with pytest.raises(InputTypeError, match=r"explain is 'yes', a str; expected True or False"):
        compiled(boosting()[0], explain="yes")
    with pytest.raises(InputError, match=r"recursive models have no trees to explain"):
        hbtvm.compile(rec.Model(known.example("tree_lstm", 3, vocabulary=9)), explain=True)
    with pytest.raises(InputError, match=r"an export writes no package, so it takes no explain"):
        export(boosting()[0], "trials.tar", explain=True)


def test_damaged_views() -> None:
    package = boosting()[1].package
    leaves = package.views["leaves"]
    for wrong, reason in (
        (replace(leaves, views={"trees": leaves}), "within a package"),
        (replace(package, views={}, no_views={}), "not a view of this model"),
        (forest()[1].package.views["leaves"], None),
    ):
        data = to_bytes(replace(package, views={"leaves": wrong}))
        if reason is None:
            from_bytes(data)
            continue
        with pytest.raises(PackageError, match=rf"views/leaves\.tar: .*{reason}"):
            from_bytes(data)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.tar"
    with open(tmp_path / "model.pkl", "wb") as file:
        pickle.dump(boosting()[0], file)
    command = ["compile", str(tmp_path / "model.pkl"), "-o", str(path), "--batch-size", "64"]
    assert main([*command, "--threads", "1", "--explain"]) == 0
    assert "trees" in hbtvm.load(path).views
    assert main(["inspect", str(path)]) == 0
    assert ", trees" in capsys.readouterr().out
    np.save(tmp_path / "rows.npy", ROWS)
    shown = ["predict", str(path), str(tmp_path / "rows.npy"), "--output", "leaves"]
    assert main(shown) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.split(",")[:2] == ["leaves_0", "leaves_1"]
    leaves = boosting()[0].apply(ROWS).reshape(50, -1).astype(int)
    np.testing.assert_array_equal(np.loadtxt(lines, delimiter=","), leaves)
    compiled(boosting()[0]).save(path)
    assert main(shown) == 2
    assert "the package has no leaf indices; compile the model with explain=True" in capsys.readouterr().err
