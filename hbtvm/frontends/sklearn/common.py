"""What scikit-learn's tree estimators share: Cython trees, labels, input checks.

Front ends see an estimator as a `Record`: its class's name and its attributes. What the library
would compute from these, they compute themselves, as the release that wrote the estimator did.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import Tree, feature_count
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.arrays import field
from hbtvm.frontends.pickles.records import as_array
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.trees.covers import cover_of
from hbtvm.graph.trees.rounding import float32_at_most
from hbtvm.words.printable import shown

_NAN_CRITERIA = ("gini", "log_loss", "entropy", "squared_error", "friedman_mse", "poisson")
"""Criteria whose trees took missing values before scikit-learn 1.9, where all do."""


_USES, _ANY_USE = 4, 16 << 20
"""How often a tree's array may serve on average, and bytes for which this does not matter."""


def require_fitted(model: Record) -> None:
    """Refuse an estimator without attributes that end in ``_``, which fitting sets.

    Raises `UnsupportedModel` if it is not fitted.
    """
    if not is_fitted(model):
        raise UnsupportedModel(f"the {model.kind} is not fitted; hbtvm compiles trained models.")


def is_fitted(model: Record) -> bool:
    """Return whether an estimator has attributes that end in ``_``, which fitting sets."""
    return any(isinstance(n, str) and n.endswith("_") and not n.startswith("__") for n in model.attributes)


def tree_of(nodes: np.ndarray, value: np.ndarray, columns: np.ndarray | None = None) -> Tree:
    """Return a Cython tree; it compares float32 values with float64 thresholds.

    `nodes`: structured array, shape (M,), as in the tree's state (`nodes_of`).
    `value`: float64, shape (M, V).
    `columns`: the model's column of each of the tree's columns, where the tree saw only some.
    """
    feature = field(nodes, "feature").astype(np.int64)
    if columns is not None:
        feature = columns[np.maximum(feature, 0)]
    return Tree(
        feature=feature,
        threshold=float32_at_most(field(nodes, "threshold").astype(np.float64)).astype(np.float64),
        left=field(nodes, "left_child").astype(np.int64),
        right=field(nodes, "right_child").astype(np.int64),
        # scikit-learn before 1.3 took no missing values.
        default_left=field(nodes, "missing_go_to_left", False).astype(bool),
        value=value,
        cover=cover_in(nodes, "weighted_n_node_samples"),
        leaf_id=np.arange(len(nodes)),
    )


def cover_in(nodes: np.ndarray, name: str) -> np.ndarray | None:
    """Return covers out of a structured array of nodes; None if they are missing or no numbers."""
    return cover_of(nodes[name], len(nodes)) if name in (nodes.dtype.names or ()) else None


def nodes_of(estimator: Record) -> np.ndarray:
    """The structured node array of a tree estimator, shape (M,)."""
    nodes = estimator.record("tree_").array("nodes", "V", 1)
    if not len(nodes):
        raise ModelError(f"the {estimator.kind} is damaged: its tree has no nodes.")
    return nodes


def values_of(estimator: Record) -> np.ndarray:
    """Node values of a tree estimator, float64, shape (M, targets, most classes)."""
    values = estimator.record("tree_").array("values", "f", 3)
    if len(values) != len(nodes_of(estimator)):
        raise ModelError(f"the {estimator.kind} is damaged: its tree has values for {len(values)} nodes.")
    wide: np.ndarray = values.astype(np.float64, copy=False)
    return wide


def labels_of(classes: object, title: str = "the class labels") -> np.ndarray:
    """Class labels as an array of strings, numbers or bools.

    Raises `UnsupportedModel` if a label is anything else.
    """
    labels = as_array(classes, title, "biufcUSO", 1)
    for label in labels.tolist():
        if not isinstance(label, (str, int, float, bool)):
            raise UnsupportedModel(
                f"a class label is a {type(label).__name__}; supported are strings, numbers and bools."
            )
    if not len(labels):
        raise ModelError("the model is damaged: it has no class labels.")
    return labels


def column_count(model: Record) -> int:
    """Return the number of columns of a fitted estimator.

    Raises `UnsupportedModel` if there are too many.
    """
    return feature_count(model.whole("n_features_in_", 1))


def require_own_arrays(arrays: Iterable[np.ndarray]) -> None:
    """Refuse trees that share arrays, by which few bytes of a file would make any number of nodes.

    Raises `ModelError` if arrays are used too often.
    """
    # Keep the arrays while others are counted, so that no two have the same identity.
    once: dict[int, np.ndarray] = {}
    total = 0
    for array in arrays:
        total += array.nbytes
        once[id(array)] = array
    if total > _USES * sum(array.nbytes for array in once.values()) + _ANY_USE:
        raise ModelError("the model is damaged: its trees share their arrays too often.")


def input_spec(model: Record, *, allow_nan: bool, allow_inf: bool) -> InputSpec:
    """Return the columns and names of a fitted estimator."""
    n_features = column_count(model)
    names = feature_names(model)
    if names is not None and len(names) != n_features:
        raise ModelError(
            f"the {model.kind} is damaged: it has names of {len(names)} columns, but {n_features} columns."
        )
    return InputSpec(n_features=n_features, feature_names=names, allow_nan=allow_nan, allow_inf=allow_inf)


def feature_names(model: Record) -> tuple[str, ...] | None:
    """Return the column names that the estimator was fitted with, if any."""
    names = model.get("feature_names_in_", None)
    # category_encoders and feature-engine store the positions of unnamed columns.
    if names is None or (isinstance(names, list) and not all(isinstance(name, str) for name in names)):
        return None
    return tuple(str(name) for name in model.array("feature_names_in_", "OUS", 1).tolist())


def accepts_missing(tree: Record, version: tuple[int, ...]) -> bool:
    """Return whether ``predict`` of a tree estimator accepts NaN, in the release that wrote it."""
    if version < (1, 3):
        return False
    extra = tree.kind.startswith("ExtraTree")
    splitter = tree.get("splitter")
    if version >= (1, 9):
        return splitter == "random" if extra else True
    splitters = ("best",) if version < (1, 6) else ("random",) if extra else ("best", "random")
    free = tree.get("monotonic_cst", None) is None
    return splitter in splitters and tree.get("criterion") in _NAN_CRITERIA and free


def one_of(model: Record, name: str, choices: tuple[str, ...]) -> str:
    """Return an attribute that is one of some strings.

    Raises `UnsupportedModel` for other strings, and for the user's objects.
    """
    value = model.get(name)
    if not isinstance(value, str) or value not in choices:
        actual = repr(shown(value)) if isinstance(value, str) else "a custom object"
        raise UnsupportedModel(
            f"the {model.kind} has {actual} as its {name}; supported are {', '.join(choices)}."
        )
    return value
