"""LightGBM: boosters, scikit-learn estimators and model text files.

All three are read through the model text, so that a ``.txt`` file needs no LightGBM.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import Tree, assemble, feature_count
from hbtvm.frontends.lightgbm_categories import category_columns
from hbtvm.frontends.lightgbm_output import booster_output, estimator_output
from hbtvm.pipeline.ensemble import LEAF, ZERO_THRESHOLD, CategorySet
from hbtvm.pipeline.pipeline import InputSpec, Pipeline
from hbtvm.printable import shown

ESTIMATORS = ("LGBMClassifier", "LGBMRegressor", "LGBMRanker", "LGBMModel")

_CATEGORICAL = 1
_DEFAULT_LEFT = 2
_MISSING_NONE, _MISSING_ZERO = 0, 1


def from_object(model: Any) -> Pipeline:
    """Read a ``lightgbm.Booster``, or a fitted ``LGBMClassifier``, ``LGBMRegressor`` or ``LGBMRanker``.

    Early stopping counts as in LightGBM's own ``predict``: the trees up to ``best_iteration``.

    Raises
    ------
    UnsupportedModel
        If the model is not fitted, has linear trees or an objective that is not known.
    """
    name = type(model).__name__
    if name == "Booster":
        return from_text(model.model_to_string())
    if not model.__sklearn_is_fitted__():
        raise UnsupportedModel(f"the {name} is not fitted; hbtvm compiles trained models.")
    text = ModelText(model.booster_.model_to_string())
    return _pipeline(text, name, estimator_output(model, text.objective, text.n_outputs, text.average))


def from_text(content: str) -> Pipeline:
    """Read the text that ``Booster.save_model`` writes.

    Raises
    ------
    ModelError
        If the text is no LightGBM model or is cut short.
    UnsupportedModel
        If the model has linear trees or an objective that is not known.
    """
    text = ModelText(content)
    return _pipeline(text, "Booster", booster_output(text.objective, text.n_outputs, text.average))


@dataclass(frozen=True)
class ModelText:
    """The parts of a model text, split but for the trees' arrays.

    Attributes
    ----------
    header
        Keys and values before the first tree; keys without value have an empty one.
    trees
        The same for each tree.
    pandas_categorical
        The categories of the training frame's category columns, in their order.
    """

    header: dict[str, str]
    trees: list[dict[str, str]]
    pandas_categorical: list[list[Any]]

    def __init__(self, content: str) -> None:
        # Not `splitlines`, to which characters that may be in a name are line ends, too.
        lines = content.replace("\r\n", "\n").split("\n")
        if lines[0].strip() != "tree":
            raise ModelError("expected a LightGBM model text, but its first line is not 'tree'.")
        starts = [i for i, line in enumerate(lines) if line.startswith("Tree=")]
        header = _keys(lines[1 : starts[0] if starts else len(lines)])
        sizes = header.get("tree_sizes", "").split()
        end = _end_of_trees(lines, starts, sizes)
        if "parameters:" in lines and "end of parameters" not in lines:
            raise ModelError("the LightGBM model text is cut short: 'end of parameters' is missing.")
        header = header if starts else _keys(lines[1:end])
        trees = [_keys(lines[a + 1 : b]) for a, b in itertools.pairwise([*starts, end])]
        if len(sizes) not in (0, len(trees)):
            raise ModelError(
                f"the LightGBM model text is cut short or damaged: it has {len(trees)} trees, but announces "
                f"{len(sizes)}."
            )
        object.__setattr__(self, "header", header)
        object.__setattr__(self, "trees", trees)
        object.__setattr__(self, "pandas_categorical", _pandas_categorical(lines[end:]))

    @property
    def objective(self) -> str:
        """LightGBM's objective with its parameters, empty for a custom one."""
        return self.header.get("objective", "")

    @property
    def average(self) -> int:
        """Number of iterations where the model averages over them (random forest), else 1."""
        return len(self.trees) // self.n_outputs if "average_output" in self.header else 1

    @property
    def n_outputs(self) -> int:
        """Trees of one iteration, and scores of a row."""
        # The first versions had as many trees as classes.
        return _count(
            self.header, "num_tree_per_iteration" if "num_tree_per_iteration" in self.header else "num_class"
        )


