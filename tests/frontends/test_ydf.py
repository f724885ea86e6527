"""YDF against its library: folders, models in memory and pickles; damaged files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.comparison.library import Live
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.ydf.model import from_bytes
from tests.oracle import edge_rows
from tests.staged import outputs_of

pd = pytest.importorskip("pandas")
ydf = pytest.importorskip("ydf")
ydf.verbose(0)

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(8)
N = 300
FRAME = pd.DataFrame(
    {
        "a": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(size=N)).astype(np.float32),
        "n": RNG.integers(0, 6, N),
        "c": pd.Series(RNG.choice(["x", "y", "zz", "w"], N), dtype=object).where(RNG.random(N) > 0.1, None),
        "b": RNG.random(N) < 0.5,
        "e": RNG.normal(size=N),
        "i": RNG.integers(-3, 3, N),
    }
)
SCORE = FRAME.a.fillna(0.5) + (FRAME.c == "x") + FRAME.b * FRAME.e + (FRAME.i == -1)
FEATURES = ["a", "n", "c", "b", "e", ydf.Feature("i", ydf.Semantic.CATEGORICAL)]
TARGETS = {
    "two": np.where(SCORE > 1.0, "pos", "neg"),
    "four": np.digitize(SCORE, [0.0, 0.8, 1.7]),
    "number": SCORE.to_numpy(),
    "count": np.clip(np.round(SCORE), 0, 9),
    "group": (np.arange(N) // 10).astype(str),
}
TRAINING = FRAME.assign(**TARGETS)
ROWS = FRAME.copy()
ROWS.loc[:9, "c"], ROWS.loc[10:19, "c"], ROWS.loc[5:14, "i"] = "unknown", "", 77
ROWS.loc[20:39, ["a", "e"]] = np.nan
ROWS.loc[40:44, "e"], ROWS.loc[45:49, "a"] = np.inf, -np.inf

BOOSTED, FOREST, CART = ydf.GradientBoostedTreesLearner, ydf.RandomForestLearner, ydf.CartLearner
REGRESSION = ydf.Task.REGRESSION


def trained(learner: Any, label: str, **options: Any) -> Any:
    if learner is not CART:
        options = {"num_trees": 12, **options}
    if learner is FOREST:
        options["compute_oob_performances"] = False
    return learner(label=label, features=FEATURES, **options).train(TRAINING)


def same(model: Any, graph: Any, rows: Any, data: Any) -> None:
    """Compare probabilities and labels, or responses; `data` is `rows` as YDF takes them."""
    ours, theirs = outputs_of(graph, rows), model.predict(data)
    if graph.output.kind != "classifier":
        assert ours[None].dtype == theirs.dtype
        np.testing.assert_allclose(ours[None], theirs, rtol=2e-6, atol=2e-6)
        return
    proba = ours["proba"][:, 1] if theirs.ndim == 1 else ours["proba"]
    np.testing.assert_allclose(proba, theirs, atol=1e-6)
    np.testing.assert_array_equal(ours[None], model.predict_class(data))


@pytest.mark.parametrize(
    ("learner", "label", "options"),
    [
        (BOOSTED, "two", {}),
        (BOOSTED, "four", {}),
        (BOOSTED, "number", {"task": REGRESSION}),
        (BOOSTED, "number", {"task": REGRESSION, "loss": "MEAN_AVERAGE_ERROR"}),
        (BOOSTED, "count", {"task": REGRESSION, "loss": "POISSON"}),
        (BOOSTED, "count", {"task": ydf.Task.RANKING, "ranking_group": "group"}),
        (BOOSTED, "two", {"loss": "BINARY_FOCAL_LOSS", "categorical_algorithm": "RANDOM"}),
        (BOOSTED, "two", {"apply_link_function": False}),
        (BOOSTED, "four", {"apply_link_function": False}),
        (BOOSTED, "two", {"discretize_numerical_columns": True, "num_discretized_numerical_bins": 20}),
        (BOOSTED, "two", {"missing_value_policy": "RANDOM_LOCAL_IMPUTATION", "dart_dropout": 0.2}),
        (BOOSTED, "two", {"allow_na_conditions": True, "growing_strategy": "BEST_FIRST_GLOBAL"}),
        (BOOSTED, "two", {"min_vocab_frequency": 70}),
        (FOREST, "two", {"winner_take_all": False}),
        (FOREST, "four", {"winner_take_all": False}),
        (FOREST, "four", {}),
        (FOREST, "number", {"task": REGRESSION}),
        (CART, "four", {}),
        (CART, "number", {"task": REGRESSION}),
    ],
    ids=str,
)
def test_models(learner: Any, label: str, options: dict[str, Any], tmp_path: Path):
    model = trained(learner, label, **options)
    model.save(str(tmp_path / "m"))
    # A frame's columns are found by name.
    rows = ROWS[[*reversed(ROWS.columns)]]
    names = model.input_feature_names()
    for graph in (load_model(tmp_path / "m"), from_object(model)):
        assert graph.input.feature_names == tuple(names)
        same(model, graph, rows[names], rows)
    # Comparisons call the methods that the outputs stand for.
    ours = outputs_of(graph, rows[names])
    outputs = {"predict": None, "predict_proba": "proba"} if "proba" in ours else {"predict": None}
    library = Live(model, [*outputs], 1)
    library.take(rows)
    for name, output in outputs.items():
        theirs = library.result(name)
        assert (theirs.shape, theirs.dtype.kind) == (ours[output].shape, ours[output].dtype.kind)


@pytest.mark.parametrize("trees", [2, 24, 38])
def test_tied_votes_of_two_classes(trees: int):
    """In float32, the votes of half of the trees add up to less than one half, for 24 and 38 trees."""
    x = np.tile(FRAME[["e"]].to_numpy(np.float32), (1, 2))
    labels = (RNG.random(N) < 0.5).astype(int)
    learner = FOREST(label="y", num_trees=trees, max_depth=2, compute_oob_performances=False)
    model = learner.train({"x": x, "y": labels})
    graph = from_object(model)
    rows = edge_rows(graph, "float64", n=3000)
    same(model, graph, rows, {"x": rows})


def test_numbers_at_thresholds():
    x = RNG.normal(size=(N, 4)).astype(np.float32)
    model = BOOSTED(label="y", num_trees=12).train({"x": x, "y": x[:, 0] > x[:, 1] * x[:, 2]})
    graph = from_object(model)
    assert graph.input.feature_names == tuple(f"x.{i}_of_4" for i in range(4))
    for dtype in ("float64", "float32"):
        rows = edge_rows(graph, dtype)
        same(model, graph, rows, {"x": rows})


def test_integerized_and_bool_categories():
    categories = {"w": RNG.integers(0, 5, N), "z": RNG.random(N) < 0.5}
    features = [
        ydf.Feature("w", ydf.Semantic.CATEGORICAL, is_already_integerized=True),
        ydf.Feature("z", ydf.Semantic.CATEGORICAL),
    ]
    label = (categories["w"] == 2) ^ categories["z"]
    frame = pd.DataFrame(categories)
    model = BOOSTED(label="y", features=features, num_trees=5).train(frame.assign(y=label))
    graph = from_object(model)
    frame.loc[:9, "w"] = -1
    same(model, graph, frame, frame)
    frame.loc[0, "w"] = 5
    with pytest.raises(InputError, match=r"column 'w': 5\.0 was not in the training data"):
        outputs_of(graph, frame)


def test_integers_and_bools_are_texts():
    """YDF's dictionaries hold texts; rows may hold integers and bools, or their texts."""
    frame = pd.DataFrame(
        {"i": RNG.integers(-1, 5, N), "z": RNG.random(N) < 0.5, "t": RNG.choice(["10", "2", "x"], N)}
    )
    features = [ydf.Feature(name, ydf.Semantic.CATEGORICAL) for name in frame]
    label = (frame.i % 3 == 0) ^ frame.z | (frame.t == "10")
    model = BOOSTED(label="y", features=features, num_trees=5).train(frame.assign(y=label))
    graph = from_object(model)
    columns = graph.input.feature_names
    texts = frame.assign(i=frame.i.astype(str), z=np.where(frame.z, "true", "false"))
    for rows in (frame, texts, frame.assign(t=np.where(frame.t == "10", 10, 2)), frame.assign(i=7, t="010")):
        same(model, graph, rows[[*columns]], rows)
    csv = frame.assign(z=frame.z.map(str))
    same(model, graph, csv[[*columns]], frame)


