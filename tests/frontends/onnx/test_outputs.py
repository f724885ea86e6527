"""What `predict`, `predict_proba` and `transform` give of a file's outputs; inputs that say no columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from sklearn import (
    decomposition,
    ensemble,
    linear_model,
    mixture,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

import hbtvm
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.onnx.models import model, node
from tests.frontends.onnx.oracle import check, close, predict, runtime
from tests.frontends.onnx.test_converted import TWO, X, Y, converted

ML = "ai.onnx.ml"
NAN = float("nan")
BITS = np.c_[TWO, Y == 1, 1 - TWO].astype(int)
TWO_TARGETS = np.c_[TWO, Y]
NAMES, OTHERS = np.array(["no", "yes", "maybe"], object), np.array(["yes", "No"], object)


def tensor(values: Any, dtype: Any) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, dtype))


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    ("keys", "values", "out"),
    [
        ({"keys_floats": [1.0, NAN, 2.0]}, {"values_floats": [10.0, 20.0, 30.0]}, "float"),
        ({"keys_floats": [NAN, NAN, 2.0]}, {"values_int64s": [10, 20, 30]}, "int64"),
        ({"keys_floats": [1.0, NAN, 2.0]}, {"values_strings": ["a", "nan", "c"]}, "str"),
        (
            {"keys_tensor": tensor([0.1, NAN, 2], np.float32)},
            {"values_tensor": tensor([1, 2, 3], np.int64), "default_tensor": tensor([7], np.int64)},
            "int64",
        ),
        (
            {"keys_tensor": tensor([0.1, NAN, 2], np.float64)},
            {"values_tensor": tensor([0.1, 2, 3], np.float64), "default_tensor": tensor([7], np.float64)},
            "double",
        ),
    ],
    ids=["floats", "integers", "strings", "tensor", "doubles"],
)
def test_keys_of_nan(keys: Any, values: Any, out: str, computed: bool) -> None:
    dtype = "double" if out == "double" else "float"
    nodes = [node("LabelEncoder", ["V" if computed else "X"], ["Y"], ML, **keys, **values)]
    if computed:
        nodes.insert(0, node("Add", ["X", "X"], ["V"]))
    rows = np.array([[1.0, NAN, 0.1], [NAN, -1.0, 2.0], [2.0, 0.1, 5.0]])
    rows = rows.astype(np.float32 if dtype == "float" else np.float64) / (2 if computed else 1)
    # NaN is a key since version 4, to which tensors belong.
    for version in (4,) if "keys_tensor" in keys else (2, 4):
        found = model(nodes, {"Y": out}, inputs={"X": (dtype, [None, 3])}, versions={"": 18, ML: version})
        expected = runtime(found, rows)[0]
        result = np.asarray(predict(from_object(found), rows))
        assert result.shape == expected.shape and result.dtype.kind in (expected.dtype.kind, "U")
        assert result.tolist() == expected.tolist()


TRANSFORMERS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "Scaler": ({"offset": [1.0], "scale": [0.5]}, X[:, :3]),
    "Imputer": ({"imputed_value_floats": [7.0], "replaced_value_float": NAN}, np.where(X > 1, NAN, X)[:, :3]),
    "Normalizer": ({"norm": "L2"}, X[:, :3]),
    "Binarizer": ({"threshold": 0.25}, X[:, :3]),
    "OneHotEncoder": ({"cats_int64s": [0, 1, 2]}, Y[:, None]),
    "LabelEncoder": ({"keys_int64s": [0, 1, 2], "values_int64s": [5, 6, 7]}, Y[:, None]),
}


def test_graphs_of_numbers_transform_and_predict_in_the_shape_of_the_file() -> None:
    for kind, (attributes, rows) in TRANSFORMERS.items():
        whole = rows.dtype.kind == "i"
        out = "int64" if kind == "LabelEncoder" else "float"
        inputs = {"X": ("int64" if whole else "float", [None, rows.shape[1]])}
        nodes = [node(kind, ["X"], ["Y" if kind != "OneHotEncoder" else "C"], ML, **attributes)]
        constants = {}
        if kind == "OneHotEncoder":
            nodes.append(node("Reshape", ["C", "shape"], ["Y"]))
            constants["shape"] = np.array([-1, 3])
        found = model(nodes, {"Y": out}, inputs=inputs, constants=constants)
        rows = rows if whole else rows.astype(np.float32)
        expected = runtime(found, rows)[0]
        results = [predict(from_object(found), rows)]
        if kind in ("Scaler", "LabelEncoder"):
            compiled = hbtvm.compile(found, batch_sizes=1, threads=1)
            results += [compiled.transform(rows), compiled.predict(rows)]
        for result in results:
            assert np.shape(result) == expected.shape and np.asarray(result).dtype == expected.dtype
            close(np.asarray(result), expected)


def test_graphs_that_classify_do_not_transform() -> None:
    found = converted(linear_model.LogisticRegression(), X, TWO)
    with pytest.raises(InputError, match="predicts; expected"):
        hbtvm.compile(found, batch_sizes=1, threads=1).transform(X)


@pytest.mark.parametrize(
    ("estimator", "target", "options"),
    [
        (multioutput.MultiOutputClassifier(linear_model.LogisticRegression()), BITS, {}),
        (multioutput.MultiOutputClassifier(tree.DecisionTreeClassifier(max_depth=3)), TWO_TARGETS, {}),
        (multioutput.MultiOutputClassifier(tree.DecisionTreeClassifier(max_depth=3)), NAMES[TWO_TARGETS], {}),
        (
            multioutput.MultiOutputClassifier(linear_model.LogisticRegression()),
            np.c_[NAMES[Y], OTHERS[TWO], NAMES[TWO]],
            {},
        ),
        (
            multioutput.MultiOutputClassifier(naive_bayes.GaussianNB()),
            np.c_[TWO * 5 - 9, Y],
            {"zipmap": False},
        ),
        (neural_network.MLPClassifier((5,), max_iter=20, random_state=0), BITS, {}),
        (neighbors.KNeighborsClassifier(3), BITS, {"zipmap": False}),
        (ensemble.RandomForestClassifier(3, random_state=0), BITS, {"zipmap": False}),
        (multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), BITS, {}),
    ],
    ids=[
        "multi_output",
        "apart",
        "strings_apart",
        "three_apart",
        "negative_apart",
        "mlp",
        "neighbors",
        "forest",
        "one_vs_rest",
    ],
)
def test_several_targets(estimator: Any, target: np.ndarray, options: dict[str, Any]) -> None:
    found = converted(estimator, X, target, **options)
    graph = from_object(found)
    labels, shares = runtime(found, X)
    np.testing.assert_array_equal(predict(graph, X), labels)
    result = predict(graph, X, "proba")
    if isinstance(shares, list):
        assert isinstance(result, list)
        for one, other in zip(result, shares, strict=True):
            close(one, np.asarray(other))
    else:
        close(np.stack(result) if isinstance(result, list) else result, shares)


@pytest.mark.parametrize(
    "estimator",
    [
        mixture.GaussianMixture(2, random_state=0),
        ensemble.IsolationForest(n_estimators=3, random_state=0),
        neighbors.LocalOutlierFactor(5, novelty=True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_scores_of_samples(estimator: Any) -> None:
    graph = check(converted(estimator, X, score_samples=True), X)
    assert "score" in graph.output.outputs
    found = converted(estimator, X, score_samples=True)
    # By another name it is some further output.
    for one in found.graph.node:
        for names in (one.input, one.output):
            names[:] = ["other" if name == "score_samples" else name for name in names]
    found.graph.output[2].name = "other"
    assert "score" not in from_object(found).output.outputs


def test_scores_of_samples_of_a_compiled_model() -> None:
    found = converted(mixture.GaussianMixture(2, random_state=0), X, score_samples=True)
    compiled = hbtvm.compile(found, batch_sizes=(1,), threads=1)
    labels, shares, scores = runtime(found, X)
    np.testing.assert_array_equal(compiled.predict(X), labels.ravel())
    close(compiled.predict_proba(X), shares)
    close(compiled.score_samples(X), scores.ravel())


@pytest.mark.parametrize("target", [Y, np.array(["a", "bb", "c"])[Y]], ids=["integers", "strings"])
@pytest.mark.parametrize("zipmap", [True, False, "columns"])
def test_columns_for_each_class(target: np.ndarray, zipmap: Any) -> None:
    found = converted(linear_model.LogisticRegression(), X, target, zipmap=zipmap)
    graph = from_object(found)
    labels, *shares = runtime(found, X)
    assert np.asarray(predict(graph, X)).tolist() == labels.tolist()
    close(predict(graph, X, "proba"), np.column_stack(shares))


@pytest.mark.parametrize("options", [{"decision_leaf": True}, {"decision_path": True}])
@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (tree.DecisionTreeClassifier(max_depth=3), Y),
        (ensemble.RandomForestClassifier(3, max_depth=3), TWO),
        (tree.DecisionTreeRegressor(max_depth=3), X[:, 0]),
        (ensemble.ExtraTreesRegressor(3, max_depth=3), X[:, 0]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_further_outputs_are_left_out_and_told(estimator: Any, target: np.ndarray, options: Any) -> None:
    classifies = hasattr(estimator, "predict_proba")
    found = converted(estimator, X, target, **options, **({"zipmap": False} if classifies else {}))
    name = next(iter(options))
    graph = from_object(found)
    assert any(f"'{name}' of the ONNX model are left out" in one for one in graph.rewrites)
    main, *others = runtime(found, X)
    close(np.asarray(predict(graph, X)), main)
    if classifies:
        close(predict(graph, X, "proba"), others[0])
    if name == "decision_leaf":
        # As the only output, they are computed.
        alone = type(found)()
        alone.CopyFrom(found)
        while len(alone.graph.output) > 1:
            del alone.graph.output[0]
        np.testing.assert_array_equal(predict(from_object(alone), X), others[-1])


def test_outputs_behind_the_first_may_not_be_supported() -> None:
    nodes = [node("Neg", ["X"], ["a"]), node("NonZero", ["X"], ["b"]), node("Neg", ["b"], ["c"])]
    inputs = {"X": ("float", [None, 2])}
    graph = from_object(model(nodes, {"a": "float", "c": "int64"}, inputs=inputs))
    assert graph.rewrites[0] == "the outputs 'c' of the ONNX model are left out"
    np.testing.assert_array_equal(predict(graph, X[:, :2]), -X[:, :2])
    with pytest.raises(UnsupportedModel, match="NonZero"):
        from_object(model(nodes, {"c": "int64", "a": "float"}, inputs=inputs))


UNSAID = {
    "scaler": (preprocessing.StandardScaler(), None),
    "divided": (preprocessing.MinMaxScaler(), None),
    "linear": (linear_model.Ridge(), X[:, 0]),
    "logistic": (linear_model.LogisticRegression(), Y),
    "svc": (svm.SVC(), TWO),
    "linear_svc": (svm.LinearSVC(), Y),
    "bayes": (naive_bayes.GaussianNB(), Y),
    "forest": (ensemble.RandomForestClassifier(5, random_state=0), Y),
    "neighbors": (neighbors.KNeighborsRegressor(3), X[:, 0]),
    "projection": (decomposition.KernelPCA(2), None),
    "pipeline": (
        pipeline.make_pipeline(preprocessing.Normalizer(), linear_model.LogisticRegression()),
        TWO,
    ),
}


@pytest.mark.parametrize("name", UNSAID)
def test_columns_that_no_input_says(name: str) -> None:
    estimator, target = UNSAID[name]
    found = converted(estimator, X, target)
    for one in found.graph.input:
        one.type.tensor_type.shape.dim[1].ClearField("dim_value")
    assert check(found, X).input.n_features == X.shape[1]


def test_columns_that_nothing_says_are_asked_for() -> None:
    nodes = [node("Normalizer", ["X"], ["Y"], ML, norm="L1")]
    with pytest.raises(UnsupportedModel, match="'X' does not say how many columns") as error:
        from_object(model(nodes, {"Y": "float"}, inputs={"X": ("float", [None, None])}))
    assert "dim_value" in str(error.value)


def test_what_stands_for_the_rows_is_in_no_message() -> None:
    shape = [node("Shape", ["X"], ["s"]), node("Gather", ["s", "zero"], ["n"])]
    ends: list[list[Any]] = [
        [node("Range", ["zero", "n", "one"], ["Y"])],
        [node("Tile", ["X", "s"], ["Y"])],
        [node("Concat", ["n", "n"], ["m"], axis=0), node("Reshape", ["X", "m"], ["Y"])],
        [node("Concat", ["n", "n"], ["m"], axis=0), node("ConstantOfShape", ["m"], ["Y"])],
    ]
    constants = {"zero": np.array([0]), "one": np.array([1])}
    for end in ends:
        found = model([*shape, *end], {"Y": "float"}, inputs={"X": ("float", [None, 2])}, constants=constants)
        with pytest.raises(hbtvm.HbtvmError) as error:
            from_object(found)
        assert "1,099" not in str(error.value) and "1099" not in str(error.value)