def _pipeline(text: ModelText, name: str, output: Any) -> Pipeline:
    if any(tree.get("is_linear", "0") != "0" for tree in text.trees):
        raise UnsupportedModel(
            "the LightGBM model has linear trees (linear_tree=True); supported are constant leaves."
        )
    # Also keeps a damaged number from asking for all memory.
    if not text.trees or len(text.trees) % text.n_outputs:
        raise ModelError(
            f"the LightGBM model text is damaged: {len(text.trees)} trees for {text.n_outputs} scores."
        )
    n_features = feature_count(_count(text.header, "max_feature_idx", least=0) + 1)
    names = tuple(_required(text.header, "feature_names").split(" "))
    infos = text.header.get("feature_infos", "").split()
    if n_features not in (len(names), len(infos)):
        raise ModelError(
            f"the LightGBM model text is damaged: {len(names)} feature names for {n_features} features."
        )
    try:
        trees = [_tree(tree) for tree in text.trees]
    except ModelError:
        raise
    except (ValueError, IndexError, OverflowError) as error:
        raise ModelError(f"the LightGBM model text is damaged: {shown(error, most=200)}.") from error
    ensemble = assemble(
        trees,
        n_features=n_features,
        compare_dtype="float64",
        tree_output=np.arange(len(trees)) % text.n_outputs,
        base_score=np.zeros(text.n_outputs),
        divisor=text.average,
        negative_fraction_is_zero=True,
    )
    read = np.unique(ensemble.feature[~ensemble.is_leaf()]).tolist()
    categories, order = category_columns(text.pandas_categorical, infos, n_features, read)
    inputs = InputSpec(
        n_features=n_features,
        feature_names=names if len(names) == n_features else None,
        categories=categories,
        unknown_category="missing",
        category_order=order,
    )
    return Pipeline("lightgbm", name, inputs, ensemble, output)


def _tree(fields: dict[str, str]) -> Tree:
    leaves = _count(fields, "num_leaves")
    splits = leaves - 1
    leaf_value = _numbers(fields, "leaf_value", leaves, np.float64)
    value = np.concatenate([np.zeros(splits), leaf_value])[:, None]
    if not splits:
        node = np.full(1, LEAF)
        return Tree(node, np.zeros(1), node, node, np.zeros(1, bool), value)
    kind = _numbers(fields, "decision_type", splits, np.int64)
    threshold = _numbers(fields, "threshold", splits, np.float64)
    missing = (kind >> 2) & 3
    categorical = (kind & _CATEGORICAL) != 0
    # Without missing values in training NaN is read as 0, so it goes where 0 goes.
    default_left = np.where(missing == _MISSING_NONE, threshold >= 0, (kind & _DEFAULT_LEFT) != 0)
    # NaN is in no category, and what is in none goes right.
    default_left &= ~categorical
    return Tree(
        feature=_with_leaves(_numbers(fields, "split_feature", splits, np.int64), leaves),
        threshold=_with_leaves(_for_tiny_values(threshold), leaves),
        left=_with_leaves(_children(fields, "left_child", splits), leaves),
        right=_with_leaves(_children(fields, "right_child", splits), leaves),
        default_left=_with_leaves(default_left, leaves),
        value=value,
        zero_as_missing=_with_leaves((missing == _MISSING_ZERO) & ~categorical, leaves),
        categories=_categories(fields, threshold, np.nonzero(categorical)[0]),
    )


def _for_tiny_values(threshold: np.ndarray) -> np.ndarray:
    """Thresholds that send x where LightGBM sends it, which reads tiny values as 0 beforehand."""
    below = np.nextafter(-ZERO_THRESHOLD, -np.inf)
    tiny = (threshold >= -ZERO_THRESHOLD) & (threshold < ZERO_THRESHOLD)
    return np.where(tiny, np.where(threshold >= 0, ZERO_THRESHOLD, below), threshold)