def test_a_pickle_and_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = trained(BOOSTED, "two")
    model.save(str(tmp_path / "m.ydf"))
    Path(tmp_path, "m.pkl").write_bytes(pickle.dumps(model))
    same(model, load_model(tmp_path / "m.pkl"), ROWS, ROWS)
    assert main(["inspect", str(tmp_path / "m.ydf")]) == 0
    assert "GradientBoostedTreesModel" in capsys.readouterr().out
    compiled = hbtvm.compile(tmp_path / "m.ydf", batch_sizes=50, threads=1)
    wider = ROWS.assign(other="text")[["other", *reversed(ROWS.columns)]]
    np.testing.assert_allclose(compiled.predict_proba(wider)[:, 1], model.predict(ROWS), atol=1e-6)
    np.testing.assert_array_equal(compiled.predict(wider), model.predict_class(ROWS))


def test_refusals(tmp_path: Path):
    with pytest.raises(UnsupportedModel, match=r"oblique splits .*; train it with axis-aligned splits"):
        from_object(trained(BOOSTED, "two", split_axis="SPARSE_OBLIQUE"))
    with pytest.raises(UnsupportedModel, match="ydf's IsolationForestModel is not supported yet"):
        from_object(ydf.IsolationForestLearner(features=["a", "e"], num_trees=3).train(TRAINING))
    words = pd.DataFrame({"s": [["a", "b"], ["c"]] * 50, "y": [1, 0] * 50})
    learner = BOOSTED(label="y", features=[ydf.Feature("s", ydf.Semantic.CATEGORICAL_SET)], num_trees=2)
    with pytest.raises(UnsupportedModel, match="column 's' of the type CATEGORICAL_SET"):
        from_object(learner.train(words))
    trained(CART, "two").save(str(tmp_path / "m"))
    (tmp_path / "m/nodes-00000-of-00001").unlink()
    with pytest.raises(ModelError, match="is incomplete: its folder lacks nodes-00000-of-00001"):
        load_model(tmp_path / "m")


