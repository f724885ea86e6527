"""LightGBM's model texts, of files and of boosters (see `estimator`), read without LightGBM."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import assemble, feature_count
from hbtvm.frontends.lightgbm.categories import category_columns
from hbtvm.frontends.lightgbm.linear import is_linear, linear_scores
from hbtvm.frontends.lightgbm.output import booster_output
from hbtvm.frontends.lightgbm.trees import count_of, read_tree, required
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.compose import of_nodes
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.words.printable import shown


def from_text(content: str) -> Graph:
    """Read the text that ``Booster.save_model`` writes.

    Raises `ModelError` if the text is not a LightGBM model or is cut short. Raises `UnsupportedModel` if the
    model has an unknown objective, or too large linear trees.
    """
    text = ModelText(content)
    return read_text(text, "Booster", booster_output(text.objective, text.n_outputs, text.average))


@dataclass(frozen=True)
class ModelText:
    """The parts of a model text, split into keys and values."""

    header: dict[str, str]  # keys and values before the first tree; values may be empty
    trees: list[dict[str, str]]  # the same for each tree
    pandas_categorical: list[list[Any]]  # categories of the training frame's category columns, in order

    def __init__(self, content: str) -> None:
        # Not `splitlines`, which also splits at characters that may be in a name.
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

    def first(self, iterations: int) -> ModelText:
        """Return the text with the trees of the first `iterations`; itself if that is 0 or less."""
        if iterations <= 0 or iterations * self.n_outputs >= len(self.trees):
            return self
        cut = copy.copy(self)
        object.__setattr__(cut, "trees", self.trees[: iterations * self.n_outputs])
        return cut

    @property
    def objective(self) -> str:
        """LightGBM's objective with its parameters, empty for a custom one."""
        return self.header.get("objective", "")

    @property
    def average(self) -> int:
        """Number of iterations if the model averages over them (random forest), else 1."""
        return len(self.trees) // self.n_outputs if "average_output" in self.header else 1

    @property
    def n_outputs(self) -> int:
        """Number of trees of an iteration, and of scores of a row."""
        # The first versions had as many trees as classes.
        return count_of(
            self.header, "num_tree_per_iteration" if "num_tree_per_iteration" in self.header else "num_class"
        )


def read_text(text: ModelText, name: str, output: OutputSpec) -> Graph:
    """Read a split text as a model of class `name` with the given outputs.

    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if its linear trees are too large.
    """
    # Also bounds the memory that a damaged number asks for.
    if not text.trees or len(text.trees) % text.n_outputs:
        raise ModelError(
            f"the LightGBM model text is damaged: {len(text.trees)} trees for {text.n_outputs} scores."
        )
    n_features = feature_count(count_of(text.header, "max_feature_idx", least=0) + 1)
    names = tuple(required(text.header, "feature_names").split(" "))
    infos = text.header.get("feature_infos", "").split()
    if n_features not in (len(names), len(infos)):
        raise ModelError(
            f"the LightGBM model text is damaged: {len(names)} feature names for {n_features} features."
        )
    linear = any(map(is_linear, text.trees))
    try:
        if linear:
            scores = linear_scores(text.trees, n_features, text.n_outputs, text.average)
        trees = [read_tree(tree) for tree in text.trees]
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
        # Products of linear trees with infinities are infinite or NaN; such rows are refused.
        allow_inf=not linear,
        categories=categories,
        unknown_category="missing",
        category_order=order,
    )
    if not linear:
        return Graph("lightgbm", name, inputs, ensemble, output)
    raw = Table(tuple(Column(Raw(i)) for i in range(n_features)))
    rows = TableRows(raw, allow_nan=True, allow_inf=False)
    graph = of_nodes("lightgbm", name, inputs, scores(rows), output, raw)
    return replace(graph, scores_of=scores)


def _keys(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines if line.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _pandas_categorical(lines: list[str]) -> list[list[Any]]:
    for line in reversed(lines):
        if line.startswith("pandas_categorical:"):
            try:
                categories = json.loads(line.partition(":")[2]) or []
            except (ValueError, RecursionError) as error:
                raise ModelError("the LightGBM model text is damaged: its pandas categories.") from error
            if not isinstance(categories, list) or not all(map(_is_category_list, categories)):
                raise ModelError("the LightGBM model text is damaged: its pandas categories are not lists.")
            return categories
    return []


def _is_category_list(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, (str, int, float)) for value in values)


def _end_of_trees(lines: list[str], starts: list[int], sizes: list[str]) -> int:
    """Return the index of the line behind the last tree.

    Raises `ModelError` if the text is cut short.
    """
    first = starts[0] if starts else 0
    # LightGBM before 2.2 wrote importances behind the trees, and no "end of trees".
    for end in ("end of trees", "feature importances:"):
        for i in range(first, len(lines)):
            if lines[i].strip() == end:
                return i
    announced = sum(int(size) for size in sizes if size.isdecimal() and len(size) < 16)
    length = sum(len(line) + 1 for line in lines[first:])
    if not starts or "version=v2" not in lines[:first] or not 0 < announced <= length:
        raise ModelError("the LightGBM model text is cut short: 'end of trees' is missing.")
    return len(lines)