def _with_leaves(array: np.ndarray, leaves: int) -> np.ndarray:
    """Append what stands at the leaves, which follow the splits."""
    fill = 0 if array.dtype == bool else LEAF
    return np.concatenate([array, np.full(leaves, fill, array.dtype)])


def _children(fields: dict[str, str], name: str, splits: int) -> np.ndarray:
    child = _numbers(fields, name, splits, np.int64)
    # LightGBM writes leaf i as -i - 1.
    return np.where(child < 0, splits - child - 1, child)


def _categories(fields: dict[str, str], threshold: np.ndarray, nodes: np.ndarray) -> dict[int, CategorySet]:
    if not len(nodes):
        return {}
    count = _count(fields, "num_cat")
    bounds = _numbers(fields, "cat_boundaries", count + 1, np.int64)
    words = _numbers(fields, "cat_threshold", int(bounds[-1]), np.uint32)
    if bounds[0] != 0 or np.any(np.diff(bounds) < 0):
        raise ValueError("the category sets overlap")
    sets: dict[int, CategorySet] = {}
    result = {}
    for node in nodes:
        index = int(threshold[node])
        if not 0 <= index < count:
            raise ValueError(f"a node has the category set {index} of {count}")
        if index not in sets:
            chosen = words[bounds[index] : bounds[index + 1]]
            member = (chosen[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).ravel()
            sets[index] = CategorySet(member[: int(member.nonzero()[0].max(initial=-1)) + 1])
        result[int(node)] = sets[index]
    return result


def _numbers(fields: dict[str, str], name: str, count: int, dtype: Any) -> np.ndarray:
    words = _required(fields, name).split()
    if len(words) != count:
        raise ValueError(f"{name} has {len(words)} numbers, expected {count}")
    return np.array([_number(word) for word in words] if dtype == np.float64 else words).astype(dtype)


def _number(word: str) -> float:
    value = float(word)
    if math.isnan(value):
        raise ValueError("a number is NaN")
    return value


def _keys(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines if line.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _required(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise ModelError(f"the LightGBM model text is damaged: {name!r} is missing.")
    return fields[name]


def _count(fields: dict[str, str], name: str, least: int = 1) -> int:
    word = _required(fields, name)
    # Longer ones overflow what they are compared with, and Python counts their digits.
    if not (word.isascii() and word.isdecimal() and len(word) < 16) or int(word) < least:
        raise ModelError(f"the LightGBM model text is damaged: {name} is '{shown(word)}'.")
    return int(word)


def _pandas_categorical(lines: list[str]) -> list[list[Any]]:
    for line in reversed(lines):
        if line.startswith("pandas_categorical:"):
            try:
                found = json.loads(line.partition(":")[2]) or []
            except (ValueError, RecursionError) as error:
                raise ModelError("the LightGBM model text is damaged: its pandas categories.") from error
            if not isinstance(found, list) or not all(map(_is_category_list, found)):
                raise ModelError("the LightGBM model text is damaged: its pandas categories are no lists.")
            return found
    return []


def _is_category_list(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, (str, int, float)) for value in values)


def _end_of_trees(lines: list[str], starts: list[int], sizes: list[str]) -> int:
    """The line behind the last tree.

    Raises
    ------
    ModelError
        If the text is cut short.
    """
    first = starts[0] if starts else 0
    # LightGBM before 2.2 wrote no "end of trees", but importances behind them.
    for end in ("end of trees", "feature importances:"):
        for i in range(first, len(lines)):
            if lines[i].strip() == end:
                return i
    announced = sum(int(size) for size in sizes if size.isdecimal() and len(size) < 16)
    length = sum(len(line) + 1 for line in lines[first:])
    if not starts or "version=v2" not in lines[:first] or not 0 < announced <= length:
        raise ModelError("the LightGBM model text is cut short: 'end of trees' is missing.")
    return len(lines)