def changed(content: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes that differ in a few places."""
    result = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(result) or 1))
        size = int(rng.integers(1, 20))
        match int(rng.integers(6)):
            case 0:
                del result[at : at + size]
            case 1:
                result[at:at] = result[at : at + size] * 2
            case 2:
                result[at : at + 1] = bytes([rng.integers(256)])
            case _:
                result[at : at + 1] = bytes([int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)]))])
    return bytes(result)


def test_damaged_files(tmp_path: Path):
    """Bytes changed at random: the reader raises ModelError, or reads."""
    model = trained(FOREST, "four", num_trees=2, max_depth=4, winner_take_all=False)
    model.save(str(tmp_path))
    contents: dict[str, bytes] = {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    names = [name for name, content in contents.items() if content]
    serialized = model.serialize()
    outcomes = []
    for number in range(300):
        rng = np.random.default_rng(number)
        name = [*names, ""][number % (len(names) + 1)]
        try:
            if name:
                (tmp_path / name).write_bytes(changed(contents[name], rng))
                load_model(tmp_path)
            else:
                from_bytes(changed(serialized, rng))
            outcomes.append("model")
        except ModelError as error:
            assert str(error).isprintable(), error
            assert len(str(error)) < 600
            outcomes.append("error")
        finally:
            (tmp_path / (name or names[0])).write_bytes(contents[name or names[0]])
    assert min(map(outcomes.count, ("model", "error"))) > 30, outcomes
